"""What operators and programs do to jobs and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from msgspec.structs import replace

from forebay.domain.changes import amendment_changes, queue_changes, revival_changes, state_changes
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Amendment, Job, JobId, QueueName, check_queue_name
from forebay.domain.lifecycle import LIVE, WAITING, JobState, is_final
from forebay.domain.queue import Queue, QueueState
from forebay.domain.share import SHARE
from forebay.domain.worker import WorkerInfo
from forebay.domain.workflow import Aftermath
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.clock_reading import NAMES, ClockReading, earlier_of, is_recorded, slot_name
from forebay.stores.protocol import Verdict
from forebay.stores.reviving import Revival
from forebay.stores.rows import json_text, said_text
from forebay.stores.sqlite.duties import bury_queue, end_waiting, forget_edges, forget_history
from forebay.stores.sqlite.edges import reopen
from forebay.stores.sqlite.limiting import free_places
from forebay.stores.sqlite.noting import forget_notes
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.sharing import join
from forebay.stores.sqlite.transaction import Transaction


class Named(TypedDict):
    """What names one job in a statement."""

    seq: int
    job_id: JobId


def find(tx: Transaction, job_id: JobId) -> Job | None:
    found = tx.find(job_id)
    row = None if found is None else tx.one("job", {"seq": found[0], "job_id": job_id})
    return None if row is None else job_from_row(row)


def _missing(job_id: JobId) -> Verdict:
    return Verdict(job_id=job_id, done=False, state=None)


def _refused(job: Job, reason: str) -> Verdict:
    return Verdict(job_id=job.id, done=False, state=job.state, reason=reason)


# Cancel


def cancel(tx: Transaction, job_id: JobId, reason: str, actor: str, *, force: bool) -> Verdict:
    found = tx.find(job_id)
    if found is None:
        return _missing(job_id)
    seq, state = found
    if is_final(state):
        return Verdict(job_id=job_id, done=False, state=state, reason=f"it is already {state}")
    if state is JobState.RUNNING:
        end = _take_away if force else _ask
        return end(tx, {"seq": seq, "job_id": job_id}, reason, actor)
    queue = end_waiting(tx, seq, job_id, JobState.CANCELLED, reason)
    tx.record(
        Event(
            kind=EventKind.CANCEL,
            job_id=job_id,
            queue=queue,
            actor=actor,
            detail=reason,
            changes=state_changes(state, JobState.CANCELLED),
        )
    )
    return Verdict(job_id=job_id, done=True, state=JobState.CANCELLED)


def _ask(tx: Transaction, job: Named, reason: str, actor: str) -> Verdict:
    for (queue,) in tx.all("cancel_ask", {**job, "reason": reason}):
        tx.record(Event(kind=EventKind.CANCEL, job_id=job["job_id"], queue=queue, actor=actor, detail=reason))
        tx.has_news = True
    return Verdict(job_id=job["job_id"], done=True, state=JobState.RUNNING)


def _take_away(tx: Transaction, job: Named, reason: str, actor: str) -> Verdict:
    job_id = job["job_id"]
    tx.run("bury_running", {**job, "reason": reason, "now": tx.now})
    queue, unique_key, attempt = tx.all("remove_running", job)[0]
    tx.free_key(queue, unique_key, job_id)
    tx.move(queue, JobState.RUNNING, JobState.DEAD)
    tx.list_aftermath([job_id], Aftermath.DEAD)
    free_places(tx, [job_id])
    tx.record(
        Event(
            kind=EventKind.FORCED,
            job_id=job_id,
            queue=queue,
            attempt=attempt,
            actor=actor,
            detail=reason,
            changes=state_changes(JobState.RUNNING, JobState.DEAD),
        )
    )
    tx.has_news = True
    return Verdict(job_id=job_id, done=True, state=JobState.DEAD)


# Amend


def amend(tx: Transaction, job_id: JobId, change: Amendment, actor: str) -> Verdict:
    job = find(tx, job_id)
    if job is None:
        return _missing(job_id)
    state, name = JobState.PENDING if change.delay_ms == 0 else job.state, change.queue or job.queue
    objection = change.objection_of(job.state) or _moved_key(tx, job, name, state)
    if objection:
        return _refused(job, objection)
    values = _amended(tx, job, change, state)
    tx.run("amend", {**values, "was": job.state.value})
    tx.leave(job.queue, job.state, name)
    tx.count(name, state, 1)
    if state is JobState.PENDING and (job.queue, job.state) != (name, state):
        join(tx, name, job.limit_keys.get(SHARE), [job.seq])
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


def _moved_key(tx: Transaction, job: Job, name: QueueName, state: JobState) -> str:
    """Why a job cannot go to another queue; if nothing speaks against it, it has its key there."""
    if name == job.queue:
        return ""
    target = tx.queue(name) or tx.fresh_queue(name)
    is_pending = state is JobState.PENDING
    objection = target.objection_to_move(
        (lambda: tx.counted(target.name, JobState.PENDING)) if is_pending else None
    )
    key = job.unique_key
    # One that was started may have freed its key.
    if objection or key is None or tx.key_holder(job.queue, "unique", key) != job.id:
        return objection
    holder = tx.key_holder(target.name, "unique", key)
    if holder is not None:
        return f"its unique key is held by {holder}"
    tx.free_key(job.queue, key, job.id)
    tx.take_key(target.name, "unique", key, job.id, None)
    return ""


def _amended(tx: Transaction, job: Job, change: Amendment, state: JobState) -> dict[str, Any]:
    name, priority = change.queue or job.queue, job.priority
    is_moved = name != job.queue
    if change.priority is not None or is_moved:
        wanted = priority if change.priority is None else change.priority
        priority = tx.existing_queue(name).priority_of(wanted)
    metadata = None if change.metadata is None else json_text(change.merged_into(job.metadata))
    run_at = job.run_at
    if change.delay_ms is not None and job.state is not JobState.PENDING:
        run_at = tx.now + change.delay_ms
    ready_at = run_at if job.attempt == 0 else job.ready_at
    values: dict[str, object] = {
        "rank": job.rank,
        "capped": job.capped,
        "has_place": False,
        "rescore_at": None,
    }
    if state is JobState.PENDING and (change.priority is not None or is_moved or state is not job.state):
        where = tx.place(name, ready_at, priority, job.failures, job.deadline_at)
        values = {**where._asdict(), "has_place": True}
    return {
        "seq": job.seq,
        "job_id": job.id,
        "queue": name,
        "is_moved": is_moved,
        "state": state.value,
        "priority": priority,
        "metadata": metadata,
        "run_at": run_at,
        "ready_at": ready_at,
        "now": tx.now,
        **values,
    }


# Revive, delete


def revive_all(tx: Transaction, ids: Sequence[JobId], how: Revival) -> list[Verdict]:
    """All are judged before the first is put back, so that children know which of their parents will live.
    What is named twice has its second turn after all others."""
    verdicts: dict[JobId, Verdict | None] = {}
    together: dict[JobId, Job] = {}
    for job_id in dict.fromkeys(ids):
        found = _judged(tx, job_id, how)
        if isinstance(found, Verdict):
            verdicts[job_id] = found
        else:
            together[job_id] = found
    for job_id, job in together.items():
        reopen(tx, job_id, together, with_parent=False)
        verdicts[job_id] = _put_back(tx, job, how)
    return [verdicts.pop(job_id, None) or revive(tx, job_id, how) for job_id in ids]


def revive(tx: Transaction, job_id: JobId, how: Revival, *, with_parent: bool = False) -> Verdict:
    found = _judged(tx, job_id, how)
    if isinstance(found, Verdict):
        return found
    reopen(tx, job_id, (), with_parent=with_parent)
    return _put_back(tx, found, how)


def _judged(tx: Transaction, job_id: JobId, how: Revival) -> Job | Verdict:
    """A job that can be revived and has its key again, or why it stays where it is."""
    how.check()
    job = find(tx, job_id)
    if job is None:
        return _missing(job_id)
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return _refused(job, f"a {job.state} job cannot be revived")
    if objection := how.objection_to(job):
        return _refused(job, objection)
    name = how.queue or job.queue
    target = tx.queue(name) or tx.fresh_queue(name)
    if target.state in (QueueState.DRAINING, QueueState.DROPPED):
        return _refused(job, f"queue {target.name} is {target.state}")
    if job.unique_key is not None:
        holder = tx.key_holder(target.name, "unique", job.unique_key)
        if holder is not None:
            return _refused(job, f"its unique key is held by {holder}")
        tx.take_key(target.name, "unique", job.unique_key, job.id, None)
    return job


def _put_back(tx: Transaction, job: Job, how: Revival) -> Verdict:
    name = how.queue or job.queue
    target = tx.queue(name) or tx.fresh_queue(name)
    state = JobState.SCHEDULED if how.delay_ms else JobState.PENDING
    if job.sequence is not None:
        tx.join_sequence(job.sequence, job.id)
    unmet = 0
    if tx.has_edges():
        (unmet,) = tx.one("edges_unmet", {"child": job.id}) or (0,)
        if unmet or tx.one("sequence_behind", {"child": job.id}) == (1,):
            state = JobState.BLOCKED
    _put_among_live(tx, job, target, how.delay_ms, state, unmet, reset=how.reset)
    tx.list_aftermath([job.id], Aftermath.REVIVE if how.dependants else Aftermath.REVIVED)
    changes = revival_changes(job, state, target.name)
    tx.record(
        Event(kind=EventKind.REVIVED, job_id=job.id, queue=target.name, actor=how.actor, changes=changes)
    )
    tx.has_news = True
    return Verdict(job_id=job.id, done=True, state=state)


def _put_among_live(
    tx: Transaction, job: Job, target: Queue, delay_ms: int, state: JobState, unmet: int, *, reset: bool
) -> None:
    tx.existing_queue(target.name)
    failures = 0 if reset else job.failures
    due_at = tx.now + delay_ms
    where = tx.place(target.name, due_at, job.priority, failures, job.deadline_at)
    values = {
        "seq": job.seq,
        "job_id": job.id,
        "queue": target.name,
        "state": state.value,
        "failures": failures,
        "crashes": 0 if reset else job.crashes,
        "due_at": due_at,
        "rank": where.rank,
        "capped": where.capped and state is JobState.PENDING,
        "rescore_at": where.rescore_at if state is JobState.PENDING else None,
        "unmet": unmet,
        "now": tx.now,
    }
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"revive_{table}", values)
    tx.all(f"remove_{table}", {"seq": job.seq, "job_id": job.id})
    if state is JobState.PENDING:
        join(tx, target.name, job.limit_keys.get(SHARE), [job.seq])
    tx.leave(job.queue, job.state, target.name)
    tx.count(target.name, state, 1)


def delete(tx: Transaction, job_id: JobId, actor: str) -> Verdict:
    found = tx.find(job_id)
    if found is None:
        return _missing(job_id)
    seq, state = found
    if state is JobState.RUNNING:
        return Verdict(job_id=job_id, done=False, state=state, reason="it is running")
    queue = _remove(tx, {"seq": seq, "job_id": job_id}, state)
    forget_history(tx, job_id)
    forget_notes(tx, [seq])
    forget_edges(tx, job_id, state)
    tx.remove(queue, state)
    tx.record(
        Event(
            kind=EventKind.DELETED,
            job_id=job_id,
            queue=queue,
            actor=actor,
            detail=state.value,
            changes=state_changes(state, None),
        )
    )
    return Verdict(job_id=job_id, done=True, state=None)


def _remove(tx: Transaction, job: Named, state: JobState) -> QueueName:
    if state in WAITING:
        queue, _, unique_key = tx.all("remove_waiting", job)[0]
        tx.free_key(queue, unique_key, job["job_id"])
    else:
        table = "dead" if state is JobState.DEAD else "finished"
        (queue,) = tx.all(f"remove_{table}", job)[0]
    return QueueName(queue)


# Queues


def save_queue(
    tx: Transaction,
    name: QueueName,
    changes: Mapping[str, object],
    state: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    queue = tx.queue(name) or tx.fresh_queue(name)
    into = QueueState.ACTIVE if state is None and queue.state is QueueState.DROPPED else state
    configured = queue.configured(queue.settings.changed(changes), into, tx.now)
    if configured.reordering and not tx.counted(name, *LIVE):
        configured = replace(configured, reordering=False)
    saved = tx.save_queue(configured)
    detail = "settings" if state is None else state.value
    changes = queue_changes(queue, configured)
    tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail=detail, changes=changes))
    tx.has_news = True
    return saved


def drop_queue(tx: Transaction, name: QueueName, limit: int, actor: str, *, force: bool) -> int:
    queue = tx.queue(name)
    if queue is None:
        raise QueueNotFound(f"there is no queue {name}")
    live = tx.counted(name, *LIVE)
    if live and not force:
        raise QueueNotEmpty(f"queue {name} has {live} live jobs; drain it, or drop it by force")
    if queue.state is not QueueState.DROPPED:
        dropped = tx.save_queue(queue.configured(queue.settings, QueueState.DROPPED, tx.now))
        changes = queue_changes(queue, dropped)
        tx.record(Event(kind=EventKind.QUEUE, queue=name, actor=actor, detail="dropped", changes=changes))
    bury_queue(tx, name, limit)
    return tx.counted(name, *WAITING)


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
    return tx.run("take_duty", {"name": name, "every_ms": every_ms, "now": tx.now}).rowcount == 1


def record_clock(tx: Transaction) -> ClockReading:
    """Read the clock and record the reading. The write lock makes the two one step."""
    names = {"names": json_text(NAMES)}
    recorded: dict[str, int] = dict(tx.all("clock_readings", names))
    slot = slot_name(tx.now)
    if not is_recorded(tx.now, recorded.get(slot)):
        tx.run("clock_record", {"name": slot, "now": tx.now})
    return ClockReading(now=tx.now, earlier=earlier_of(tx.now, list(recorded.values())))
