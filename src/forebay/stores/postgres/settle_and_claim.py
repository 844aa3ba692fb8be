"""Settle and claim in one call: the slow path."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from msgspec.structs import replace

from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement, TokenCharge
from forebay.stores.contract.claims_and_results import (
    BATCH,
    MAX_PROMOTED_PER_CALL,
    PendingCancel,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.postgres.claim import QueueClaimer
from forebay.stores.postgres.claim_cursor import HEAD, LATE_MS
from forebay.stores.postgres.concurrency_and_rate_limits import (
    load_budget,
    release_slots,
    save_budget,
    unpark_due,
)
from forebay.stores.postgres.fairness import join_fairness_keys
from forebay.stores.postgres.maintenance import end_expired, promote_rows
from forebay.stores.postgres.progress import save_progress
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.settle import settle_all
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.limit_counters import LimitBudget
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
    """Save progress while its jobs still run, settle, and claim.

    A settlement releases slots and keys, and the claim that follows sees both. This is the slow path, for any
    combination. It mostly takes two round trips: one for all queries, and one for the claim with the commit.
    """
    refused_updates = save_progress(tx, worker, updates) if updates else ()
    batch = settle_all(tx, worker, settlements)
    cancels = tx.run("pending_cancels", {"worker": worker})
    claim_round = ClaimRound(tx, worker, queue_claims, room)
    batch.collect()
    if not queue_claims and not tx.has_limits:
        # A handle that claims nothing, such as that of a maintenance task, loads no limits elsewhere.
        tx.load_queues(batch.queues)
    release_slots(tx, batch.settled)
    jobs = claim_round.claim_all(batch.charges)
    save_budget(tx, claim_round.budget, queue_claims, jobs, settled=len(batch.settled))
    return SettleAndClaimResult(
        settled=tuple(batch.settled),
        repeated=tuple(batch.repeated),
        refused=tuple(batch.refused),
        jobs=tuple(jobs),
        recovered=() if known is None else tuple(_unknown_leases(tx, worker, known, jobs)),
        cancels=tuple(sorted(PendingCancel(*row) for row in cancels)),
        next_due_ms=claim_round.budget.next_wait(claim_round.next_due_ms()),
        refused_updates=refused_updates,
    )


def with_more_jobs(done: SettleAndClaimResult, more: SettleAndClaimResult) -> SettleAndClaimResult:
    """Return the result with the jobs of a second claim."""
    return replace(done, jobs=done.jobs + more.jobs, next_due_ms=more.next_due_ms)


class ClaimRound:
    """Queue claims of one call.

    Due jobs and the first candidates are queried together, as if nothing were due; if jobs are due, the
    candidates are queried again. Further claims use the room that the first one leaves.
    """

    def __init__(self, tx: Transaction, worker: WorkerId, claims: Sequence[QueueClaim], room: int) -> None:
        self._tx = tx
        self._worker = worker
        self._queue_claims = claims
        self._room = room
        self.budget: LimitBudget = LimitBudget((), 0)
        if not claims:
            return
        self._expired = tx.run("expired", {"limit": BATCH})
        names = sorted({claim.queue for claim in claims})
        self._queues = tx.run("queues_named", {"names": names})
        self._since = {name: tx.cursors.due_from(name) for name in names}
        self._due = {name: self._query_due(name, since) for name, since in self._since.items()}
        self._claimers = [QueueClaimer(tx, worker, claim) for claim in claims]
        self._claimers[0].prefetch(min(claims[0].limit, room))
        self._next_due = self._query_next_due(list(self._since.values()))

    def _query_next_due(self, since: list[int]) -> psycopg.Cursor[Row]:
        return self._tx.run("next_due", {"queues": list(self._since), "since": since})

    def _query_due(self, name: str, since: int) -> psycopg.Cursor[Row]:
        return self._tx.run(
            "delayed_take_due", {"queue": name, "since": since, "limit": MAX_PROMOTED_PER_CALL}
        )

    def claim_all(self, charges: Sequence[TokenCharge]) -> list[Job]:
        """Run the queue claims one after the other, after the token charges of ended attempts."""
        tx = self._tx
        if not self._queue_claims:
            self.budget = load_budget(tx, (), charges)
            return []
        # These results are of one pipeline, in the order in which they matter.
        self._is_expiring = end_expired(tx, self._expired.fetchall()) == BATCH
        tx.remember_queues(sorted({claim.queue for claim in self._queue_claims}), self._queues.fetchall())
        if sum(self._promote_due(name) for name in self._due):
            self._claimers[0].drop_prefetched()
        queues = [claim.queue for claim in self._queue_claims]
        self.budget = load_budget(tx, queues, charges)
        if self._queue_claims[0].queue in unpark_due(tx, queues, self.budget):
            self._claimers[0].drop_prefetched()
        join_fairness_keys(tx, queues)
        jobs: list[Job] = []
        for claim, claimer in zip(self._queue_claims, self._claimers, strict=True):
            limit = self.budget.room(claim.queue, min(claim.limit, self._room - len(jobs)))
            claimed = claimer.claim(limit, self.budget)
            self.budget.record_started(claim.queue, len(claimed), limit)
            jobs += claimed
        return jobs

    def _promote_due(self, name: QueueName) -> int:
        """Promote the due jobs of a queue; return how many.

        Below the current time no due job is left for the next call, except for late commits and after the
        clock was set back.
        """
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
        query = self._query_next_due([HEAD.rank] * len(self._since)) if self._is_set_back else self._next_due
        row = query.fetchone()
        return None if row is None or row[0] is None else max(0, row[0] - self._tx.now)


def _unknown_leases(
    tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]
) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    leased = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in leased if (job.id, job.attempt) not in expected]


def pending_cancels(tx: Transaction, worker: WorkerId) -> tuple[PendingCancel, ...]:
    """Return the running jobs of a worker that are to be stopped."""
    return tuple(sorted(PendingCancel(*row) for row in tx.all("pending_cancels", {"worker": worker})))
