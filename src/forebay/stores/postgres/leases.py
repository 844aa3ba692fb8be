"""Leases: renew, sweep and status."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forebay.domain.job import Job, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import WAITING
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import LeaseRefusal, LeaseStatus, RenewResult
from forebay.stores.postgres.concurrency_and_rate_limits import record_ended_leases
from forebay.stores.postgres.low_water_marks import LEASES, LowWaterMarks
from forebay.stores.postgres.maintenance import move_queue_to_dead
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.settle import find_refusal
from forebay.stores.postgres.settle_and_claim import pending_cancels
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import queue_from_row


def renew(tx: Transaction, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> RenewResult:
    """Renew leases; report those that are not held any more.

    A locked lease is passed over and counts as renewed: no other transaction can take it over meanwhile. A
    job completed in the transaction of its task is locked until that ends, and must not block the renewal of
    other leases. An expired locked lease does not count: its lock may be that of a sweeper.
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
    """Return those of these leases that exist, locked or not; with a time only unexpired ones."""
    return {Lease(*row) for row in tx.all("leases_present", {**_tokens(worker, leases), "now": now})}


def lease_status(tx: Transaction, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
    """Return whether leases are held, open (locked by another transaction) or over.

    First the available ones are locked, so that no other transaction changes them before this one ends. Of
    the rest a second query finds those that exist; the others are over by now.
    """
    locked = {Lease(*row) for row in tx.all("leases_lock_available", _tokens(worker, leases))}
    present = locked if len(locked) == len(leases) else locked | _find_leases(tx, worker, leases, None)
    record_ended_leases(tx, [lease for lease in leases if lease not in present])
    return [
        LeaseStatus.HELD if lease in locked else LeaseStatus.OPEN if lease in present else LeaseStatus.OVER
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
    """Take over leases that expired or whose worker died, and clear dropped queues of late jobs.

    The sweeper itself never counts as dead, even if it is in `dead`.
    """
    room, queue_rows = limit, tx.run("queues")
    marks = LowWaterMarks(tx, [LEASES])
    for queue in map(queue_from_row, queue_rows.fetchall()):
        # Counted first: nearly always there are none, and the count costs three probes.
        if queue.state is QueueState.DROPPED and room and tx.count_jobs(queue.name, WAITING):
            room -= move_queue_to_dead(tx, queue.name, room)
    until = tx.now if ended_by is None else min(tx.now, ended_by)
    values = {
        "since": marks.since(LEASES, until),
        "now": until,
        "limit": limit,
        "only_dead": only_dead,
        "dead": sorted(set(dead) - {sweeper}),
    }
    expired = tx.all("expired_leases", values)
    swept = _take_over(tx, sweeper, expired, lease_ms) if expired else []
    if len(expired) < limit and not only_dead:
        # A lease is written long before it expires, so none of them is committed late.
        marks.advance(LEASES, until, until, late=1_000)
    marks.save()
    return swept


def _take_over(
    tx: Transaction, sweeper: WorkerId, expired: Sequence[tuple[object, ...]], lease_ms: int
) -> list[Job]:
    ids = [row[0] for row in expired]
    tx.run("sweep", {"ids": ids, "sweeper": sweeper, "now": tx.now, "lease_ms": lease_ms})
    jobs = {row[0]: job_from_row(row) for row in tx.all("swept_jobs", {"ids": ids})}
    for job_id, attempt, worker in expired:
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
