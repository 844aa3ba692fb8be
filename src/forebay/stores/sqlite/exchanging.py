"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from forebay.domain.job import Job, JobId, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import QueueState
from forebay.domain.settlement import Settlement
from forebay.stores.protocol import BATCH, PROMOTED_PER_EXCHANGE, Cancel, Exchange, Want
from forebay.stores.sqlite.duties import expire, promote_queue
from forebay.stores.sqlite.rows import (
    claimed_job,
    job_from_row,
)
from forebay.stores.sqlite.settling import settle_all
from forebay.stores.sqlite.transaction import Transaction

_GIVING: Final = (QueueState.ACTIVE, QueueState.DRAINING)


def exchange(
    tx: Transaction,
    new_id: Callable[[], JobId] | None,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
) -> Exchange:
    """Settle first: what has ended frees slots and keys, and the claim that follows should see both."""
    ended = settle_all(tx, new_id, worker, settlements)
    jobs = _claim_all(tx, worker, wants, room)
    return Exchange(
        settled=tuple(ended.settled),
        repeated=tuple(ended.repeated),
        refused=tuple(ended.refused),
        jobs=tuple(jobs),
        adopted=() if known is None else tuple(_adopted(tx, worker, known, jobs)),
        cancels=cancels_for(tx, worker),
        next_due_ms=_next_due_ms(tx, wants),
    )


def _claim_all(tx: Transaction, worker: WorkerId, wants: Sequence[Want], room: int) -> list[Job]:
    if wants:
        if tx.has_new_jobs:
            tx.count_new()  # follow-ups of this very exchange may be claimed in it
        expire(tx, BATCH)
    jobs: list[Job] = []
    for want in wants:
        promote_queue(tx, want.queue, PROMOTED_PER_EXCHANGE)
        most = min(want.most, room - len(jobs))
        if most > 0:
            jobs += _claim(tx, worker, want, most)
    return jobs


def _claim(tx: Transaction, worker: WorkerId, want: Want, most: int) -> list[Job]:
    queue = tx.queue(want.queue)
    if queue is None or queue.state not in _GIVING:
        return []
    cap_ms = tx.scoring(want.queue).cap_ms
    values = {
        "queue": want.queue,
        "room": most,
        "worker": worker,
        "now": tx.now,
        "cap_ms": cap_ms,
        "lease_ms": want.lease_ms,
        "queue_lease_ms": queue.settings.lease_ms,
    }
    jobs = [claimed_job(row, worker, tx.now) for row in tx.all("claim", values)]
    jobs.sort(key=lambda job: (job.rank - (cap_ms if job.capped else tx.now), job.seq))
    for job in jobs:
        if job.unique_until is UniqueUntil.STARTED:
            tx.free_key(job.queue, job.unique_key, job.id)
    tx.move(want.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
    return jobs


def _adopted(tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def cancels_for(tx: Transaction, worker: WorkerId) -> tuple[Cancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(Cancel(*row) for row in tx.all("cancels", {"worker": worker}))


def _next_due_ms(tx: Transaction, wants: Sequence[Want]) -> int | None:
    dues = (tx.one("next_due", {"queue": want.queue}) for want in wants)
    return min((max(0, row[0] - tx.now) for row in dues if row is not None), default=None)
