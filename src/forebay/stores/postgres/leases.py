"""Keeping leases, and taking over those of the dead."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import WAITING
from forebay.domain.queue import QueueState
from forebay.stores.contract.values import LeaseRefusal, LeaseStatus, RenewResult
from forebay.stores.postgres.limits import record_ended_leases
from forebay.stores.postgres.low_water_marks import LEASES, LowWaterMarks
from forebay.stores.postgres.maintenance import move_queue_to_dead
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.settle import find_refusal
from forebay.stores.postgres.settle_and_claim import pending_cancels
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import queue_from_row


def renew(tx: Transaction, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> RenewResult:
    """Push lease ends away; what is no longer held is reported.

    A lease that somebody has locked is passed over and counts as renewed: nobody can take it over meanwhile.
    A job that is completed in its task's own transaction is locked until that ends, and must not hold up the
    renewal of all others. Not so one that has ended: who has it in hand may well be a sweeper.
    """
    renewed = _renew_leases(tx, worker, leases, lease_ms) if leases else set()
    if len(renewed) < len(leases):
        renewed |= _find_leases(tx, worker, leases, tx.now)
    refused = [
        LeaseRefusal(lease=lease, reason=find_refusal(tx, worker, lease) or "extension over")
        for lease in leases
        if lease not in renewed
    ]
    return RenewResult(
        renewed=tuple(lease for lease in leases if lease in renewed),
        refused=tuple(refused),
        cancels=pending_cancels(tx, worker),
    )


def _renew_leases(
    tx: Transaction, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None
) -> set[Lease]:
    values = {**_tokens(worker, leases), "lease_ms": lease_ms, "now": tx.now}
    return {Lease(*row) for row in tx.all("renew", values)}


def _find_leases(tx: Transaction, worker: WorkerId, leases: Sequence[Lease], now: int | None) -> set[Lease]:
    """The leases among these that are there, locked or not; with a time those that are not over then."""
    return {Lease(*row) for row in tx.all("leases_present", {**_tokens(worker, leases), "now": now})}


def lease_status(tx: Transaction, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
    """First those that can be locked: nobody's transaction has a hand on them, and none gets one before ours
    ends. What is there besides is locked, and what is gone by the second look is over by now."""
    held = {Lease(*row) for row in tx.all("leases_lock_available", _tokens(worker, leases))}
    there = held if len(held) == len(leases) else held | _find_leases(tx, worker, leases, None)
    record_ended_leases(tx, [lease for lease in leases if lease not in there])
    return [
        LeaseStatus.HELD if lease in held else LeaseStatus.OPEN if lease in there else LeaseStatus.OVER
        for lease in leases
    ]


def _tokens(worker: WorkerId, leases: Sequence[Lease]) -> dict[str, object]:
    return {
        "ids": sorted({lease.job_id for lease in leases}),
        "tokens": [f"{lease.job_id}:{lease.attempt}" for lease in leases],
        "worker": worker,
    }


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
    """Take over leases that ended or whose worker died, and clear dropped queues of what came late.

    The sweeper itself is not dead, whoever says so.
    """
    left, found = limit, tx.run("queues")
    floors = LowWaterMarks(tx, [LEASES])
    for queue in map(queue_from_row, found.fetchall()):
        # Counted first: nearly always there is nothing, and the look costs three probes.
        if queue.state is QueueState.DROPPED and left and tx.count_jobs(queue.name, WAITING):
            left -= move_queue_to_dead(tx, queue.name, left)
    last = tx.now if ended_by is None else min(tx.now, ended_by)
    values = {
        "since": floors.since(LEASES, last),
        "now": last,
        "limit": limit,
        "only_dead": only_dead,
        "dead": sorted(set(dead) - {sweeper}),
    }
    overdue = tx.all("expired_leases", values)
    swept = _take_over(tx, sweeper, overdue, lease_ms) if overdue else []
    if len(overdue) < limit and not only_dead:
        # A lease is written long before it ends, so none of them comes late.
        floors.advance(LEASES, last, last, late=1_000)
    floors.save()
    return swept


def _take_over(
    tx: Transaction, sweeper: WorkerId, overdue: Sequence[tuple[object, ...]], lease_ms: int
) -> list[Job]:
    ids = [row[0] for row in overdue]
    tx.run("sweep", {"ids": ids, "sweeper": sweeper, "now": tx.now, "lease_ms": lease_ms})
    jobs = {row[0]: job_from_row(row) for row in tx.all("swept_jobs", {"ids": ids})}
    for job_id, attempt, worker in overdue:
        tx.record(
            Event(
                kind=EventKind.SWEPT,
                job_id=jobs[job_id].id,
                queue=jobs[job_id].queue,
                attempt=attempt,  # type: ignore[arg-type]  # a row knows no types
                actor=sweeper,
                detail=str(worker),
            )
        )
    return [jobs[job_id] for job_id in ids]
