"""What operators and programs ask for: jobs cancelled, amended, revived, deleted; queues saved, dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.changes import amendment_changes, queue_changes, revival_changes, state_changes
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import Amendment, Job, JobId, QueueName, check_queue_name
from forebay.domain.lifecycle import LIVE, WAITING, JobState
from forebay.domain.queue import Queue, QueueState
from forebay.domain.workflow import Aftermath
from forebay.errors import QueueNotEmpty, QueueNotFound
from forebay.stores.memory.duties import bury
from forebay.stores.memory.edges import reopen
from forebay.stores.memory.inserting import fresh, open_queue
from forebay.stores.memory.limiting import free
from forebay.stores.memory.sequences import join
from forebay.stores.memory.state import State
from forebay.stores.protocol import Verdict
from forebay.stores.reviving import Revival


def cancel(
    state: State, ids: Sequence[JobId], reason: str, actor: str, *, force: bool, dependants: bool
) -> list[Verdict]:
    if dependants:
        # Before the lines of their ends, by which some dependants would be released, or die.
        for job_id in ids:
            state.list_aftermath(job_id, Aftermath.CANCEL)
    return [_cancel_one(state, job_id, reason, actor, force) for job_id in ids]


def amend(state: State, job_id: JobId, change: Amendment, actor: str) -> Verdict:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing(job_id)
    objection = change.objection_of(record.job.state)
    if objection:
        return _refused(record.job, objection)
    job = _amended(state, record.job, change)
    is_moved = job.queue != record.job.queue
    if is_moved:
        objection = _objection_to_move(state, record.job, job)
        if objection:
            return _refused(record.job, objection)
    job = replace(job, priority=_priority_of(state, job, change, is_moved))
    if is_moved:
        _leave_queue(state, record.job, job.queue)
    if job.state is JobState.PENDING and (is_moved or job.state is not record.job.state):
        state.put_due(job)
    elif job.state is JobState.PENDING and change.priority is not None:
        state.put_pending(job)
    else:
        state.put(record._replace(job=job))
    changes = amendment_changes(record.job, job.state, job.queue, job.priority, job.run_at)
    state.tell(EventKind.AMENDED, job, actor=actor, detail=",".join(change.changed), changes=changes)
    return _done(job_id, job.state)


def revive(state: State, ids: Sequence[JobId], how: Revival) -> list[Verdict]:
    how.check()
    # All are judged before the first is put back, so that children know which of their parents will live.
    verdicts = {job_id: _refusal(state, job_id, how) for job_id in dict.fromkeys(ids)}
    together = dict.fromkeys(job_id for job_id, refusal in verdicts.items() if refusal is None)
    for job_id in together:
        reopen(state, job_id, together, with_parent=False)
        verdicts[job_id] = _put_back(state, job_id, how)
    # What is named twice has its second turn after all others.
    return [verdicts.pop(job_id, None) or revive_one(state, job_id, how) for job_id in ids]


def delete(state: State, ids: Sequence[JobId], actor: str) -> list[Verdict]:
    return [_delete_one(state, job_id, actor) for job_id in ids]


def save_queue(
    state: State,
    name: QueueName,
    changes: Mapping[str, object] | None,
    into: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    old = open_queue(state, name)
    back = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
    queue = old.configured(old.settings.changed(changes or {}), into or back, state.now)
    if queue.rank_version != old.rank_version:
        state.write(state.reordered_to, name, None)
    if not state.count(name, *LIVE):
        queue = replace(queue, reordering=False)
    detail = "settings" if into is None else str(queue.state)
    _write_queue(state, queue, actor, detail, queue_changes(old, queue))
    return queue


def drop_queue(state: State, name: QueueName, force: bool, limit: int, actor: str) -> int:
    queue = state.queues.get(name)
    if queue is None:
        raise QueueNotFound(f"there is no queue {name}")
    live = state.count(name, *LIVE)
    if live and not force:
        raise QueueNotEmpty(f"queue {name} has {live} live jobs; empty it first, or drop it by force")
    if queue.state is not QueueState.DROPPED:
        dropped = queue.configured(queue.settings, QueueState.DROPPED, state.now)
        _write_queue(state, dropped, actor, "dropped", queue_changes(queue, dropped))
    bury(state, name, limit)
    return state.count(name, *WAITING)


def _write_queue(state: State, queue: Queue, actor: str, detail: str, changes: Changes) -> None:
    state.write(state.queues, queue.name, queue)
    event = Event(kind=EventKind.QUEUE, queue=queue.name, actor=actor, detail=detail, changes=changes)
    state.record(event)
    state.has_news = True


def _done(job_id: JobId, state: JobState | None) -> Verdict:
    return Verdict(job_id=job_id, done=True, state=state)


def _missing(job_id: JobId) -> Verdict:
    return Verdict(job_id=job_id, done=False, state=None)


def _refused(job: Job, reason: str) -> Verdict:
    return Verdict(job_id=job.id, done=False, state=job.state, reason=reason)


def _cancel_one(state: State, job_id: JobId, reason: str, actor: str, force: bool) -> Verdict:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing(job_id)
    job = record.job
    if job.is_final:
        return _refused(job, f"it is already {job.state}")
    tell = partial(state.tell, job=job, actor=actor, detail=reason)
    if job.state is not JobState.RUNNING:
        state.put_final(job, JobState.CANCELLED, reason)
        tell(EventKind.CANCEL, changes=state_changes(job.state, JobState.CANCELLED))
    elif force:
        # Without a worker, so that the old holder's settlement is refused and not taken for a repeated one.
        state.put_final(replace(job, worker=None), JobState.DEAD, reason)
        free(state, job)
        changes = state_changes(job.state, JobState.DEAD)
        tell(EventKind.FORCED, attempt=job.attempt, changes=changes)
    elif job.cancel_reason is None:
        state.put(record._replace(job=replace(job, cancel_reason=reason)))
        tell(EventKind.CANCEL)
    state.has_news = True
    return _done(job_id, state.jobs[job_id].job.state)


def _amended(state: State, job: Job, change: Amendment) -> Job:
    job = replace(job, updated_at=state.now, queue=change.queue or job.queue)
    if change.delay_ms is not None and job.state is not JobState.PENDING:
        due_at = state.now + change.delay_ms
        into = job.state if change.delay_ms else JobState.PENDING
        job = replace(job, state=into, run_at=due_at, ready_at=job.ready_at if job.attempt else due_at)
    if change.metadata is not None:
        job = replace(job, metadata=fresh(change.merged_into(job.metadata)))
    return job


def _objection_to_move(state: State, job: Job, moved: Job) -> str:
    target = state.queue_or_fresh(moved.queue)
    is_pending = moved.state is JobState.PENDING
    objection = target.objection_to_move(
        partial(state.count, target.name, JobState.PENDING) if is_pending else None
    )
    key = _key_held(state, job)
    holder = None if key is None else state.unique.get((target.name, key))
    return objection or ("" if holder is None else f"its unique key is held by {holder}")


def _key_held(state: State, job: Job) -> str | None:
    """The unique key of a job, unless it has freed it when it was started."""
    key = job.unique_key
    return key if key is not None and state.unique.get((job.queue, key)) == job.id else None


def _priority_of(state: State, job: Job, change: Amendment, is_moved: bool) -> int:
    if change.priority is None and not is_moved:
        return job.priority
    wanted = job.priority if change.priority is None else change.priority
    return state.queue_or_fresh(job.queue).priority_of(wanted)


def _leave_queue(state: State, job: Job, target: QueueName) -> None:
    open_queue(state, target)
    state.count_removed(job.queue)  # in the other one it counts as one that came
    key = _key_held(state, job)
    if key is not None:
        state.free_unique(job)
        state.write(state.unique, (target, key), job.id)


def revive_one(state: State, job_id: JobId, how: Revival, *, with_parent: bool = False) -> Verdict:
    refusal = _refusal(state, job_id, how)
    if refusal is not None:
        return refusal
    reopen(state, job_id, (), with_parent=with_parent)
    return _put_back(state, job_id, how)


def _refusal(state: State, job_id: JobId, how: Revival) -> Verdict | None:
    """Why a job stays where it is; if nothing speaks against it, it has its key again."""
    record = state.jobs.get(job_id)
    if record is None:
        return _missing(job_id)
    target = how.queue or record.job.queue
    refusal = _not_revivable(state, record.job, target, how)
    if refusal is not None:
        return _refused(record.job, refusal)
    if record.job.unique_key is not None:
        state.write(state.unique, (target, record.job.unique_key), job_id)
    return None


def _put_back(state: State, job_id: JobId, how: Revival) -> Verdict:
    ended = state.jobs[job_id].job
    target = how.queue or ended.queue
    open_queue(state, target)
    if target != ended.queue:
        state.count_removed(ended.queue)  # in the other one it counts as one that came
    job = _revived(state, ended, target, how.delay_ms, how.reset)
    join(state, job)
    state.put_new(job)
    state.list_aftermath(job_id, Aftermath.REVIVE if how.dependants else Aftermath.REVIVED)
    into = state.jobs[job_id].job.state
    state.tell(EventKind.REVIVED, job, actor=how.actor, changes=revival_changes(ended, into, target))
    return _done(job_id, into)


def _not_revivable(state: State, job: Job, target: QueueName, how: Revival) -> str | None:
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return f"a {job.state} job cannot be revived"
    if objection := how.objection_to(job):
        return objection
    queue = state.queues.get(target)
    if queue is not None and queue.state in (QueueState.DRAINING, QueueState.DROPPED):
        return f"queue {target} is {queue.state}"
    holder = None if job.unique_key is None else state.unique.get((target, job.unique_key))
    return None if holder is None else f"its unique key is held by {holder}"


def _revived(state: State, job: Job, target: QueueName, delay_ms: int, reset: bool) -> Job:
    has_expired = job.expires_at is not None and job.expires_at <= state.now
    return replace(
        job,
        queue=target,
        failures=0 if reset else job.failures,
        crashes=0 if reset else job.crashes,
        updated_at=state.now,
        ready_at=state.now + delay_ms,
        run_at=state.now + delay_ms,
        worker=None,
        started_at=None,
        expires_at=None if has_expired else job.expires_at,
        cancel_reason=None,
        finished_at=None,
        reason=None,
        result=None,
    )


def _delete_one(state: State, job_id: JobId, actor: str) -> Verdict:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing(job_id)
    job = record.job
    if job.state is JobState.RUNNING:
        return _refused(job, "it is running")
    state.remove(job)
    changes = state_changes(job.state, None)
    state.tell(EventKind.DELETED, job, actor=actor, detail=str(job.state), changes=changes)
    return _done(job_id, None)
