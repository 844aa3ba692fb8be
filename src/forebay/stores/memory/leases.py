"""Leases: renew them, and take over those that ended or whose worker is dead."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from msgspec.structs import replace

from forebay.domain.job import Job, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.lease import Lease
from forebay.stores.contract.claims_and_results import LeaseRefusal, LeaseStatus, PendingCancel, RenewResult
from forebay.stores.memory.insert import copy_for_caller
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.settle import _refusal
from forebay.stores.memory.state import State


def renew(state: State, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> RenewResult:
    answers = [(lease, _renew_one(state, worker, lease, lease_ms)) for lease in leases]
    return RenewResult(
        renewed=tuple(lease for lease, reason in answers if reason is None),
        refused=tuple(
            LeaseRefusal(lease=lease, reason=reason) for lease, reason in answers if reason is not None
        ),
        cancels=_pending_cancels(state, worker),
    )


def lease_status(state: State, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
    reasons = [_refusal(state.jobs.get(lease.job_id), lease.attempt, worker) for lease in leases]
    return [LeaseStatus.OVER if reason else LeaseStatus.HELD for reason in reasons]


def sweep(
    state: State,
    sweeper: WorkerId,
    limit: int,
    lease_ms: int,
    *,
    only_dead: bool,
    dead: Collection[WorkerId],
    ended_by: int | None = None,
) -> list[Job]:
    last = state.now if ended_by is None else min(state.now, ended_by)
    running = [record for jobs in state.leases.values() for record in jobs.values()]
    expired = [record for record in running if _lease_end(record.job) <= last and not only_dead]
    # Workers live in the process of the store, so none is dead but those that the caller names.
    of_dead_workers = [
        record for record in running if record.job.worker in dead and record.job.worker != sweeper
    ]
    swept = {
        record.job.id: record
        for record in [*sorted(expired, key=_lease_end_key), *sorted(of_dead_workers, key=_lease_end_key)]
    }
    return [_take_over(state, record, sweeper, lease_ms) for record in islice(swept.values(), limit)]


def _lease_ms(state: State, job: Job, requested_ms: int | None) -> int:
    return requested_ms or job.lease_ms or state.queues[job.queue].settings.lease_ms


def _renew_one(state: State, worker: WorkerId, lease: Lease, lease_ms: int | None) -> str | None:
    record = state.jobs.get(lease.job_id)
    reason = _refusal(record, lease.attempt, worker)
    if record is None or reason is not None:
        return reason
    job = record.job
    limit = (job.started_at or 0) + job.extension_ms
    if state.now >= limit:
        return "extension over"
    end = min(state.now + _lease_ms(state, job, lease_ms), limit)
    state.put(record._replace(job=replace(job, lease_expires_at=max(_lease_end(job), end))))
    return None


def _take_over(state: State, record: StoredJob, sweeper: WorkerId, lease_ms: int) -> Job:
    old = record.job
    job = replace(old, worker=sweeper, lease_expires_at=state.now + lease_ms, updated_at=state.now)
    state.put(record._replace(job=job, swept_from=record.swept_from or old.worker))
    state.record_job_event(EventKind.SWEPT, job, actor=sweeper, attempt=job.attempt, detail=old.worker or "")
    return copy_for_caller(job)


def _lease_end(job: Job) -> int:
    return job.lease_expires_at or 0


def _lease_end_key(record: StoredJob) -> tuple[int, int]:
    return _lease_end(record.job), record.job.seq


def _lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def _jobs_of_worker(state: State, worker: WorkerId) -> list[Job]:
    leases = state.leases.get(worker, {})
    return [leases[job_id].job for job_id in sorted(leases)]


def _pending_cancels(state: State, worker: WorkerId) -> tuple[PendingCancel, ...]:
    return tuple(
        PendingCancel(job.id, job.cancel_reason)
        for job in _jobs_of_worker(state, worker)
        if job.cancel_reason is not None
    )
