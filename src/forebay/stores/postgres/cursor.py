"""Where a claim begins: behind what this handle has claimed before, and not at the head of the order.

While another transaction keeps the vacuum from its work, the head of `ready` is full of dead rows, and each
claim from there would read all that were ever removed. A cursor passes over them. What has come in behind it,
with a lower rank, is found by its arrival: each row of `ready` carries the transaction that put it there, and
a look asks for rows of transactions that the last look could not see. A cursor is a hint in memory: it is
dropped with its connection, and now and then a claim looks from the head all the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

FULL_LOOK_SECONDS: Final = 30.0
CHEAP_LOOK_SECONDS: Final = 0.02
LATE_MS: Final = 60_000  # a job may be committed so long after the time that it was due from
SHARE: Final = 20  # a look from the head that takes long is made again after twenty times as long
_LOWEST: Final = -(2**63)
_LAST_TRANSACTION: Final = str(2**64 - 1)


class Snapshot(NamedTuple):
    """Which transactions a look could not see: those from `xmax` on, and those under way."""

    xmax: str = _LAST_TRANSACTION
    under_way: tuple[str, ...] = ()

    @staticmethod
    def of(text: str, own: str | None) -> Snapshot:
        """From the server's words, xmin:xmax:xid,xid; our own transaction may write after the look, too.

        No transaction is named twice: what it has put into the order would be found twice, and claimed twice.
        Our own may be the newest of all, and then it is among those from `xmax` on.
        """
        _, xmax, listed = text.split(":")
        under_way = {xid for xid in listed.split(",") if xid}
        if own is not None and int(own) < int(xmax):
            under_way.add(own)
        return Snapshot(xmax, tuple(sorted(under_way)))


class Cursor(NamedTuple):
    """The last place in a queue's order that was claimed, and what was seen of what came in behind it."""

    rank: int = _LOWEST
    seq: int = _LOWEST
    seen: Snapshot = Snapshot()

    @property
    def is_at_head(self) -> bool:
        return self.rank == _LOWEST

    def values(self) -> dict[str, object]:
        return {
            "after_rank": self.rank,
            "after_seq": self.seq,
            "xmax": self.seen.xmax,
            "under_way": list(self.seen.under_way),
        }


HEAD: Final = Cursor()
Place = tuple[int, int]  # rank and seq


class Passed(NamedTuple):
    """What a claim has done to a queue's order, in places of it."""

    gone: Sequence[Place]
    late: Sequence[Place]  # what was found by its arrival
    is_left: bool  # more has arrived than is gone: there was no room for it, or others have it in hand
    is_much: bool  # more has arrived than a look asks for
    is_all: bool  # all that was found is gone, and more was asked for


def moved(kept: Cursor, start: Cursor, passed: Passed, seen: Snapshot) -> Cursor:
    """The cursor behind what is gone from the order, after a claim that began at `start`.

    As long as some of what came in behind it is left, that is asked for again: whoever has it in hand may
    give up. Only where much is left it goes back there, because the rest follows right behind what is gone;
    to go back for a few would mean to pass over all dead rows in between.
    """
    if passed.is_much and passed.late:
        return Cursor(*min(passed.late), seen)
    # Where all is gone, nothing is left before the place that was reached once.
    reached = kept if passed.is_all else start
    rank, seq = max([*passed.gone, (reached.rank, reached.seq)])
    # A look from the head asks for no arrivals: its snapshot has "seen" all transactions to come. What is
    # left then comes from a first look from the kept cursor, and is asked for again by that one's snapshot.
    left = kept.seen if start.is_at_head else start.seen
    return Cursor(rank, seq, left if passed.is_left else seen)


def most_arrivals(room: int) -> int:
    """How many arrivals are looked at. Others see the same ones, and whoever looked only at as many as it can
    take might find all of them taken."""
    return 4 * room + 100


class Cursors:
    """The cursors of one handle, by queue, and when it may look from the head again."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Cursor] = {}
        self._full_at: dict[str, float] = {}
        self._due_from: dict[str, int] = {}
        self._short: set[str] = set()
        self._generation = -1
        # Workers that were started together should not be away for such a look together.
        self._spread = random.uniform(0.7, 1.3)  # noqa: S311 - spreads them

    def keep_for(self, generation: int) -> None:
        """Drop all of them if the connection is another one."""
        if generation != self._generation:
            self._generation = generation
            self._by_queue.clear()
            self._full_at.clear()
            self._due_from.clear()
            self._short.clear()

    def of(self, queue: str) -> Cursor:
        """Up to where the order was claimed."""
        return self._by_queue.get(queue, HEAD)

    def start(self, queue: str) -> Cursor:
        """Where to begin; at the head every now and then, since a claim that was undone by a crash leaves
        jobs behind that are no arrivals. Also where the queue was short of work the last time: what is found
        behind the cursor would be too little again."""
        if time.monotonic() >= self._full_at.get(queue, 0.0) + self._spread * FULL_LOOK_SECONDS:
            return HEAD
        return HEAD if queue in self._short and self.may_look(queue) else self.of(queue)

    def may_look(self, queue: str) -> bool:
        """Whether a look from the head is due because too little was found behind the cursor."""
        return time.monotonic() >= self._full_at.get(queue, 0.0)

    def looked(self, queue: str, seconds: float) -> None:
        """A look from the head took so long. A cheap one may be made at every turn."""
        wait = 0.0 if seconds < CHEAP_LOOK_SECONDS else min(SHARE * seconds, FULL_LOOK_SECONDS)
        self._full_at[queue] = time.monotonic() + wait

    def found(self, queue: str, *, enough: bool) -> None:
        """Whether a claim has found as much as it was asked for."""
        if enough:
            self._short.discard(queue)
        else:
            self._short.add(queue)

    def move(self, moved: dict[str, Cursor], due_from: dict[str, int]) -> None:
        """What was claimed and promoted is committed."""
        self._by_queue.update(moved)
        self._due_from.update(due_from)

    def due_from(self, queue: str) -> int:
        """The time before which nothing is left that was due in a queue, or had expired."""
        return self._due_from.get(queue, _LOWEST)
