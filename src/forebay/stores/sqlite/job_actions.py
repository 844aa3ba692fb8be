"""Actions of operators and programs on jobs: cancel, update, revive and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import WAITING, JobState, is_final
from forebay.domain.job_update import JobUpdate
from forebay.domain.operator_changes import revive_changes, state_changes, update_changes
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.shared.rows import json_text
from forebay.stores.sqlite.concurrency_and_rate_limits import release_slots
from forebay.stores.sqlite.dependency_edges import reopen_edges
from forebay.stores.sqlite.fairness import mark_pending
from forebay.stores.sqlite.job_ends_and_removal import end_waiting, remove_edges, remove_history
from forebay.stores.sqlite.progress import remove_progress
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.transaction import Transaction


class JobRef(TypedDict):
    """Values that identify one job in a statement."""

    seq: int
    job_id: JobId


def find_job(tx: Transaction, job_id: JobId) -> Job | None:
    location = tx.locate(job_id)
    row = None if location is None else tx.one("job", {"seq": location[0], "job_id": job_id})
    return None if row is None else job_from_row(row)


def _missing_result(job_id: JobId) -> ActionResult:
    return ActionResult(job_id=job_id, applied=False, state=None)


def _refusal(job: Job, reason: str) -> ActionResult:
    return ActionResult(job_id=job.id, applied=False, state=job.state, reason=reason)


# Cancel


def cancel(tx: Transaction, job_id: JobId, reason: str, actor: str, *, force: bool) -> ActionResult:
    location = tx.locate(job_id)
    if location is None:
        return _missing_result(job_id)
    seq, state = location
    if is_final(state):
        return ActionResult(job_id=job_id, applied=False, state=state, reason=f"it is already {state}")
    if state is JobState.RUNNING:
        end = _force_cancel if force else _request_cancel
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
    return ActionResult(job_id=job_id, applied=True, state=JobState.CANCELLED)


def _request_cancel(tx: Transaction, job: JobRef, reason: str, actor: str) -> ActionResult:
    for (queue,) in tx.all("cancel_request", {**job, "reason": reason}):
        tx.record(Event(kind=EventKind.CANCEL, job_id=job["job_id"], queue=queue, actor=actor, detail=reason))
        tx.needs_wakeup = True
    return ActionResult(job_id=job["job_id"], applied=True, state=JobState.RUNNING)


def _force_cancel(tx: Transaction, job: JobRef, reason: str, actor: str) -> ActionResult:
    job_id = job["job_id"]
    tx.run("mark_dead_running", {**job, "reason": reason, "now": tx.now})
    queue, unique_key, attempt = tx.all("remove_running", job)[0]
    tx.release_key(queue, unique_key, job_id)
    tx.count_moved(queue, JobState.RUNNING, JobState.DEAD)
    tx.add_to_outbox([job_id], DependencyEvent.DEAD)
    release_slots(tx, [job_id])
    tx.record(
        Event(
            kind=EventKind.FORCE_CANCELLED,
            job_id=job_id,
            queue=queue,
            attempt=attempt,
            actor=actor,
            detail=reason,
            changes=state_changes(JobState.RUNNING, JobState.DEAD),
        )
    )
    tx.needs_wakeup = True
    return ActionResult(job_id=job_id, applied=True, state=JobState.DEAD)


# Update


def update_job(tx: Transaction, job_id: JobId, update: JobUpdate, actor: str) -> ActionResult:
    job = find_job(tx, job_id)
    if job is None:
        return _missing_result(job_id)
    state, name = JobState.PENDING if update.delay_ms == 0 else job.state, update.queue or job.queue
    objection = update.objection_to(job.state) or _move_unique_key(tx, job, name, state)
    if objection:
        return _refusal(job, objection)
    values = _update_params(tx, job, update, state)
    tx.run("update_job", {**values, "old_state": job.state.value})
    tx.count_leaving(job.queue, job.state, name)
    tx.count(name, state, 1)
    if state is JobState.PENDING and (job.queue, job.state) != (name, state):
        mark_pending(tx, name, job.limit_keys.get(FAIRNESS), [job.seq])
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


def _move_unique_key(tx: Transaction, job: Job, name: QueueName, state: JobState) -> str:
    """Return why a job cannot move to another queue. If nothing speaks against it, take its key along and
    return an empty text."""
    if name == job.queue:
        return ""
    target = tx.queue(name) or tx.build_queue(name)
    is_pending = state is JobState.PENDING
    objection = target.objection_to_move(
        (lambda: tx.count_jobs(target.name, JobState.PENDING)) if is_pending else None
    )
    key = job.unique_key
    # A job that was started may have released its key.
    if objection or key is None or tx.find_key_holder(job.queue, "unique", key) != job.id:
        return objection
    holder = tx.find_key_holder(target.name, "unique", key)
    if holder is not None:
        return f"its unique key is held by {holder}"
    tx.release_key(job.queue, key, job.id)
    tx.take_key(target.name, "unique", key, job.id, None)
    return ""


def _update_params(tx: Transaction, job: Job, update: JobUpdate, state: JobState) -> dict[str, Any]:
    name, priority = update.queue or job.queue, job.priority
    is_moved = name != job.queue
    if update.priority is not None or is_moved:
        wanted = priority if update.priority is None else update.priority
        priority = tx.get_or_create_queue(name).priority_of(wanted)
    metadata = None if update.metadata is None else json_text(update.merge_metadata(job.metadata))
    run_at = job.run_at
    if update.delay_ms is not None and job.state is not JobState.PENDING:
        run_at = tx.now + update.delay_ms
    ready_at = run_at if job.attempt == 0 else job.ready_at
    values: dict[str, object] = {
        "rank": job.rank,
        "age_capped": job.age_capped,
        "has_rank": False,
        "rescore_at": None,
    }
    if state is JobState.PENDING and (update.priority is not None or is_moved or state is not job.state):
        queue_rank = tx.compute_rank(name, ready_at, priority, job.failures, job.deadline_at)
        values = {**queue_rank._asdict(), "has_rank": True}
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


def revive_all(tx: Transaction, ids: Sequence[JobId], options: ReviveOptions) -> list[ActionResult]:
    """Check all jobs before reviving the first, so that children know which of their parents will live. A
    job that is named twice is tried again after all others."""
    results: dict[JobId, ActionResult | None] = {}
    revivable: dict[JobId, Job] = {}
    for job_id in dict.fromkeys(ids):
        checked = _check_revivable(tx, job_id, options)
        if isinstance(checked, ActionResult):
            results[job_id] = checked
        else:
            revivable[job_id] = checked
    for job_id, job in revivable.items():
        reopen_edges(tx, job_id, revivable, with_parent=False)
        results[job_id] = _apply_revive(tx, job, options)
    return [results.pop(job_id, None) or revive(tx, job_id, options) for job_id in ids]


def revive(
    tx: Transaction, job_id: JobId, options: ReviveOptions, *, with_parent: bool = False
) -> ActionResult:
    checked = _check_revivable(tx, job_id, options)
    if isinstance(checked, ActionResult):
        return checked
    reopen_edges(tx, job_id, (), with_parent=with_parent)
    return _apply_revive(tx, checked, options)


def _check_revivable(tx: Transaction, job_id: JobId, options: ReviveOptions) -> Job | ActionResult:
    """Return the job with its key taken again, or the result that says why it cannot be revived."""
    options.check()
    job = find_job(tx, job_id)
    if job is None:
        return _missing_result(job_id)
    if job.state not in (JobState.DEAD, JobState.CANCELLED):
        return _refusal(job, f"a {job.state} job cannot be revived")
    if objection := options.reason_to_skip(job):
        return _refusal(job, objection)
    name = options.queue or job.queue
    target = tx.queue(name) or tx.build_queue(name)
    if target.state in (QueueState.DRAINING, QueueState.DROPPED):
        return _refusal(job, f"queue {target.name} is {target.state}")
    if job.unique_key is not None:
        holder = tx.find_key_holder(target.name, "unique", job.unique_key)
        if holder is not None:
            return _refusal(job, f"its unique key is held by {holder}")
        tx.take_key(target.name, "unique", job.unique_key, job.id, None)
    return job


def _apply_revive(tx: Transaction, job: Job, options: ReviveOptions) -> ActionResult:
    name = options.queue or job.queue
    target = tx.queue(name) or tx.build_queue(name)
    state = JobState.SCHEDULED if options.delay_ms else JobState.PENDING
    if job.sequence is not None:
        tx.join_sequence(job.sequence, job.id)
    unmet = 0
    if tx.has_edges():
        (unmet,) = tx.one("edges_unmet", {"child_id": job.id}) or (0,)
        if unmet or tx.one("sequence_is_blocked", {"job_id": job.id}) == (1,):
            state = JobState.BLOCKED
    _insert_live(tx, job, target, options.delay_ms, state, unmet, reset=options.reset)
    tx.add_to_outbox([job.id], DependencyEvent.REVIVE if options.dependants else DependencyEvent.REVIVED)
    changes = revive_changes(job, state, target.name)
    tx.record(
        Event(kind=EventKind.REVIVED, job_id=job.id, queue=target.name, actor=options.actor, changes=changes)
    )
    tx.needs_wakeup = True
    return ActionResult(job_id=job.id, applied=True, state=state)


def _insert_live(
    tx: Transaction, job: Job, target: Queue, delay_ms: int, state: JobState, unmet: int, *, reset: bool
) -> None:
    tx.get_or_create_queue(target.name)
    failures = 0 if reset else job.failures
    due_at = tx.now + delay_ms
    queue_rank = tx.compute_rank(target.name, due_at, job.priority, failures, job.deadline_at)
    values = {
        "seq": job.seq,
        "job_id": job.id,
        "queue": target.name,
        "state": state.value,
        "failures": failures,
        "crashes": 0 if reset else job.crashes,
        "due_at": due_at,
        "rank": queue_rank.rank,
        "age_capped": queue_rank.age_capped and state is JobState.PENDING,
        "rescore_at": queue_rank.rescore_at if state is JobState.PENDING else None,
        "unmet": unmet,
        "now": tx.now,
    }
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"revive_{table}", values)
    tx.all(f"remove_{table}", {"seq": job.seq, "job_id": job.id})
    if state is JobState.PENDING:
        mark_pending(tx, target.name, job.limit_keys.get(FAIRNESS), [job.seq])
    tx.count_leaving(job.queue, job.state, target.name)
    tx.count(target.name, state, 1)


def delete(tx: Transaction, job_id: JobId, actor: str) -> ActionResult:
    location = tx.locate(job_id)
    if location is None:
        return _missing_result(job_id)
    seq, state = location
    if state is JobState.RUNNING:
        return ActionResult(job_id=job_id, applied=False, state=state, reason="it is running")
    queue = _remove(tx, {"seq": seq, "job_id": job_id}, state)
    remove_history(tx, job_id)
    remove_progress(tx, [seq])
    remove_edges(tx, job_id, state)
    tx.count_removed(queue, state)
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
    return ActionResult(job_id=job_id, applied=True, state=None)


def _remove(tx: Transaction, job: JobRef, state: JobState) -> QueueName:
    if state in WAITING:
        queue, _, unique_key = tx.all("remove_waiting", job)[0]
        tx.release_key(queue, unique_key, job["job_id"])
    else:
        table = "dead" if state is JobState.DEAD else "finished"
        (queue,) = tx.all(f"remove_{table}", job)[0]
    return QueueName(queue)
