"""Actions of operators and programs on jobs: cancel, update, revive and delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.operator_changes import revive_changes, state_changes, update_changes
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.memory.concurrency_and_rate_limits import release_slots
from forebay.stores.memory.dependency_edges import reopen_edges
from forebay.stores.memory.insert import copy_metadata, get_or_create_queue
from forebay.stores.memory.sequential_jobs import join
from forebay.stores.memory.state import State


def cancel(
    state: State, ids: Sequence[JobId], reason: str, actor: str, *, force: bool, dependants: bool
) -> list[ActionResult]:
    if dependants:
        # Before the outbox entries of their ends, which would release some dependants, or end them in
        # another way.
        for job_id in ids:
            state.add_to_outbox(job_id, DependencyEvent.CANCEL)
    return [_cancel_one(state, job_id, reason, actor, force) for job_id in ids]


def update_job(state: State, job_id: JobId, update: JobUpdate, actor: str) -> ActionResult:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing_result(job_id)
    objection = update.objection_to(record.job.state)
    if objection:
        return _refusal(record.job, objection)
    job = _apply_update(state, record.job, update)
    is_moved = job.queue != record.job.queue
    if is_moved:
        objection = _objection_to_move(state, record.job, job)
        if objection:
            return _refusal(record.job, objection)
    job = replace(job, priority=_priority_of(state, job, update, is_moved))
    if is_moved:
        _move_to_queue(state, record.job, job.queue)
    if job.state is JobState.PENDING and (is_moved or job.state is not record.job.state):
        state.put_due(job)
    elif job.state is JobState.PENDING and update.priority is not None:
        state.put_pending(job)
    else:
        state.put(record._replace(job=job))
    changes = update_changes(record.job, job.state, job.queue, job.priority, job.run_at)
    state.record_job_event(
        EventKind.UPDATED, job, actor=actor, detail=",".join(update.changed_fields), changes=changes
    )
    return _success(job_id, job.state)


def revive(state: State, ids: Sequence[JobId], options: ReviveOptions) -> list[ActionResult]:
    options.check()
    # All are checked before the first is revived, so that children know which of their parents will live.
    results = {job_id: _check_revivable(state, job_id, options) for job_id in dict.fromkeys(ids)}
    revivable = dict.fromkeys(job_id for job_id, refusal in results.items() if refusal is None)
    for job_id in revivable:
        reopen_edges(state, job_id, revivable, with_parent=False)
        results[job_id] = _apply_revive(state, job_id, options)
    # A job that is named twice is tried again after all others.
    return [results.pop(job_id, None) or revive_one(state, job_id, options) for job_id in ids]


def delete(state: State, ids: Sequence[JobId], actor: str) -> list[ActionResult]:
    return [_delete_one(state, job_id, actor) for job_id in ids]


def _success(job_id: JobId, state: JobState | None) -> ActionResult:
    return ActionResult(job_id=job_id, applied=True, state=state)


def _missing_result(job_id: JobId) -> ActionResult:
    return ActionResult(job_id=job_id, applied=False, state=None)


def _refusal(job: Job, reason: str) -> ActionResult:
    return ActionResult(job_id=job.id, applied=False, state=job.state, reason=reason)


def _cancel_one(state: State, job_id: JobId, reason: str, actor: str, force: bool) -> ActionResult:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing_result(job_id)
    job = record.job
    if job.is_final:
        return _refusal(job, f"it is already {job.state}")
    record_event = partial(state.record_job_event, job=job, actor=actor, detail=reason)
    if job.state is not JobState.RUNNING:
        state.put_final(job, JobState.CANCELLED, reason)
        record_event(EventKind.CANCEL, changes=state_changes(job.state, JobState.CANCELLED))
    elif force:
        # Without its worker, so that the old holder's settlement is refused and not taken for a repeated one.
        state.put_final(replace(job, worker=None), JobState.DEAD, reason)
        release_slots(state, job)
        changes = state_changes(job.state, JobState.DEAD)
        record_event(EventKind.FORCE_CANCELLED, attempt=job.attempt, changes=changes)
    elif job.cancel_reason is None:
        state.put(record._replace(job=replace(job, cancel_reason=reason)))
        record_event(EventKind.CANCEL)
    state.needs_wakeup = True
    return _success(job_id, state.jobs[job_id].job.state)


def _apply_update(state: State, job: Job, update: JobUpdate) -> Job:
    job = replace(job, updated_at=state.now, queue=update.queue or job.queue)
    if update.delay_ms is not None and job.state is not JobState.PENDING:
        due_at = state.now + update.delay_ms
        new_state = job.state if update.delay_ms else JobState.PENDING
        job = replace(job, state=new_state, run_at=due_at, ready_at=job.ready_at if job.attempt else due_at)
    if update.metadata is not None:
        job = replace(job, metadata=copy_metadata(update.merge_metadata(job.metadata)))
    return job


def _objection_to_move(state: State, job: Job, moved: Job) -> str:
    target = state.queue_or_default(moved.queue)
    is_pending = moved.state is JobState.PENDING
    objection = target.objection_to_move(
        partial(state.count, target.name, JobState.PENDING) if is_pending else None
    )
    key = _find_held_key(state, job)
    holder = None if key is None else state.unique_keys.get((target.name, key))
    return objection or ("" if holder is None else f"its unique key is held by {holder}")


def _find_held_key(state: State, job: Job) -> str | None:
    """Return the unique key of a job, unless it was released when the job was started."""
    key = job.unique_key
    return key if key is not None and state.unique_keys.get((job.queue, key)) == job.id else None


def _priority_of(state: State, job: Job, update: JobUpdate, is_moved: bool) -> int:
    if update.priority is None and not is_moved:
        return job.priority
    wanted = job.priority if update.priority is None else update.priority
    return state.queue_or_default(job.queue).priority_of(wanted)


def _move_to_queue(state: State, job: Job, target: QueueName) -> None:
    get_or_create_queue(state, target)
    state.count_removed(job.queue)  # in the other one it counts as new
    key = _find_held_key(state, job)
    if key is not None:
        state.release_unique_key(job)
        state.write(state.unique_keys, (target, key), job.id)


def revive_one(
    state: State, job_id: JobId, options: ReviveOptions, *, with_parent: bool = False
) -> ActionResult:
    refusal = _check_revivable(state, job_id, options)
    if refusal is not None:
        return refusal
    reopen_edges(state, job_id, (), with_parent=with_parent)
    return _apply_revive(state, job_id, options)


def _check_revivable(state: State, job_id: JobId, options: ReviveOptions) -> ActionResult | None:
    """Return why a job cannot be revived, or None after its unique key is taken again."""
    record = state.jobs.get(job_id)
    if record is None:
        return _missing_result(job_id)
    target = options.queue or record.job.queue
    refusal = _revive_objection(state, record.job, target, options)
    if refusal is not None:
        return _refusal(record.job, refusal)
    if record.job.unique_key is not None:
        state.write(state.unique_keys, (target, record.job.unique_key), job_id)
    return None


def _apply_revive(state: State, job_id: JobId, options: ReviveOptions) -> ActionResult:
    ended = state.jobs[job_id].job
    target = options.queue or ended.queue
    get_or_create_queue(state, target)
    if target != ended.queue:
        state.count_removed(ended.queue)  # in the other one it counts as new
    job = _build_revived(state, ended, target, options.delay_ms, options.reset)
    join(state, job)
    state.put_new(job)
    state.add_to_outbox(job_id, DependencyEvent.REVIVE if options.dependants else DependencyEvent.REVIVED)
    new_state = state.jobs[job_id].job.state
    state.record_job_event(
        EventKind.REVIVED, job, actor=options.actor, changes=revive_changes(ended, new_state, target)
    )
    return _success(job_id, new_state)


def _revive_objection(state: State, job: Job, target: QueueName, options: ReviveOptions) -> str | None:
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return f"a {job.state} job cannot be revived"
    if objection := options.reason_to_skip(job):
        return objection
    queue = state.queues.get(target)
    if queue is not None and queue.state in (QueueState.DRAINING, QueueState.DROPPED):
        return f"queue {target} is {queue.state}"
    holder = None if job.unique_key is None else state.unique_keys.get((target, job.unique_key))
    return None if holder is None else f"its unique key is held by {holder}"


def _build_revived(state: State, job: Job, target: QueueName, delay_ms: int, reset: bool) -> Job:
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


def _delete_one(state: State, job_id: JobId, actor: str) -> ActionResult:
    record = state.jobs.get(job_id)
    if record is None:
        return _missing_result(job_id)
    job = record.job
    if job.state is JobState.RUNNING:
        return _refusal(job, "it is running")
    state.remove(job)
    changes = state_changes(job.state, None)
    state.record_job_event(EventKind.DELETED, job, actor=actor, detail=str(job.state), changes=changes)
    return _success(job_id, None)
