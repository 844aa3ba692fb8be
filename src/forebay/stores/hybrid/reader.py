"""Looking at the store, and whether what Redis holds beside it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.query import Health, Vitals
from forebay.stores.hybrid.link import Link
from forebay.stores.hybrid.order import ALL, NOTHING, Gap
from forebay.stores.hybrid.statements import statements_beside
from forebay.stores.postgres.connection import Connection, Statements
from forebay.stores.postgres.cursor import Place
from forebay.stores.postgres.reader import Look, PostgresReader

COMPARED: Final = 1_000


class Differences(NamedTuple):
    """At the head of a queue's order: what Redis does not know, and what it names that does not wait."""

    missing: frozenset[Place] = frozenset()
    stale: frozenset[Place] = frozenset()

    def also_in(self, other: Differences) -> Differences:
        return Differences(self.missing & other.missing, self.stale & other.stale)


class HybridReader(PostgresReader):
    """A handle to look at one store."""

    def __init__(self, connection: Connection, statements: Statements, link: Link) -> None:
        super().__init__(connection, {**statements, **statements_beside(connection.address.schema)})
        self._link = link

    def vitals(self) -> Vitals:
        return replace(super().vitals(), redis_fallback=not self._link.is_of_use())

    def health(self) -> Health:
        # Jobs are claimed while we look, so a difference counts only if it is there before and after.
        before = self._differences()
        found = super().health()
        return replace(found, engine="postgresql+redis", notes=tuple(self._notes(before)))

    def close(self) -> None:
        super().close()
        self._link.close()

    def _notes(self, before: Mapping[QueueName, Differences]) -> Iterator[str]:
        """Where the order in Redis is not PostgreSQL's. That costs time, never a job."""
        if not self._link.is_of_use():
            yield f"Redis is away, so orders are PostgreSQL's own for now: {self._link.why}"
            return
        for queue, found in self._differences().items():
            missing, stale = found.also_in(before.get(queue, Differences()))
            if missing or stale:
                yield (
                    f"queue {queue}: of the next {COMPARED:,} jobs in PostgreSQL's order Redis does not know "
                    f"{len(missing)}, and it names {len(stale)} that do not wait there; PostgreSQL decides, "
                    "and whoever works on this queue puts it right"
                )

    def _differences(self) -> dict[QueueName, Differences]:
        names = [queue.name for queue in self.queues()]
        with self._looking() as look:
            return {name: self._compared(look, name) for name in names}

    def _compared(self, look: Look, queue: QueueName) -> Differences:
        bound = self._link.command("GET", self._link.key("end", queue))
        if bound is None:
            return Differences()  # nobody has asked for this order for a while
        gap = Gap(queue, bound.decode(), COMPARED)
        ours = self._first_of_ours(look, gap)
        theirs = self._first_of_theirs(queue)
        stale = theirs - ours
        if stale:
            ranks, seqs = zip(*stale, strict=True)
            values = {"queue": queue, "ranks": list(ranks), "seqs": list(seqs)}
            stale -= {(row[0], row[1]) for row in look.all("order_among", values)}
        return Differences(frozenset(self._unknown(queue, ours - theirs)), frozenset(stale))

    def _first_of_ours(self, look: Look, gap: Gap) -> set[Place]:
        rank, seq = gap._replace(bound=NOTHING).after
        values = {"queue": gap.queue, "after_rank": rank, "after_seq": seq, "most": COMPARED}
        rows = [(row[0], row[1]) for row in look.all("order_next", values)]
        return {place for place in rows if gap.bound == ALL or place <= gap.after}

    def _first_of_theirs(self, queue: QueueName) -> set[Place]:
        words = ("ZRANGE", self._link.key("hot", queue), 0, COMPARED - 1, "WITHSCORES")
        flat = self._link.command(*words) or []
        return {(int(float(flat[i + 1])), int(flat[i])) for i in range(0, len(flat), 2)}

    def _unknown(self, queue: QueueName, places: set[Place]) -> Iterator[Place]:
        """Which of these Redis does not know anywhere in the order."""
        for place in places:
            score = self._link.command("ZSCORE", self._link.key("hot", queue), f"{place[1]:013d}")
            if score is None or int(float(score)) != place[0]:
                yield place
