"""Settling what has ended and claiming for the room there is."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from msgspec.structs import replace

from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note
from forebay.domain.settlement import Charge, Settlement
from forebay.stores.limiting import Tally
from forebay.stores.postgres.claiming import Claim
from forebay.stores.postgres.cursor import HEAD, LATE_MS
from forebay.stores.postgres.duties import end_expired, promote_rows
from forebay.stores.postgres.limiting import bring_back, free_places, keep, tally
from forebay.stores.postgres.noting import keep_notes
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.settling import settle_all
from forebay.stores.postgres.sharing import take_turns
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import BATCH, PROMOTED_PER_EXCHANGE, Cancel, Exchange, Want
from forebay.stores.rows import Row


def exchange(
    tx: Transaction,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
    notes: Sequence[Note],
) -> Exchange:
    """Notes first, while their jobs still run; then settle: what has ended frees slots and keys, and the
    claim that follows should see both.

    This is the long way, for whatever may come. It mostly takes two round trips: one for all that is looked
    at, and one for the claim with the commit.
    """
    unnoted = keep_notes(tx, worker, notes) if notes else ()
    ended = settle_all(tx, worker, settlements)
    cancels = tx.run("cancels", {"worker": worker})
    claims = Claims(tx, worker, wants, room)
    ended.look()
    if not wants and not tx.has_limits:
        # A handle that claims nothing, such as that of a duty, meets no limits elsewhere.
        tx.load_queues(ended.queues)
    free_places(tx, ended.settled)
    jobs = claims.taken(ended.charges)
    keep(tx, claims.limits, wants, jobs, settled=len(ended.settled))
    return Exchange(
        settled=tuple(ended.settled),
        repeated=tuple(ended.repeated),
        refused=tuple(ended.refused),
        jobs=tuple(jobs),
        adopted=() if known is None else tuple(_adopted(tx, worker, known, jobs)),
        cancels=tuple(sorted(Cancel(*row) for row in cancels)),
        next_due_ms=claims.limits.sooner(claims.next_due_ms()),
        unnoted=unnoted,
    )


def with_more(done: Exchange, more: Exchange) -> Exchange:
    """An exchange after which more was claimed."""
    return replace(done, jobs=done.jobs + more.jobs, next_due_ms=more.next_due_ms)


class Claims:
    """The wants of one exchange. What is due and what the first want is for are asked at once, as if nothing
    were due; what turns out otherwise is asked again. Other wants wait for what the first one leaves."""

    def __init__(self, tx: Transaction, worker: WorkerId, wants: Sequence[Want], room: int) -> None:
        self._tx = tx
        self._worker = worker
        self._wants = wants
        self._room = room
        self.limits: Tally = Tally((), 0)
        if not wants:
            return
        self._expired = tx.run("expired", {"limit": BATCH})
        names = sorted({want.queue for want in wants})
        self._queues = tx.run("queues_named", {"names": names})
        self._since = {name: tx.cursors.due_from(name) for name in names}
        self._due = {name: self._ask_due(name, since) for name, since in self._since.items()}
        self._claims = [Claim(tx, worker, want) for want in wants]
        self._claims[0].ask_first(min(wants[0].most, room))
        self._next_due = self._ask_next_due(list(self._since.values()))

    def _ask_next_due(self, since: list[int]) -> psycopg.Cursor[Row]:
        return self._tx.run("next_due", {"queues": list(self._since), "since": since})

    def _ask_due(self, name: str, since: int) -> psycopg.Cursor[Row]:
        return self._tx.run("due", {"queue": name, "since": since, "limit": PROMOTED_PER_EXCHANGE})

    def taken(self, charges: Sequence[Charge]) -> list[Job]:
        """What is claimed, want by want, after attempts that have ended were charged for."""
        tx = self._tx
        if not self._wants:
            self.limits = tally(tx, (), charges)
            return []
        # Nothing can have come in between: these were asked in one go, in the order in which they matter.
        self._is_expiring = end_expired(tx, self._expired.fetchall()) == BATCH
        tx.know_queues(sorted({want.queue for want in self._wants}), self._queues.fetchall())
        if sum(self._promoted(name) for name in self._due):
            self._claims[0].forget_first()
        queues = [want.queue for want in self._wants]
        self.limits = tally(tx, queues, charges)
        if self._wants[0].queue in bring_back(tx, queues, self.limits):
            self._claims[0].forget_first()
        take_turns(tx, queues)
        jobs: list[Job] = []
        for want, claim in zip(self._wants, self._claims, strict=True):
            most = self.limits.room(want.queue, min(want.most, self._room - len(jobs)))
            taken = claim.taken(most, self.limits)
            self.limits.took(want.queue, len(taken), most)
            jobs += taken
        return jobs

    def _promoted(self, name: QueueName) -> int:
        """How many jobs of a queue have come due. What is due later than now is due later than now for the
        next look too, but for those who are long in committing, and where the clock was set back."""
        tx = self._tx
        rows = self._due[name].fetchall()
        if self._is_set_back:
            rows += self._ask_due(name, HEAD.rank).fetchall()
        queue = tx.queue(name)
        is_staggered = queue is not None and queue.settings.stagger is not None
        if len(rows) < PROMOTED_PER_EXCHANGE and not self._is_expiring and not is_staggered:
            tx.due_from[name] = tx.now - LATE_MS
        return promote_rows(tx, rows)

    @property
    def _is_set_back(self) -> bool:
        return self._tx.now < max(self._since.values())

    def next_due_ms(self) -> int | None:
        if not self._wants:
            return None
        asked = self._ask_next_due([HEAD.rank] * len(self._since)) if self._is_set_back else self._next_due
        row = asked.fetchone()
        return None if row is None or row[0] is None else max(0, row[0] - self._tx.now)


def _adopted(tx: Transaction, worker: WorkerId, known: Sequence[Lease], claimed: list[Job]) -> list[Job]:
    expected = {(lease.job_id, lease.attempt) for lease in known}
    expected |= {(job.id, job.attempt) for job in claimed}
    held = (job_from_row(row) for row in tx.all("leases_of", {"worker": worker}))
    return [job for job in held if (job.id, job.attempt) not in expected]


def cancels_for(tx: Transaction, worker: WorkerId) -> tuple[Cancel, ...]:
    """The running jobs of a worker that somebody wants stopped."""
    return tuple(sorted(Cancel(*row) for row in tx.all("cancels", {"worker": worker})))
