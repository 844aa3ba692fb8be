"""Settlements: write the outcome of an attempt."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, PastError, WorkerId
from forebay.domain.job_history import MAX_STORED_ERRORS, Attempt, EventKind, truncate_error
from forebay.domain.job_states import JobState, check_transition, is_final
from forebay.domain.lane import park_detail
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError
from forebay.domain.settlement import OutcomeKind, Settlement, is_ready_early, is_same_end
from forebay.stores.contract.claims_and_results import LeaseRefusal
from forebay.stores.memory import concurrency_and_rate_limits as limits_module
from forebay.stores.memory.insert import insert_follow_up
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.state import State
from forebay.stores.memory.text_check import check_writable

SettleReply = Literal["settled", "repeated"] | LeaseRefusal


def _settle(state: State, worker: WorkerId, settlement: Settlement) -> SettleReply:
    record = state.jobs.get(settlement.job_id)
    reason = _refusal(record, settlement.attempt, worker)
    if record is not None and reason is None:
        _end_lease(state, record, worker, settlement)
        stored: list[JobId | None] = []
        limits_module.release_slots(state, record.job)
        for new in settlement.follow_ups:
            stored.append(insert_follow_up(state, record.job, worker, new, stored))
        return "settled"
    if record is not None and _is_repeated(state, record.job, settlement, worker):
        return "repeated"
    if record is not None:
        detail = f"{settlement.outcome}: {reason}"
        state.record_job_event(
            EventKind.REFUSED, record.job, actor=worker, attempt=settlement.attempt, detail=detail
        )
    return LeaseRefusal(lease=Lease(settlement.job_id, settlement.attempt), reason=reason or "")


def _refusal(record: StoredJob | None, attempt: int, worker: WorkerId) -> str | None:
    if record is None:
        return "gone"
    if record.job.attempt != attempt:
        return "other attempt"
    if record.job.state is not JobState.RUNNING:
        return "other state"
    return None if record.job.worker == worker else "other worker"


def _is_repeated(state: State, job: Job, settlement: Settlement, worker: WorkerId) -> bool:
    """Return whether this worker has already settled this very attempt in the same way."""
    attempt, failed_attempts = settlement.attempt, state.attempts.get(job.id, ())
    # The worker that settled it, not the one that ran it: a holder whose lease was swept has settled nothing.
    rows = [
        failed.outcome
        for failed, settled_by in failed_attempts
        if (failed.attempt, settled_by) == (attempt, worker)
    ]
    is_newest = (job.attempt, job.worker) == (attempt, worker) and job.state is not JobState.RUNNING
    is_early = is_ready_early(settlement, job.run_at, job.started_at, job.updated_at)
    return is_same_end(
        settlement.outcome, next(iter(rows), None), job.state if is_newest else None, is_early=is_early
    )


def _end_lease(state: State, record: StoredJob, worker: WorkerId, settlement: Settlement) -> None:
    check_transition(record.job.state, settlement.state)
    if settlement.error is not None:
        record = _record_error(state, record, worker, settlement.outcome, truncate_error(settlement.error))
    unstarted = settlement.unstarted or record.job.unstarted
    job = replace(record.job, failures=settlement.failures, crashes=settlement.crashes, unstarted=unstarted)
    if is_final(settlement.state):
        reason = (
            "cancelled"
            if settlement.state is JobState.CANCELLED and settlement.reason is None
            else settlement.reason
        )
        state.put_final(job, settlement.state, reason, settlement.result)
    elif job.cancel_reason is not None:
        state.put_final(job, JobState.CANCELLED, job.cancel_reason)
    else:
        _return_to_queue(state, job, settlement)


def _return_to_queue(state: State, job: Job, settlement: Settlement) -> None:
    delay = 0 if settlement.state is JobState.PENDING else settlement.delay_ms
    job = replace(
        job,
        state=settlement.state,
        run_at=state.now + delay,
        lane=settlement.lane,
        lease_expires_at=None,
        updated_at=state.now,
    )
    if settlement.lane is not None:
        detail = park_detail(settlement.lane, settlement.reason)
        state.record_job_event(EventKind.PARKED, job, actor=job.worker, attempt=job.attempt, detail=detail)
    if settlement.state is JobState.PENDING:
        state.put_pending(job)
    else:
        state.put(StoredJob(job))


def _record_error(
    state: State, record: StoredJob, worker: WorkerId, outcome: OutcomeKind, error: AttemptError
) -> StoredJob:
    job = record.job
    check_writable(error.type, error.message, error.traceback)
    failed_attempt = Attempt(
        job_id=job.id,
        attempt=job.attempt,
        outcome=outcome,
        worker=record.swept_from or worker,
        started_at=job.started_at,
        ended_at=state.now,
        error=error,
    )
    state.write(state.attempts, job.id, (*state.attempts.get(job.id, ()), (failed_attempt, worker)))
    past = PastError(
        attempt=job.attempt,
        at=state.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    return record._replace(job=replace(job, errors=(*job.errors, past)[-MAX_STORED_ERRORS:]))
