"""Leases: renew them, and take over those that ended or whose worker died."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forebay.domain.job import DAY_MS, Job, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import WAITING
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import LeaseRefusal, LeaseStatus, RenewResult
from forebay.stores.shared.rows import Row, json_text
from forebay.stores.sqlite.maintenance import load_all_queues, move_queue_to_dead
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.settle import LeaseParams, find_refusal, lease_params, relocate
from forebay.stores.sqlite.settle_and_claim import pending_cancels
from forebay.stores.sqlite.transaction import Transaction


def renew(tx: Transaction, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> RenewResult:
    """Extend leases, and report those that are not held any more."""
    renewed: list[Lease] = []
    refused: list[LeaseRefusal] = []
    for lease in leases:
        token = lease_params(worker, lease.job_id, lease.attempt)
        if _renew(tx, token, lease_ms) or (relocate(tx, token) and _renew(tx, token, lease_ms)):
            renewed.append(lease)
        else:
            reason = find_refusal(tx, token) or "extension over"
            refused.append(LeaseRefusal(lease=lease, reason=reason))
    return RenewResult(renewed=tuple(renewed), refused=tuple(refused), cancels=pending_cancels(tx, worker))


def _renew(tx: Transaction, token: LeaseParams, lease_ms: int | None) -> bool:
    values = {**token, "lease_ms": lease_ms, "extension_ms": DAY_MS, "now": tx.now}
    return tx.run("renew", values).rowcount == 1


def lease_status(tx: Transaction, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
    """Return the status of these leases. The write lock is held, so no transaction of a caller is open:
    each has committed, or was rolled back."""
    tokens = [lease_params(worker, lease.job_id, lease.attempt) for lease in leases]
    return [LeaseStatus.OVER if find_refusal(tx, token) else LeaseStatus.HELD for token in tokens]


def sweep(
    tx: Transaction,
    sweeper: WorkerId,
    dead: Collection[WorkerId],
    limit: int,
    lease_ms: int,
    *,
    only_dead: bool,
    ended_by: int | None = None,
) -> list[Job]:
    """Take over leases that ended or whose worker died, and empty dropped queues of late jobs.

    The sweeper itself is never taken for dead.
    """
    dead = set(dead) - {sweeper}
    left = limit
    for queue in load_all_queues(tx):
        # Counted first: the query for these jobs scans all live jobs.
        if queue.state is QueueState.DROPPED and left and tx.count_jobs(queue.name, *WAITING):
            left -= move_queue_to_dead(tx, queue.name, left)
    last = tx.now if ended_by is None else min(tx.now, ended_by)
    expired = [] if only_dead else tx.all("expired_leases", {"now": last, "limit": limit})
    if dead:
        expired += tx.all("leases_of_dead_workers", {"dead": json_text(sorted(dead)), "limit": limit})
    # A lease may be on both lists.
    rows = list(dict.fromkeys(expired))[:limit]
    swept = (_take_over(tx, sweeper, row, lease_ms) for row in rows)
    return [job for job in swept if job is not None]


def _take_over(tx: Transaction, sweeper: WorkerId, row: Row, lease_ms: int) -> Job | None:
    seq, attempt, worker = row
    values = {
        "seq": seq,
        "attempt": attempt,
        "worker": worker,
        "sweeper": sweeper,
        "now": tx.now,
        "lease_ms": lease_ms,
    }
    rows = tx.all("sweep", values)
    if not rows:
        return None
    job = job_from_row(rows[0])
    tx.record(
        Event(
            kind=EventKind.SWEPT,
            job_id=job.id,
            queue=job.queue,
            attempt=attempt,
            actor=sweeper,
            detail=worker,
        )
    )
    return job
