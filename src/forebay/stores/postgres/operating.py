"""What operators and programs do to jobs and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from forebay.domain.changes import amendment_changes, queue_changes, revival_changes, state_changes
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Amendment, Job, JobId, QueueName, check_queue_name
from forebay.domain.lifecycle import LIVE, WAITING, JobState, is_final
from forebay.domain.queue import Queue, QueueState
from forebay.domain.share import SHARE, gate_of
from forebay.domain.worker import WorkerInfo
from forebay.domain.workflow import Aftermath
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.clock_reading import NAMES, ClockReading, earlier_of, is_recorded, slot_name
from forebay.stores.postgres.connection import TryAgain
from forebay.stores.postgres.duties import bury_queue, end_waiting, forget_history, others_insert
from forebay.stores.postgres.edges import reopened
from forebay.stores.postgres.holding import busy_verdict, held_jobs, narrow
from forebay.stores.postgres.inserting import busy_key
from forebay.stores.postgres.rows import options_text_with
from forebay.stores.postgres.sequences import rejoin
from forebay.stores.postgres.sharing import come
from forebay.stores.postgres.transaction import Key, Transaction
from forebay.stores.protocol import Verdict
from forebay.stores.reviving import Revival
from forebay.stores.rows import json_text, said_text


class Busy(str):
    """A reason against an action that ends with another transaction."""


def _refused(job: Job, reason: str) -> Verdict:
    is_busy = isinstance(reason, Busy)
    return Verdict(job_id=job.id, done=False, state=job.state, reason=str(reason), is_busy=is_busy)


# Cancel


def cancel(tx: Transaction, jobs: Sequence[Job], reason: str, actor: str, *, force: bool) -> list[Verdict]:
    """All that wait are taken out at once; then each has its turn, so that the events are in order."""
    waiting = [job for job in jobs if job.state in WAITING]
    for job in waiting:
        tx.run("waiting_remove", narrow(job))
    end_waiting(tx, [(job.id, job.state) for job in waiting], JobState.CANCELLED, reason)
    return [_cancelled(tx, job, reason, actor, force=force) for job in jobs]


def _cancelled(tx: Transaction, job: Job, reason: str, actor: str, *, force: bool) -> Verdict:
    if is_final(job.state):
        return _refused(job, f"it is already {job.state}")
    if job.state is JobState.RUNNING:
        return (_take_away if force else _ask)(tx, job, reason, actor)
    tx.record(
        Event(
            kind=EventKind.CANCEL,
            job_id=job.id,
            queue=job.queue,
            actor=actor,
            detail=reason,
            changes=state_changes(job.state, JobState.CANCELLED),
        )
    )
    return Verdict(job_id=job.id, done=True, state=JobState.CANCELLED)


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
    # Whether or not this handle has met limits: an operator's mostly has not.
    tx.run("places_free", {"ids": [job.id]})
    tx.has_news = True  # somebody may wait for its place
    tx.record(
        Event(
            kind=EventKind.FORCED,
            job_id=job.id,
            queue=queue,
            attempt=attempt,
            actor=actor,
            detail=reason,
            changes=state_changes(JobState.RUNNING, JobState.DEAD),
        )
    )
    return Verdict(job_id=job.id, done=True, state=JobState.DEAD)


# Amend


def amend(tx: Transaction, job_id: JobId, change: Amendment, actor: str) -> Verdict:
    if change.queue is not None:
        _look_at_target(tx, change.queue)
    held, busy = held_jobs(tx, [job_id])
    if job_id in busy:
        return busy_verdict(busy[job_id])
    job = held.get(job_id)
    if job is None:
        return Verdict(job_id=job_id, done=False, state=None)
    state, name = JobState.PENDING if change.delay_ms == 0 else job.state, change.queue or job.queue
    objection = change.objection_of(job.state) or _moved_key(tx, job, name, state)
    if objection:
        return _refused(job, objection)
    values = _amended(tx, job, change, state)
    _rewrite(tx, job, values)
    if state is JobState.PENDING and (job.queue, job.state) != (name, state):
        come(tx, [(name, job.limit_keys.get(SHARE))])
    tx.leave(job.queue, job.state, name)
    tx.count(name, state, 1)
    tx.has_news = True
    tx.record(
        Event(
            kind=EventKind.AMENDED,
            job_id=job_id,
            queue=name,
            actor=actor,
            detail=",".join(change.changed),
            changes=amendment_changes(job, state, name, values["priority"], values["run_at"]),
        )
    )
    return Verdict(job_id=job_id, done=True, state=state)


def _rewrite(tx: Transaction, job: Job, values: Mapping[str, object]) -> None:
    if job.state is JobState.RUNNING:
        tx.run("amend_running", values)
    elif job.state is JobState.BLOCKED:
        tx.run("amend_blocked", values)
    else:
        tx.run("waiting_remove", narrow(job))
        tx.run("amend", values)


def _look_at_target(tx: Transaction, name: QueueName) -> None:
    """Lock a queue of a limited length, so that two do not take its last place. Before the job, as an insert
    does, which may wait for a job that it names while it holds its queue."""
    queue = tx.queue(name)
    if queue is not None and queue.settings.max_length is not None:
        tx.locked_queue(name)


def _moved_key(tx: Transaction, job: Job, name: QueueName, state: JobState) -> str:
    """Why a job cannot go to another queue; if nothing speaks against it, it has its key there."""
    if name == job.queue:
        return ""
    target = tx.queue(name) or tx.fresh_queue(name)
    is_pending = state is JobState.PENDING
    objection = target.objection_to_move(
        (lambda: tx.counted(target.name, [JobState.PENDING])) if is_pending else None
    )
    if objection or job.unique_key is None:
        return objection
    here, there = (Key(name, "unique", job.unique_key) for name in (job.queue, target.name))
    holders = tx.key_holders([here, there])
    if holders.get(here) != job.id:  # it was started, and has freed its key
        return ""
    if there in holders:
        return f"its unique key is held by {holders[there]}"
    if there in tx.busy_keys:
        return Busy(busy_key(there))
    tx.free_keys([(job.id, job.queue, job.unique_key)])
    if not tx.take_keys([(there, job.id, None)]):
        raise TryAgain
    return ""


def _amended(tx: Transaction, job: Job, change: Amendment, state: JobState) -> dict[str, Any]:
    name, priority = change.queue or job.queue, job.priority
    is_moved = name != job.queue
    if change.priority is not None or is_moved:
        wanted = priority if change.priority is None else change.priority
        priority = tx.existing_queue(name).priority_of(wanted)
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
    if state is JobState.PENDING and (change.priority is not None or is_moved or state is not job.state):
        where = tx.place(name, ready_at, priority, job.failures, job.deadline_at)
        place = {**where._asdict(), "has_place": True}
    return {
        "id": job.id,
        "state": state.value,
        "queue": name,
        "gate": job.gate if state is job.state and not is_moved else gate_of(job.limit_keys),
        "priority": priority,
        "options": options,
        "run_at": run_at,
        "ready_at": ready_at,
        "now": tx.now,
        **place,
    }


# Revive, delete


def revive(tx: Transaction, jobs: Sequence[Job], how: Revival, *, with_parent: bool = False) -> list[Verdict]:
    """Each is judged in its turn, since one may take the key of another; then all are put back."""
    how.check()
    objections = [_objection_to_revival(tx, job, how) for job in jobs]
    revived = [job for job, objection in zip(jobs, objections, strict=True) if not objection]
    behind = rejoin(tx, revived)
    unmet = reopened(tx, [job.id for job in revived], with_parent=with_parent)
    unmet.update(behind)
    states = {job.id: _state_of_revived(unmet[job.id], how.delay_ms) for job in revived}
    for job, (options, errors) in zip(revived, _taken(tx, revived), strict=True):
        target, state = tx.existing_queue(how.queue or job.queue), states[job.id]
        again = _revived(tx, job, target, how.delay_ms, state, reset=how.reset)
        tx.run("revive", {**again, "options": options, "errors": errors, "unmet": unmet[job.id]})
        if state is JobState.PENDING:
            come(tx, [(target.name, job.limit_keys.get(SHARE))])
        tx.leave(job.queue, job.state, target.name)
        tx.count(target.name, state, 1)
        tx.record(
            Event(
                kind=EventKind.REVIVED,
                job_id=job.id,
                queue=target.name,
                actor=how.actor,
                changes=revival_changes(job, state, target.name),
            )
        )
        tx.has_news = True
    tx.list_if_concerned(list(states), Aftermath.REVIVE if how.dependants else Aftermath.REVIVED)
    return [
        _refused(job, objection) if objection else Verdict(job_id=job.id, done=True, state=states[job.id])
        for job, objection in zip(jobs, objections, strict=True)
    ]


def _state_of_revived(unmet: int, delay_ms: int) -> JobState:
    if unmet:
        return JobState.BLOCKED
    return JobState.SCHEDULED if delay_ms else JobState.PENDING


def _objection_to_revival(tx: Transaction, job: Job, how: Revival) -> str:
    """Why a job stays where it is; if nothing speaks against it, it has its key again."""
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return f"a {job.state} job cannot be revived"
    if objection := how.objection_to(job):
        return objection
    name = how.queue or job.queue
    target = tx.queue(name) or tx.fresh_queue(name)
    if target.state in (QueueState.DRAINING, QueueState.DROPPED):
        return f"queue {target.name} is {target.state}"
    if job.unique_key is not None:
        key = Key(target.name, "unique", job.unique_key)
        holder = tx.key_holders([key]).get(key)
        if holder is not None:
            return f"its unique key is held by {holder}"
        if key in tx.busy_keys:
            return Busy(busy_key(key))
        if not tx.take_keys([(key, job.id, None)]):
            raise TryAgain
    return ""


def _taken(tx: Transaction, jobs: Sequence[Job]) -> list[tuple[str | None, str | None]]:
    """Take final jobs out; their options and errors as they are stored."""
    answers = [
        tx.run("take_dead" if job.state is JobState.DEAD else "take_finished", {"id": job.id}) for job in jobs
    ]
    taken = []
    for job, answer in zip(jobs, answers, strict=True):
        row = answer.fetchone()
        # Nobody holds a final job while we look at it. Somebody else may have revived, deleted or pruned it
        # since, and it may even have ended once more: what we saw would set its attempt back, and the next
        # run would have the token of one that was before.
        if row is None or row[:2] != (job.finished_at, job.attempt):
            raise TryAgain
        taken.append(row[2:])
    return taken


def _revived(
    tx: Transaction, job: Job, target: Queue, delay_ms: int, state: JobState, *, reset: bool
) -> dict[str, object]:
    failures = 0 if reset else job.failures
    due_at = tx.now + delay_ms
    where = tx.place(target.name, due_at, job.priority, failures, job.deadline_at)
    return {
        "id": job.id,
        "seq": job.seq,
        "queue": target.name,
        "task": job.task,
        "priority": job.priority,
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
        "payload": job.payload,
        "state": state.value,
        "gate": gate_of(job.limit_keys),
        "now": tx.now,
    }


def delete(tx: Transaction, jobs: Sequence[Job], actor: str) -> list[Verdict]:
    deleted = [job for job in jobs if job.state is not JobState.RUNNING]
    waiting = [job for job in deleted if job.state in WAITING]
    for job in waiting:
        tx.run("waiting_remove", narrow(job))
        tx.run("remove_live", {"id": job.id})
    tx.free_keys((job.id, job.queue, job.unique_key) for job in waiting)
    _taken(tx, [job for job in deleted if is_final(job.state)])
    forget_history(tx, [job.id for job in deleted])
    tx.list_if_concerned(
        [job.id for job in deleted if job.state is not JobState.COMPLETED], Aftermath.DELETED
    )
    for job in deleted:
        tx.remove(job.queue, job.state)
        tx.record(
            Event(
                kind=EventKind.DELETED,
                job_id=job.id,
                queue=job.queue,
                actor=actor,
                detail=job.state.value,
                changes=state_changes(job.state, None),
            )
        )
    return [
        _refused(job, "it is running")
        if job.state is JobState.RUNNING
        else Verdict(job_id=job.id, done=True, state=None)
        for job in jobs
    ]


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
    changes = queue_changes(queue, configured)
    tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail=detail, changes=changes))
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
        dropped = tx.save_queue(queue.configured(queue.settings, QueueState.DROPPED, tx.now))
        changes = queue_changes(queue, dropped)
        tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail="dropped", changes=changes))
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


def read_clock(tx: Transaction, *, record: bool) -> ClockReading:
    """Read the clock and, with `record`, keep the reading in its slot.

    Two transactions at once may both read before either writes. The second then replaces the first one's
    reading by one of the same moment: whatever the order, each slot has a time at which the clock was read.
    """
    if not record:
        return ClockReading(now=tx.now)
    recorded: dict[str, int] = dict(tx.all("clock_readings", {"names": list(NAMES)}))
    slot = slot_name(tx.now)
    if not is_recorded(tx.now, recorded.get(slot)):
        tx.run("clock_record", {"name": slot, "now": tx.now})
    return ClockReading(now=tx.now, earlier=earlier_of(tx.now, list(recorded.values())))
