"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from msgspec.structs import replace

from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement, TokenCharge
from forebay.stores.contract.values import (
    BATCH,
    MAX_PROMOTED_PER_CALL,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.postgres.claim import QueueClaimer
from forebay.stores.postgres.claim_cursor import HEAD, LATE_MS
from forebay.stores.postgres.fairness import join_fairness_keys
from forebay.stores.postgres.limits import load_budget, release_slots, save_budget, unpark_due
from forebay.stores.postgres.maintenance import end_expired, promote_rows
from forebay.stores.postgres.progress import save_progress
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.settle import settle_all
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.limits import LimitBudget
from forebay.stores.shared.rows import Row


def settle_and_claim(
    tx: Transaction,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    queue_claims: Sequence[QueueClaim],
    room: int,
    known: Sequence[Lease] | None,
    updates: Sequence[ProgressUpdate],
) -> SettleAndClaimResult:
    """Notes first, while their jobs still run; then settle: what has ended frees slots and keys, and the
    claim that follows should see both.

    This is the long way, for whatever may come. It mostly takes two round trips: one for all that is looked
    at, and one for the claim with the commit.
    """
    unnoted = save_progress(tx, worker, updates) if updates else ()
    ended = settle_all(tx, worker, settlements)
    cancels = tx.run("pending_cancels", {"worker": worker})
    claims = ClaimRound(tx, worker, queue_claims, room)
    ended.collect()
    if not queue_claims and not tx.has_limits:
        # A handle that claims nothing, such as that of a duty, meets no limits elsewhere.
        tx.load_queues(ended.queues)
    release_slots(tx, ended.settled)
    jobs = claims.claim_all(ended.charges)
    save_budget(tx, claims.budget, queue_claims, jobs, settled=len(ended.settled))
    return SettleAndClaimResult(
        settled=tuple(ended.settled),
        repeated=tuple(ended.repeated),
        refused=tuple(ended.refused),
        jobs=tuple(jobs),
        recovered=() if known is None else tuple(_unknown_leases(tx, worker, known, jobs)),
        cancels=tuple(sorted(PendingCancel(*row) for row in cancels)),
        next_due_ms=claims.budget.next_wait(claims.next_due_ms()),
        refused_updates=unnoted,
    )


def with_more_jobs(done: SettleAndClaimResult, more: SettleAndClaimResult) -> SettleAndClaimResult:
    """An exchange after which more was claimed."""
    return replace(done, jobs=done.jobs + more.jobs, next_due_ms=more.next_due_ms)


class ClaimRound:
    """The wants of one exchange. What is due and what the first want is for are asked at once, as if nothing
    were due; what turns out otherwise is asked again. Other wants wait for what the first one leaves."""

    def __init__(self, tx: Transaction, worker: WorkerId, claims: Sequence[QueueClaim], room: int) -> None:
        self._tx = tx
        self._worker = worker
        self._queue_claims = claims
        self._room = room
        self.budget: LimitBudget = LimitBudget((), 0)
        if not claims:
            return
        self._expired = tx.run("expired", {"limit": BATCH})
        names = sorted({want.queue for want in claims})
        self._queues = tx.run("queues_named", {"names": names})
        self._since = {name: tx.cursors.due_from(name) for name in names}
        self._due = {name: self._query_due(name, since) for name, since in self._since.items()}
        self._claimers = [QueueClaimer(tx, worker, want) for want in claims]
        self._claimers[0].prefetch(min(claims[0].limit, room))
        self._next_due = self._query_next_due(list(self._since.values()))

    def _query_next_due(self, since: list[int]) -> psycopg.Cursor[Row]:
        return self._tx.run("next_due", {"queues": list(self._since), "since": since})

    def _query_due(self, name: str, since: int) -> psycopg.Cursor[Row]:
        return self._tx.run(
            "delayed_take_due", {"queue": name, "since": since, "limit": MAX_PROMOTED_PER_CALL}
        )

    def claim_all(self, charges: Sequence[TokenCharge]) -> list[Job]:
        """What is claimed, want by want, after attempts that have ended were charged for."""
        tx = self._tx
        if not self._queue_claims:
            self.budget = load_budget(tx, (), charges)
            return []
        # Nothing can have come in between: these were asked in one go, in the order in which they matter.
        self._is_expiring = end_expired(tx, self._expired.fetchall()) == BATCH
        tx.remember_queues(sorted({want.queue for want in self._queue_claims}), self._queues.fetchall())
        if sum(self._promote_due(name) for name in self._due):
            self._claimers[0].drop_prefetched()
        queues = [want.queue for want in self._queue_claims]
        self.budget = load_budget(tx, queues, charges)
        if self._queue_claims[0].queue in unpark_due(tx, queues, self.budget):
            self._claimers[0].drop_prefetched()
        join_fairness_keys(tx, queues)
        jobs: list[Job] = []
        for want, claim in zip(self._queue_claims, self._claimers, strict=True):
            most = self.budget.room(want.queue, min(want.limit, self._room - len(jobs)))
            taken = claim.claim(most, self.budget)
            self.budget.record_started(want.queue, len(taken), most)
            jobs += taken
        return jobs

    def _promote_due(self, name: QueueName) -> int:
        """How many jobs of a queue have come due. What is due later than now is due later than now for the
        next look too, but for those who are long in committing, and where the clock was set back."""
        tx = self._tx
        rows = self._due[name].fetchall()
        if self._is_set_back:
            rows += self._query_due(name, HEAD.rank).fetchall()
        queue = tx.queue(name)
        is_staggered = queue is not None and queue.settings.stagger is not None
        if len(rows) < MAX_PROMOTED_PER_CALL and not self._is_expiring and not is_staggered:
            tx.due_from[name] = tx.now - LATE_MS
        return promote_rows(tx, rows)

    @property
    def _is_set_back(self) -> bool:
        return self._tx.now < max(self._since.values())

    def next_due_ms(self) -> int | None:
        if not self._queue_claims:
            return None
        asked = self._query_next_due([HEAD.rank] * len(self._since)) if self._is_set_back else self._next_due
        row = asked.fetchone()
        return None if row is None or row[0] is None else max(0, row[0] - self._tx.now)


def _unknown_leases(
    tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]
) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def pending_cancels(tx: Transaction, worker: WorkerId) -> tuple[PendingCancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(sorted(PendingCancel(*row) for row in tx.all("pending_cancels", {"worker": worker})))
