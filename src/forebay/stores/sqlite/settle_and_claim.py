"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import stagger_task_name
from forebay.domain.settlement import Settlement
from forebay.stores.contract.values import (
    BATCH,
    MAX_PROMOTED_PER_CALL,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
    remaining_claims,
)
from forebay.stores.shared.limits import LimitBudget
from forebay.stores.sqlite.claim import _claim
from forebay.stores.sqlite.dependencies import propagate
from forebay.stores.sqlite.limits import (
    charge,
    load_budget,
    save_budget,
    unpark_due,
)
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
    """Notes first, while their jobs still run; then settle: what has ended frees slots and keys, and the
    claim that follows should see both."""
    unnoted = save_progress(tx, worker, updates) if updates else ()
    ended = settle_all(tx, new_id, worker, settlements)
    limits = load_budget(tx)
    charge(tx, limits, ended.charges)
    jobs = _claim_all(tx, worker, claims, room, limits)
    if propagate(tx) and len(jobs) < room:
        jobs += _claim_all(tx, worker, remaining_claims(claims, jobs), room - len(jobs), limits)
    save_budget(tx, limits, claims, released=len(ended.settled) - len(jobs))
    return SettleAndClaimResult(
        settled=tuple(ended.settled),
        repeated=tuple(ended.repeated),
        refused=tuple(ended.refused),
        jobs=tuple(jobs),
        recovered=() if known is None else tuple(_unknown_leases(tx, worker, known, jobs)),
        cancels=pending_cancels(tx, worker),
        next_due_ms=limits.next_wait(_next_due_ms(tx, claims)),
        refused_updates=unnoted,
    )


def _claim_all(
    tx: Transaction, worker: WorkerId, claims: Sequence[QueueClaim], room: int, budget: LimitBudget
) -> list[Job]:
    if claims:
        if tx.has_new_jobs:
            tx.count_new()  # follow-ups of this very exchange may be claimed in it
        expire(tx, BATCH)
    jobs: list[Job] = []
    for want in claims:
        promote_queue(tx, want.queue, MAX_PROMOTED_PER_CALL)
        if tx.has_limits:
            # Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
            unpark_due(tx, want.queue, budget)
        most = budget.room(want.queue, min(want.limit, room - len(jobs)))
        taken = _claim(tx, worker, want, most, budget) if most > 0 else []
        budget.record_started(want.queue, len(taken), most)
        jobs += taken
    return jobs


def _unknown_leases(
    tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]
) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def pending_cancels(tx: Transaction, worker: WorkerId) -> tuple[PendingCancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(PendingCancel(*row) for row in tx.all("pending_cancels", {"worker": worker}))


def _next_due_ms(tx: Transaction, claims: Sequence[QueueClaim]) -> int | None:
    dues = (_next_due_at(tx, want.queue) for want in claims)
    return min((max(0, due - tx.now) for due in dues if due is not None), default=None)


def _next_due_at(tx: Transaction, name: QueueName) -> int | None:
    """When the next job of a queue can become pending."""
    row = tx.one("next_due", {"queue": name})
    queue = tx.queue(name)
    if row is None or queue is None or queue.settings.stagger is None:
        return None if row is None else int(row[0])
    (turn,) = tx.one("maintenance_due", {"name": stagger_task_name(name)}) or (0,)
    return max(int(row[0]), int(turn))
