"""One round trip of a worker: store progress, settle attempts, claim jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import JobProgress, ProgressUpdate, normalize_update
from forebay.domain.queue import stagger_task_name
from forebay.domain.settlement import Settlement
from forebay.stores.contract.claims_and_results import (
    LeaseRefusal,
    QueueClaim,
    SettleAndClaimResult,
    remaining_claims,
)
from forebay.stores.memory import concurrency_and_rate_limits as limits_module
from forebay.stores.memory.claim import _claim_all
from forebay.stores.memory.dependency_propagation import propagate
from forebay.stores.memory.insert import copy_for_caller
from forebay.stores.memory.leases import _jobs_of_worker, _lease, _pending_cancels
from forebay.stores.memory.settle import _refusal, _settle
from forebay.stores.memory.state import State
from forebay.stores.memory.text_check import check_writable


def settle_and_claim(
    state: State,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    claims: Sequence[QueueClaim],
    room: int,
    known: Sequence[Lease] | None,
    updates: Sequence[ProgressUpdate],
) -> SettleAndClaimResult:
    # Progress comes first: a job that is settled in the same call is still running for it.
    refused_updates = tuple(_save_updates(state, worker, updates))
    replies = [(settlement, _settle(state, worker, settlement)) for settlement in settlements]
    settled = [settlement for settlement, reply in replies if reply == "settled"]
    budget = limits_module.load_budget(state)
    for settlement in settled:
        if settlement.charge is not None:
            budget.charge(settlement.charge.scopes, settlement.charge.tokens)
    jobs = _claim_all(state, worker, claims, room, budget)
    if propagate(state) and len(jobs) < room:
        jobs += _claim_all(state, worker, remaining_claims(claims, jobs), room - len(jobs), budget)
    released = Counter(state.jobs[settlement.job_id].job.queue for settlement in settled)
    released.subtract(job.queue for job in jobs)
    limits_module.save_budget(state, budget, claims, released=released)
    limits_module.record_waits(state, budget, claims)
    return SettleAndClaimResult(
        settled=tuple(settlement.job_id for settlement in settled),
        repeated=tuple(settlement.job_id for settlement, reply in replies if reply == "repeated"),
        refused=tuple(reply for _, reply in replies if isinstance(reply, LeaseRefusal)),
        jobs=tuple(map(copy_for_caller, jobs)),
        recovered=() if known is None else _unknown_leases(state, worker, {*known, *map(_lease, jobs)}),
        cancels=_pending_cancels(state, worker),
        next_due_ms=budget.next_wait(_next_due_ms(state, claims)),
        refused_updates=refused_updates,
    )


def _save_updates(
    state: State, worker: WorkerId, updates: Sequence[ProgressUpdate]
) -> Iterator[LeaseRefusal]:
    for update in updates:
        job_id, attempt = update.lease
        reason = _refusal(state.jobs.get(job_id), attempt, worker)
        if reason is None:
            _save_progress(state, job_id, normalize_update(update, state.now))
        else:
            yield LeaseRefusal(lease=update.lease, reason=reason)


def _save_progress(state: State, job_id: JobId, update: JobProgress) -> None:
    check_writable(*(step.name for step in update.steps))
    state.write(state.progress, job_id, state.progress.get(job_id, JobProgress()).merge(update))


def _unknown_leases(state: State, worker: WorkerId, known: set[Lease]) -> tuple[Job, ...]:
    return tuple(copy_for_caller(job) for job in _jobs_of_worker(state, worker) if _lease(job) not in known)


def _next_due_ms(state: State, claims: Sequence[QueueClaim]) -> int | None:
    next_delayed = [(claim.queue, state.delayed_heap(claim.queue).first()) for claim in claims]
    times = [
        max(record.job.run_at, state.maintenance.get(stagger_task_name(queue), 0))
        for queue, record in next_delayed
        if record is not None
    ]
    return max(0, min(times) - state.now) if times else None
