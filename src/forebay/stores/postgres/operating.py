"""What operators and programs do to jobs and queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.history import Event, EventKind
from forebay.domain.job import Amendment, Job, JobId, QueueName, check_queue_name
from forebay.domain.lifecycle import LIVE, WAITING, JobState, is_final
from forebay.domain.queue import Queue, QueueState
from forebay.domain.worker import WorkerInfo
from forebay.domain.workflow import WAITS, Aftermath, EdgeState
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.postgres.connection import TryAgain
from forebay.stores.postgres.duties import bury_queue, end_waiting, forget_history, others_insert
from forebay.stores.postgres.rows import job_from_row, options_text_with
from forebay.stores.postgres.transaction import Key, Transaction
from forebay.stores.protocol import Verdict
from forebay.stores.rows import json_text, said_text

LOOKS: Final = 20


def in_order(tx: Transaction, ids: Sequence[JobId], act: Callable[[JobId], Verdict]) -> list[Verdict]:
    """Do something to jobs in the order asked. Several are held first, in the order of their ids, as
    everybody does who locks more than one: so two callers never wait for each other."""
    if len(ids) > 1:
        for job_id in sorted(set(ids)):
            held_job(tx, job_id)
    return [act(job_id) for job_id in ids]


def held_job(tx: Transaction, job_id: JobId) -> Job | None:
    """A job as it is now; a live one is held by the lock of its narrow row until the transaction ends.

    The narrow row says what state a job is in, so who holds it keeps everybody else from moving the job. It
    is looked for where the job was seen; if it has moved on meanwhile, we look again. After the lock the job
    is read once more: it may have moved away and come back in between.
    """
    for _ in range(LOOKS):
        job = _find(tx, job_id)
        if job is None or is_final(job.state):
            return job
        if _locked(tx, job):
            found = _find(tx, job_id)
            if found is not None and _stands(found) == _stands(job):
                return found
    raise TryAgain


def _find(tx: Transaction, job_id: JobId) -> Job | None:
    row = tx.one("job", {"ids": [job_id]})
    return None if row is None else job_from_row(row)


def _stands(job: Job) -> tuple[object, ...]:
    return (job.state, job.queue, job.gate, job.capped, job.rank, job.seq)


def _locked(tx: Transaction, job: Job) -> bool:
    if job.state is JobState.RUNNING:
        place = "leases"
    elif job.state is JobState.BLOCKED:
        place = "blocked"
    elif job.state is not JobState.PENDING:
        place = "due"
    else:
        place = "ready" if job.gate is None else "gated"
    return tx.one(f"{place}_lock", _narrow(job)) is not None


def _narrow(job: Job) -> dict[str, object]:
    """What names the narrow row of a waiting job."""
    return {"id": job.id, "queue": job.queue, "capped": job.capped, "rank": job.rank, "seq": job.seq}


def _missing(job_id: JobId) -> Verdict:
    return Verdict(job_id=job_id, done=False, state=None)


def _refused(job: Job, reason: str) -> Verdict:
    return Verdict(job_id=job.id, done=False, state=job.state, reason=reason)


# Cancel


def cancel(tx: Transaction, job_id: JobId, reason: str, actor: str, *, force: bool) -> Verdict:
    job = held_job(tx, job_id)
    if job is None:
        return _missing(job_id)
    if is_final(job.state):
        return _refused(job, f"it is already {job.state}")
    if job.state is JobState.RUNNING:
        return (_take_away if force else _ask)(tx, job, reason, actor)
    tx.run("waiting_remove", _narrow(job))
    end_waiting(tx, [(job.id, job.state)], JobState.CANCELLED, reason, EventKind.CANCEL, actor)
    return Verdict(job_id=job_id, done=True, state=JobState.CANCELLED)


def _ask(tx: Transaction, job: Job, reason: str, actor: str) -> Verdict:
    if job.cancel_reason is None:
        tx.run("cancel_ask", {"job_id": job.id, "reason": reason})
        tx.record(Event(kind=EventKind.CANCEL, job_id=job.id, queue=job.queue, actor=actor, detail=reason))
        tx.has_news = True
    return Verdict(job_id=job.id, done=True, state=JobState.RUNNING)


def _take_away(tx: Transaction, job: Job, reason: str, actor: str) -> Verdict:
    [(queue, unique_key, attempt, listed)] = tx.all(
        "bury_running", {"job_id": job.id, "reason": reason, "now": tx.now}
    )
    tx.listed += listed or ()
    tx.free_keys([(job.id, queue, unique_key)])
    tx.move(queue, JobState.RUNNING, JobState.DEAD)
    tx.record(
        Event(
            kind=EventKind.FORCED,
            job_id=job.id,
            queue=queue,
            attempt=attempt,
            actor=actor,
            detail=reason,
        )
    )
    return Verdict(job_id=job.id, done=True, state=JobState.DEAD)


# Amend


def amend(tx: Transaction, job_id: JobId, change: Amendment, actor: str) -> Verdict:
    job = held_job(tx, job_id)
    if job is None:
        return _missing(job_id)
    objection = change.objection_of(job.state)
    if objection:
        return _refused(job, objection)
    state = JobState.PENDING if change.delay_ms == 0 else job.state
    values = _amended(tx, job, change, state)
    if job.state is JobState.RUNNING:
        tx.run("amend_running", values)
    elif job.state is JobState.BLOCKED:
        tx.run("amend_blocked", values)
    else:
        tx.run("waiting_remove", _narrow(job))
        tx.run("amend", values)
    if state is not job.state:
        tx.move(job.queue, job.state, state)
    tx.has_news = True
    changed = [name for name in ("priority", "delay_ms", "metadata") if getattr(change, name) is not None]
    tx.record(
        Event(
            kind=EventKind.AMENDED,
            job_id=job_id,
            queue=job.queue,
            actor=actor,
            detail=",".join(changed),
        )
    )
    return Verdict(job_id=job_id, done=True, state=state)


def _amended(tx: Transaction, job: Job, change: Amendment, state: JobState) -> dict[str, object]:
    priority = job.priority
    if change.priority is not None:
        priority = tx.existing_queue(job.queue).priority_of(change.priority)
    row = tx.one("options", {"id": job.id})
    options = None if row is None else row[0]
    if change.metadata is not None:
        options = options_text_with(options, change.merged_into(job.metadata))
    run_at = job.run_at
    if change.delay_ms is not None and job.state is not JobState.PENDING:
        run_at = tx.now + change.delay_ms
    ready_at = run_at if job.attempt == 0 else job.ready_at
    place: dict[str, object] = {
        "rank": job.rank,
        "capped": job.capped,
        "has_place": False,
        "rescore_at": None,
    }
    if state is JobState.PENDING and (change.priority is not None or state is not job.state):
        where = tx.place(job.queue, ready_at, priority, job.failures, job.deadline_at)
        place = {**where._asdict(), "has_place": True}
    return {
        "id": job.id,
        "state": state.value,
        "gate": job.gate,
        "priority": priority,
        "options": options,
        "run_at": run_at,
        "ready_at": ready_at,
        "now": tx.now,
        **place,
    }


# Revive, delete


def revive(
    tx: Transaction,
    job_id: JobId,
    queue: QueueName | None,
    delay_ms: int,
    actor: str,
    *,
    reset: bool,
    dependants: bool = False,
    with_parent: bool = False,
) -> Verdict:
    if queue is not None:
        check_queue_name(queue)
    job = held_job(tx, job_id)
    if job is None:
        return _missing(job_id)
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return _refused(job, f"a {job.state} job cannot be revived")
    name = queue or job.queue
    target = tx.queue(name) or tx.fresh_queue(name)
    if target.state in (QueueState.DRAINING, QueueState.DROPPED):
        return _refused(job, f"queue {target.name} is {target.state}")
    if job.unique_key is not None:
        key = Key(target.name, "unique", job.unique_key)
        holder = tx.key_holders([key]).get(key)
        if holder is not None:
            return _refused(job, f"its unique key is held by {holder}")
        if not tx.take_keys([(key, job.id, None)]):
            raise TryAgain
    unmet = _reopened(tx, job_id, with_parent=with_parent)
    state = _put_among_live(tx, job, target, delay_ms, unmet, reset=reset)
    tx.list_if_concerned([job_id], Aftermath.REVIVE if dependants else Aftermath.REVIVED)
    tx.record(Event(kind=EventKind.REVIVED, job_id=job_id, queue=target.name, actor=actor))
    tx.has_news = True
    return Verdict(job_id=job_id, done=True, state=state)


def _taken(tx: Transaction, job: Job) -> tuple[str | None, str | None]:
    """Take a final job out; its options and errors as they are stored."""
    row = tx.one("take_dead" if job.state is JobState.DEAD else "take_finished", {"id": job.id})
    if row is None:
        raise TryAgain  # somebody else has revived, deleted or pruned it since we looked
    return row[2], row[3]


def _reopened(tx: Transaction, job_id: JobId, *, with_parent: bool) -> int:
    """How many edges block a job that is revived. Whoever asks for this very job wants it to run without
    parents that have failed; one that is revived with a parent waits for the others.

    The edges are held first: who settles one of them meanwhile has done so before we count, or waits for us
    and then finds the job blocked.
    """
    rows = tx.all("edges_lock", {"child": job_id})
    states = [EdgeState(state) for _, state in rows]
    into = EdgeState.HELD if with_parent else EdgeState.MET
    if EdgeState.FAILED in states:
        tx.run("edges_reopen", {"child": job_id, "state": into.value})
    return sum((into if state is EdgeState.FAILED else state) in WAITS for state in states)


def _put_among_live(
    tx: Transaction, job: Job, target: Queue, delay_ms: int, unmet: int, *, reset: bool
) -> JobState:
    options, errors = _taken(tx, job)
    tx.existing_queue(target.name)
    failures = 0 if reset else job.failures
    state = JobState.BLOCKED if unmet else JobState.SCHEDULED if delay_ms else JobState.PENDING
    due_at = tx.now + delay_ms
    where = tx.place(target.name, due_at, job.priority, failures, job.deadline_at)
    values = {
        "id": job.id,
        "seq": job.seq,
        "queue": target.name,
        "task": job.task,
        "priority": job.priority,
        "options": options,
        "attempt": job.attempt,
        "failures": failures,
        "crashes": 0 if reset else job.crashes,
        "created_at": job.created_at,
        "due_at": due_at,
        "rank": where.rank,
        "capped": where.capped and state is JobState.PENDING,
        "rescore_at": where.rescore_at if state is JobState.PENDING else None,
        "deadline_at": job.deadline_at,
        "expires_at": job.expires_at if job.expires_at is not None and job.expires_at > tx.now else None,
        "unique_key": job.unique_key,
        "errors": errors,
        "payload": job.payload,
        "state": state.value,
        "unmet": unmet,
        "now": tx.now,
    }
    tx.run("revive", values)
    tx.count(job.queue, job.state, -1)
    tx.count(target.name, state, 1)
    return state


def delete(tx: Transaction, job_id: JobId, actor: str) -> Verdict:
    job = held_job(tx, job_id)
    if job is None:
        return _missing(job_id)
    if job.state is JobState.RUNNING:
        return _refused(job, "it is running")
    if job.state in WAITING:
        tx.run("waiting_remove", _narrow(job))
        tx.run("remove_live", {"id": job_id})
        tx.free_keys([(job_id, job.queue, job.unique_key)])
    else:
        _taken(tx, job)
    forget_history(tx, [job_id])
    if job.state is not JobState.COMPLETED:
        tx.list_if_concerned([job_id], Aftermath.DELETED)
    tx.count(job.queue, job.state, -1)
    tx.record(
        Event(kind=EventKind.DELETED, job_id=job_id, queue=job.queue, actor=actor, detail=job.state.value)
    )
    return Verdict(job_id=job_id, done=True, state=None)


# Queues


def save_queue(
    tx: Transaction,
    name: QueueName,
    changes: Mapping[str, object],
    state: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    found = tx.locked_queue(name)
    queue = found or tx.fresh_queue(name)
    into = QueueState.ACTIVE if state is None and queue.state is QueueState.DROPPED else state
    configured = queue.configured(queue.settings.changed(changes), into, tx.now)
    # Who is inserting just now has looked at the old settings, and is not counted yet.
    if configured.reordering and not tx.counted(name, LIVE) and not others_insert(tx):
        configured = replace(configured, reordering=False)
    saved = tx.add_queue(configured) if found is None else tx.save_queue(configured)
    detail = "settings" if state is None else state.value
    tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail=detail))
    tx.has_news = True
    return saved


def drop_queue(tx: Transaction, name: QueueName, limit: int, actor: str, *, force: bool) -> int:
    """An insert that has looked at the queue before may still bring jobs; the sweep buries these."""
    queue = tx.locked_queue(name)
    if queue is None:
        raise QueueNotFound(f"there is no queue {name}")
    live = tx.counted(name, LIVE)
    if live and not force:
        raise QueueNotEmpty(f"queue {name} has {live} live jobs; drain it, or drop it by force")
    if queue.state is not QueueState.DROPPED:
        tx.save_queue(queue.configured(queue.settings, QueueState.DROPPED, tx.now))
        tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail="dropped"))
    bury_queue(tx, name, limit)
    return tx.counted(name, WAITING)


# Workers and duties


def beat(tx: Transaction, worker: WorkerInfo) -> None:
    values = {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "queues": json_text(worker.queues),
        "state": worker.state.value,
        "started_at": worker.started_at or tx.now,
        "now": tx.now,
        "said": said_text(worker),
    }
    tx.run("beat", values)


def take_duty(tx: Transaction, name: str, every_ms: int) -> bool:
    return tx.one("take_duty", {"name": name, "every_ms": every_ms}) is not None
