"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from forebay.domain.gate import task_gate
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, JobId, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue, QueueState
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
    claim = Claim(tx, worker, want, queue)
    jobs: list[Job] = []
    for (gate,) in tx.all("gates", {"queue": want.queue}):
        if want.passes(gate):
            jobs += claim.taken(most - len(jobs), gate)
    jobs += claim.taken_in_order(most - len(jobs))
    for job in jobs:
        if job.unique_until is UniqueUntil.STARTED:
            tx.free_key(job.queue, job.unique_key, job.id)
    tx.move(want.queue, JobState.PENDING, JobState.RUNNING, len(jobs))
    return jobs


class Claim:
    """What is taken of one queue for one want."""

    def __init__(self, tx: Transaction, worker: WorkerId, want: Want, queue: Queue) -> None:
        self._tx = tx
        self._worker = worker
        self._want = want
        self._cap_ms = tx.scoring(want.queue).cap_ms
        self._values = {
            "queue": want.queue,
            "worker": worker,
            "now": tx.now,
            "cap_ms": self._cap_ms,
            "lease_ms": want.lease_ms,
            "queue_lease_ms": queue.settings.lease_ms,
        }

    def taken(self, most: int, gate: str | None = None) -> list[Job]:
        """Up to this many jobs from the head of the queue's order, or of what waits behind a gate."""
        tx, worker, cap_ms = self._tx, self._worker, self._cap_ms
        rows = tx.all("claim", {**self._values, "room": most, "gate": gate})
        jobs = [claimed_job(row, worker, tx.now) for row in rows]
        jobs.sort(key=lambda job: (job.rank - (cap_ms if job.capped else tx.now), job.seq))
        return jobs

    def taken_in_order(self, most: int) -> list[Job]:
        """Up to this many jobs that are for this worker. Others that stand before them go behind the gates
        of their tasks, and the claim is made again without them."""
        left = self._want.most_held
        while True:
            jobs, others = self._tried(most)
            if not others:
                return jobs
            if not left:
                # Enough for now: what stands before the next of them, and no more.
                return self.taken(jobs.index(others[0]))
            aside = others[:left]
            left -= len(aside)
            self._hold(aside)

    def _tried(self, most: int) -> tuple[list[Job], list[Job]]:
        """Jobs from the head, and which of them are not for this worker; if there are such, none is taken."""
        tx, want = self._tx, self._want
        if want.gates is None:
            return self.taken(most), []
        tx.run("mark", {})
        jobs = self.taken(most)
        others = [job for job in jobs if not want.passes(task_gate(job.task))]
        if others:
            tx.run("unmark", {})
        tx.run("forget_mark", {})
        return jobs, others

    def _hold(self, jobs: list[Job]) -> None:
        tx = self._tx
        for job in jobs:
            gate = task_gate(job.task)
            tx.run("hold", {"seq": job.seq, "gate": gate, "now": tx.now})
            tx.record(
                Event(kind=EventKind.HELD, job_id=job.id, queue=job.queue, actor=self._worker, detail=gate)
            )
        tx.has_news = True  # whoever may pass these gates should look


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
