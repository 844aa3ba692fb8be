"""Actions of operators and programs on jobs: cancel, update, revive and delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import FAIRNESS, lane_for_keys
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import WAITING, JobState, is_final
from forebay.domain.job_update import JobUpdate
from forebay.domain.operator_changes import revive_changes, state_changes, update_changes
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.dependency_edges import reopen_edges
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.insert import busy_key_reason
from forebay.stores.postgres.job_ends_and_removal import end_waiting, remove_history
from forebay.stores.postgres.row_locks import busy_result, lock_jobs, row_key
from forebay.stores.postgres.rows import options_text_with
from forebay.stores.postgres.sequential_jobs import rejoin
from forebay.stores.postgres.transaction import JobKey, Transaction


class BusyReason(str):
    """Reason against an action that holds until another transaction ends."""


def _refusal(job: Job, reason: str) -> ActionResult:
    is_busy = isinstance(reason, BusyReason)
    return ActionResult(job_id=job.id, applied=False, state=job.state, reason=str(reason), is_busy=is_busy)


# Cancel


def cancel(
    tx: Transaction, jobs: Sequence[Job], reason: str, actor: str, *, force: bool
) -> list[ActionResult]:
    """Cancel jobs: first all waiting ones at once, then each in order, so that events are in order."""
    waiting = [job for job in jobs if job.state in WAITING]
    for job in waiting:
        tx.run("waiting_remove", row_key(job))
    end_waiting(tx, [(job.id, job.state) for job in waiting], JobState.CANCELLED, reason)
    return [_cancel_one(tx, job, reason, actor, force=force) for job in jobs]


def _cancel_one(tx: Transaction, job: Job, reason: str, actor: str, *, force: bool) -> ActionResult:
    if is_final(job.state):
        return _refusal(job, f"it is already {job.state}")
    if job.state is JobState.RUNNING:
        return (_force_cancel if force else _request_cancel)(tx, job, reason, actor)
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
    return ActionResult(job_id=job.id, applied=True, state=JobState.CANCELLED)


def _request_cancel(tx: Transaction, job: Job, reason: str, actor: str) -> ActionResult:
    if job.cancel_reason is None:
        tx.run("cancel_request", {"job_id": job.id, "reason": reason})
        tx.record(Event(kind=EventKind.CANCEL, job_id=job.id, queue=job.queue, actor=actor, detail=reason))
        tx.needs_wakeup = True
    return ActionResult(job_id=job.id, applied=True, state=JobState.RUNNING)


def _force_cancel(tx: Transaction, job: Job, reason: str, actor: str) -> ActionResult:
    [(queue, unique_key, attempt, outbox_ids)] = tx.all(
        "mark_dead_running", {"job_id": job.id, "reason": reason, "now": tx.now}
    )
    tx.outbox_ids += outbox_ids or ()
    tx.release_keys([(job.id, queue, unique_key)])
    tx.count_moved(queue, JobState.RUNNING, JobState.DEAD)
    # Even if this handle has seen no limits: that of an operator mostly has not.
    tx.run("limit_slots_release", {"ids": [job.id]})
    tx.needs_wakeup = True  # a job may wait for its slot
    tx.record(
        Event(
            kind=EventKind.FORCE_CANCELLED,
            job_id=job.id,
            queue=queue,
            attempt=attempt,
            actor=actor,
            detail=reason,
            changes=state_changes(JobState.RUNNING, JobState.DEAD),
        )
    )
    return ActionResult(job_id=job.id, applied=True, state=JobState.DEAD)


# Update


def update_job(tx: Transaction, job_id: JobId, update: JobUpdate, actor: str) -> ActionResult:
    if update.queue is not None:
        _lock_target(tx, update.queue)
    locked, busy = lock_jobs(tx, [job_id])
    if job_id in busy:
        return busy_result(busy[job_id])
    job = locked.get(job_id)
    if job is None:
        return ActionResult(job_id=job_id, applied=False, state=None)
    state, name = JobState.PENDING if update.delay_ms == 0 else job.state, update.queue or job.queue
    objection = update.objection_to(job.state) or _move_unique_key(tx, job, name, state)
    if objection:
        return _refusal(job, objection)
    values = _update_params(tx, job, update, state)
    _rewrite(tx, job, values)
    if state is JobState.PENDING and (job.queue, job.state) != (name, state):
        mark_pending(tx, [(name, job.limit_keys.get(FAIRNESS))])
    tx.count_leaving(job.queue, job.state, name)
    tx.count(name, state, 1)
    tx.needs_wakeup = True
    tx.record(
        Event(
            kind=EventKind.UPDATED,
            job_id=job_id,
            queue=name,
            actor=actor,
            detail=",".join(update.changed_fields),
            changes=update_changes(job, state, name, values["priority"], values["run_at"]),
        )
    )
    return ActionResult(job_id=job_id, applied=True, state=state)


def _rewrite(tx: Transaction, job: Job, values: Mapping[str, object]) -> None:
    if job.state is JobState.RUNNING:
        tx.run("update_running", values)
    elif job.state is JobState.BLOCKED:
        tx.run("update_blocked", values)
    else:
        tx.run("waiting_remove", row_key(job))
        tx.run("update_job", values)


def _lock_target(tx: Transaction, name: QueueName) -> None:
    """Lock a queue with a maximum length, so that two transactions do not take its last place.

    It comes before the lock of the job, as in an insert, which may wait for a parent while it holds the
    queue.
    """
    queue = tx.queue(name)
    if queue is not None and queue.settings.max_length is not None:
        tx.lock_queue(name)


def _move_unique_key(tx: Transaction, job: Job, name: QueueName, state: JobState) -> str:
    """Move the unique key of a job to another queue; return an objection if the job cannot move."""
    if name == job.queue:
        return ""
    target = tx.queue(name) or tx.build_queue(name)
    is_pending = state is JobState.PENDING
    objection = target.objection_to_move(
        (lambda: tx.count_jobs(target.name, [JobState.PENDING])) if is_pending else None
    )
    if objection or job.unique_key is None:
        return objection
    here, there = (JobKey(name, "unique", job.unique_key) for name in (job.queue, target.name))
    holders = tx.find_key_holders([here, there])
    if holders.get(here) != job.id:  # it has started, and released its key
        return ""
    if there in holders:
        return f"its unique key is held by {holders[there]}"
    if there in tx.busy_keys:
        return BusyReason(busy_key_reason(there))
    tx.release_keys([(job.id, job.queue, job.unique_key)])
    if not tx.take_keys([(there, job.id, None)]):
        raise RetryTransaction
    return ""


def _update_params(tx: Transaction, job: Job, update: JobUpdate, state: JobState) -> dict[str, Any]:
    name, priority = update.queue or job.queue, job.priority
    is_moved = name != job.queue
    if update.priority is not None or is_moved:
        wanted = priority if update.priority is None else update.priority
        priority = tx.get_or_create_queue(name).priority_of(wanted)
    row = tx.one("options", {"id": job.id})
    options = None if row is None else row[0]
    if update.metadata is not None:
        options = options_text_with(options, update.merge_metadata(job.metadata))
    run_at = job.run_at
    if update.delay_ms is not None and job.state is not JobState.PENDING:
        run_at = tx.now + update.delay_ms
    ready_at = run_at if job.attempt == 0 else job.ready_at
    rank_params: dict[str, object] = {
        "rank": job.rank,
        "age_capped": job.age_capped,
        "has_rank": False,
        "rescore_at": None,
    }
    if state is JobState.PENDING and (update.priority is not None or is_moved or state is not job.state):
        queue_rank = tx.compute_rank(name, ready_at, priority, job.failures, job.deadline_at)
        rank_params = {**queue_rank._asdict(), "has_rank": True}
    return {
        "id": job.id,
        "state": state.value,
        "queue": name,
        "lane": job.lane if state is job.state and not is_moved else lane_for_keys(job.limit_keys),
        "priority": priority,
        "options": options,
        "run_at": run_at,
        "ready_at": ready_at,
        "now": tx.now,
        **rank_params,
    }


# Revive, delete


def revive(
    tx: Transaction, jobs: Sequence[Job], revive_options: ReviveOptions, *, with_parent: bool = False
) -> list[ActionResult]:
    """Revive jobs: check each in order, since one may take the key of another; then insert all."""
    revive_options.check()
    objections = [_check_revivable(tx, job, revive_options) for job in jobs]
    revived = [job for job, objection in zip(jobs, objections, strict=True) if not objection]
    waiting_in_sequence = rejoin(tx, revived)
    unmet = reopen_edges(tx, [job.id for job in revived], with_parent=with_parent)
    unmet.update(waiting_in_sequence)
    states = {job.id: _state_after_revive(unmet[job.id], revive_options.delay_ms) for job in revived}
    for job, (options, errors) in zip(revived, _remove_final(tx, revived), strict=True):
        target, state = tx.get_or_create_queue(revive_options.queue or job.queue), states[job.id]
        params = _revive_params(tx, job, target, revive_options.delay_ms, state, reset=revive_options.reset)
        tx.run("revive", {**params, "options": options, "errors": errors, "unmet": unmet[job.id]})
        if state is JobState.PENDING:
            mark_pending(tx, [(target.name, job.limit_keys.get(FAIRNESS))])
        tx.count_leaving(job.queue, job.state, target.name)
        tx.count(target.name, state, 1)
        tx.record(
            Event(
                kind=EventKind.REVIVED,
                job_id=job.id,
                queue=target.name,
                actor=revive_options.actor,
                changes=revive_changes(job, state, target.name),
            )
        )
        tx.needs_wakeup = True
    tx.add_to_outbox_if_affected(
        list(states), DependencyEvent.REVIVE if revive_options.dependants else DependencyEvent.REVIVED
    )
    return [
        _refusal(job, objection)
        if objection
        else ActionResult(job_id=job.id, applied=True, state=states[job.id])
        for job, objection in zip(jobs, objections, strict=True)
    ]


def _state_after_revive(unmet: int, delay_ms: int) -> JobState:
    if unmet:
        return JobState.BLOCKED
    return JobState.SCHEDULED if delay_ms else JobState.PENDING


def _check_revivable(tx: Transaction, job: Job, revive_options: ReviveOptions) -> str:
    """Give a job its unique key again; return an objection if it cannot be revived."""
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return f"a {job.state} job cannot be revived"
    if objection := revive_options.reason_to_skip(job):
        return objection
    name = revive_options.queue or job.queue
    target = tx.queue(name) or tx.build_queue(name)
    if target.state in (QueueState.DRAINING, QueueState.DROPPED):
        return f"queue {target.name} is {target.state}"
    if job.unique_key is not None:
        key = JobKey(target.name, "unique", job.unique_key)
        holder = tx.find_key_holders([key]).get(key)
        if holder is not None:
            return f"its unique key is held by {holder}"
        if key in tx.busy_keys:
            return BusyReason(busy_key_reason(key))
        if not tx.take_keys([(key, job.id, None)]):
            raise RetryTransaction
    return ""


def _remove_final(tx: Transaction, jobs: Sequence[Job]) -> list[tuple[str | None, str | None]]:
    """Remove final jobs; return their stored options and errors."""
    results = [
        tx.run("remove_dead" if job.state is JobState.DEAD else "remove_finished", {"id": job.id})
        for job in jobs
    ]
    removed = []
    for job, result in zip(jobs, results, strict=True):
        row = result.fetchone()
        # A final job is read without a lock. Another transaction may have revived, deleted or pruned it
        # since, and it may even have ended once more. Then the attempt would be set back, and the next run
        # would have the fencing token of an earlier one.
        if row is None or row[:2] != (job.finished_at, job.attempt):
            raise RetryTransaction
        removed.append(row[2:])
    return removed


def _revive_params(
    tx: Transaction, job: Job, target: Queue, delay_ms: int, state: JobState, *, reset: bool
) -> dict[str, object]:
    failures = 0 if reset else job.failures
    due_at = tx.now + delay_ms
    queue_rank = tx.compute_rank(target.name, due_at, job.priority, failures, job.deadline_at)
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
        "rank": queue_rank.rank,
        "age_capped": queue_rank.age_capped and state is JobState.PENDING,
        "rescore_at": queue_rank.rescore_at if state is JobState.PENDING else None,
        "deadline_at": job.deadline_at,
        "expires_at": job.expires_at if job.expires_at is not None and job.expires_at > tx.now else None,
        "unique_key": job.unique_key,
        "payload": job.payload,
        "state": state.value,
        "lane": lane_for_keys(job.limit_keys),
        "now": tx.now,
    }


def delete(tx: Transaction, jobs: Sequence[Job], actor: str) -> list[ActionResult]:
    deleted = [job for job in jobs if job.state is not JobState.RUNNING]
    waiting = [job for job in deleted if job.state in WAITING]
    for job in waiting:
        tx.run("waiting_remove", row_key(job))
        tx.run("remove_live", {"id": job.id})
    tx.release_keys((job.id, job.queue, job.unique_key) for job in waiting)
    _remove_final(tx, [job for job in deleted if is_final(job.state)])
    remove_history(tx, [job.id for job in deleted])
    tx.add_to_outbox_if_affected(
        [job.id for job in deleted if job.state is not JobState.COMPLETED], DependencyEvent.DELETED
    )
    for job in deleted:
        tx.count_removed(job.queue, job.state)
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
        _refusal(job, "it is running")
        if job.state is JobState.RUNNING
        else ActionResult(job_id=job.id, applied=True, state=None)
        for job in jobs
    ]
