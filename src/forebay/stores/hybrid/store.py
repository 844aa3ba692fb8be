"""The write side: PostgreSQL's own, with somebody beside its order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note
from forebay.domain.settlement import Settlement
from forebay.errors import StoreError
from forebay.stores.hybrid.link import Link
from forebay.stores.hybrid.order import BATCH, NOTHING, Gap, HotOrder
from forebay.stores.hybrid.pokes import HybridPokes
from forebay.stores.hybrid.statements import statements_beside
from forebay.stores.postgres.calling import Call
from forebay.stores.postgres.connection import Connection, TryAgain
from forebay.stores.postgres.cursor import HEAD, Place
from forebay.stores.postgres.packing import bigint, text
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.protocol import Exchange, OnConflict, Receipt, Want

ACTOR: Final = "redis"
# Many see at about the same time that Redis is gone, and one of them writes it down.
TOLD_MS: Final = 5_000

logger: logging.Logger = logging.getLogger(__name__)


class HybridStore(PostgresStore):
    """A handle to write to one store. Everything is done by PostgreSQL; Redis is asked where to begin."""

    def __init__(
        self, connection: Connection, new_id: Callable[[], JobId], link: Link, order: HotOrder
    ) -> None:
        super().__init__(connection, new_id, pokes=HybridPokes(connection.address, order), beside=order)
        own = statements_beside(connection.address.schema)
        self._statements = {**self._statements, **own}
        self._order_next = Call("order_next", own["order_next"])
        self._link = link
        self._order = order
        self._was_up = True

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        receipts = super().insert(jobs, on_conflict=on_conflict, atomic=atomic, create_queues=create_queues)
        self._mark_mode()
        return receipts

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        for want in wants:
            if self._order.is_wanted_first(want.queue):
                self._fill(Gap(want.queue, NOTHING, BATCH))
        done = super().exchange(worker, settlements, wants, room, known, notes)
        self._mark_mode()
        gap = self._order.take_gap()
        if gap is not None:
            self._fill(gap)
        return done

    def _fill(self, gap: Gap) -> None:
        """Take the next part of an order over to Redis, one part in each exchange: so that is how it is built
        when Redis is new or has come back, and how more of it moves in when there is room."""
        if self._address.pooled:
            return
        rank, seq = start = self._start_of(gap)
        values = {
            "queue": text(gap.queue),
            "after_rank": bigint(rank),
            "after_seq": bigint(seq),
            "most": bigint(gap.room),
        }
        # The exchange has happened, and must be answered; a store that is away says so at the next call.
        with suppress(StoreError, TryAgain):
            began = monotonic()
            rows = self._connection.call(lambda raw: self._order_next.rows(raw, values))
            if start == (HEAD.rank, HEAD.seq):
                self._memory.cursors.looked(gap.queue, monotonic() - began)
            self._order.fill(gap, [(row[0], row[1]) for row in rows], is_all=len(rows) < gap.room)

    def _start_of(self, gap: Gap) -> Place:
        """Where to read the next part from. Of an order of which nothing is known that is the head, as long
        as looks from there are cheap; else it is this handle's cursor, as for a claim. What waits before
        that is an arrival, and found by looks of the store's own, or is found from the head later on."""
        cursors = self._memory.cursors
        if gap.bound != NOTHING or self._order.is_eager or cursors.may_look(gap.queue):
            return gap.after
        kept = cursors.of(gap.queue)
        return kept.rank, kept.seq

    def _mark_mode(self) -> None:
        """Say so when Redis has gone away or come back: in the log of this program, and in the events."""
        is_up = self._link.is_up
        if is_up == self._was_up:
            return
        self._was_up = is_up
        if is_up:
            words = "Redis is back: the head of the order is being taken over again"
            logger.warning("%s: %s", self._address.place, words)
        else:
            words = f"Redis is away, so orders are PostgreSQL's own for now: {self._link.why}"
            logger.warning("%s: %s", self._address.place, words)
        with suppress(StoreError):
            if self.take_duty(f"redis:{'back' if is_up else 'away'}", TOLD_MS):
                self.record([Event(kind=EventKind.NOTE, actor=ACTOR, detail=words)])

    def close(self) -> None:
        super().close()
        self._link.close()
