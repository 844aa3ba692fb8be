"""One round trip of a worker: store progress, settle attempts, claim jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import stagger_task_name
from forebay.domain.settlement import Settlement
from forebay.stores.contract.claims_and_results import (
    BATCH,
    MAX_PROMOTED_PER_CALL,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
    remaining_claims,
)
from forebay.stores.shared.limit_counters import LimitBudget
from forebay.stores.sqlite.claim import _claim
from forebay.stores.sqlite.concurrency_and_rate_limits import charge, load_budget, save_budget, unpark_due
from forebay.stores.sqlite.dependency_propagation import propagate
from forebay.stores.sqlite.maintenance import expire, promote_queue
from forebay.stores.sqlite.progress import save_progress
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.settle import settle_all
from forebay.stores.sqlite.transaction import Transaction


def settle_and_claim(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    claims: Sequence[QueueClaim],
    room: int,
    known: Sequence[Lease] | None,
    updates: Sequence[ProgressUpdate],
) -> SettleAndClaimResult:
    """Store progress first, while its jobs still run. Then settle: that frees slots and releases keys, and
    the claim that follows should see both."""
    refused_updates = save_progress(tx, worker, updates) if updates else ()
    settled = settle_all(tx, new_id, worker, settlements)
    budget = load_budget(tx)
    charge(tx, budget, settled.charges)
    jobs = _claim_all(tx, worker, claims, room, budget)
    if propagate(tx) and len(jobs) < room:
        jobs += _claim_all(tx, worker, remaining_claims(claims, jobs), room - len(jobs), budget)
    save_budget(tx, budget, claims, released=len(settled.settled) - len(jobs))
    return SettleAndClaimResult(
        settled=tuple(settled.settled),
        repeated=tuple(settled.repeated),
        refused=tuple(settled.refused),
        jobs=tuple(jobs),
        recovered=() if known is None else tuple(_unknown_leases(tx, worker, known, jobs)),
        cancels=pending_cancels(tx, worker),
        next_due_ms=budget.next_wait(_next_due_ms(tx, claims)),
        refused_updates=refused_updates,
    )


def _claim_all(
    tx: Transaction, worker: WorkerId, claims: Sequence[QueueClaim], room: int, budget: LimitBudget
) -> list[Job]:
    if claims:
        if tx.has_new_jobs:
            tx.count_new()  # follow-ups of this very call may be claimed in it
        expire(tx, BATCH)
    jobs: list[Job] = []
    for claim in claims:
        promote_queue(tx, claim.queue, MAX_PROMOTED_PER_CALL)
        if tx.has_limits:
            # Even for a queue that gives no jobs: a lane that stays due would make every wait 0.
            unpark_due(tx, claim.queue, budget)
        allowed = budget.room(claim.queue, min(claim.limit, room - len(jobs)))
        claimed = _claim(tx, worker, claim, allowed, budget) if allowed > 0 else []
        budget.record_started(claim.queue, len(claimed), allowed)
        jobs += claimed
    return jobs


def _unknown_leases(
    tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]
) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    leased = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in leased if (job.id, job.attempt) not in expected]


def pending_cancels(tx: Transaction, worker: WorkerId) -> tuple[PendingCancel, ...]:
    """Return the running jobs of a worker with a stored request to cancel."""
    return tuple(PendingCancel(*row) for row in tx.all("pending_cancels", {"worker": worker}))


def _next_due_ms(tx: Transaction, claims: Sequence[QueueClaim]) -> int | None:
    due_times = (_next_due_at(tx, claim.queue) for claim in claims)
    return min((max(0, due_at - tx.now) for due_at in due_times if due_at is not None), default=None)


def _next_due_at(tx: Transaction, name: QueueName) -> int | None:
    """Return when the next delayed job of a queue can become pending."""
    row = tx.one("next_due", {"queue": name})
    queue = tx.queue(name)
    if row is None or queue is None or queue.settings.stagger is None:
        return None if row is None else int(row[0])
    (task_due_at,) = tx.one("maintenance_due", {"name": stagger_task_name(name)}) or (0,)
    return max(int(row[0]), int(task_due_at))
