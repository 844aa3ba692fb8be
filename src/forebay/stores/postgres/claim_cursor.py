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

FULL_SCAN_SECONDS: Final = 30.0
CHEAP_SCAN_SECONDS: Final = 0.02
LATE_MS: Final = 60_000  # a job may be committed so long after the time that it was due from
SCAN_PAUSE_FACTOR: Final = 20  # a look from the head that takes long is made again after twenty times as long
_LOWEST: Final = -(2**63)
_LAST_TRANSACTION: Final = str(2**64 - 1)


class TxSnapshot(NamedTuple):
    """Which transactions a look could not see: those from `xmax` on, and those under way."""

    xmax: str = _LAST_TRANSACTION
    under_way: tuple[str, ...] = ()

    @staticmethod
    def of(text: str, own: str | None) -> TxSnapshot:
        """From the server's words, xmin:xmax:xid,xid; our own transaction may write after the look, too.

        No transaction is named twice: what it has put into the order would be found twice, and claimed twice.
        Our own may be the newest of all, and then it is among those from `xmax` on.
        """
        _, xmax, listed = text.split(":")
        under_way = {xid for xid in listed.split(",") if xid}
        if own is not None and int(own) < int(xmax):
            under_way.add(own)
        return TxSnapshot(xmax, tuple(sorted(under_way)))


class ClaimCursor(NamedTuple):
    """The last place in a queue's order that was claimed, and what was seen of what came in behind it."""

    rank: int = _LOWEST
    seq: int = _LOWEST
    seen: TxSnapshot = TxSnapshot()

    @property
    def is_at_head(self) -> bool:
        return self.rank == _LOWEST

    def values(self) -> dict[str, object]:
        return {
            "after_rank": self.rank,
            "after_seq": self.seq,
            "xmax": self.seen.xmax,
            "running_xids": list(self.seen.under_way),
        }


HEAD: Final = ClaimCursor()
RankKey = tuple[int, int]  # rank and seq


class CursorProgress(NamedTuple):
    """What a claim has done to a queue's order, in places of it."""

    removed: Sequence[RankKey]
    late: Sequence[RankKey]  # what was found by its arrival
    has_arrivals_left: (
        bool  # more has arrived than is gone: there was no room for it, or others have it in hand
    )
    has_many_arrivals: bool  # more has arrived than a look asks for
    is_exhausted: bool  # all that was found is gone, and more was asked for


def advance_cursor(
    stored: ClaimCursor, start: ClaimCursor, progress: CursorProgress, seen: TxSnapshot
) -> ClaimCursor:
    """The cursor behind what is gone from the order, after a claim that began at `start`.

    As long as some of what came in behind it is left, that is asked for again: whoever has it in hand may
    give up. Only where much is left it goes back there, because the rest follows right behind what is gone;
    to go back for a few would mean to pass over all dead rows in between.
    """
    if progress.has_many_arrivals and progress.late:
        return ClaimCursor(*min(progress.late), seen)
    # Where all is gone, nothing is left before the place that was reached once.
    reached = stored if progress.is_exhausted else start
    rank, seq = max([*progress.removed, (reached.rank, reached.seq)])
    # A look from the head asks for no arrivals: its snapshot has "seen" all transactions to come. What is
    # left then comes from a first look from the kept cursor, and is asked for again by that one's snapshot.
    left = stored.seen if start.is_at_head else start.seen
    return ClaimCursor(rank, seq, left if progress.has_arrivals_left else seen)


def max_arrivals(room: int) -> int:
    """How many arrivals are looked at. Others see the same ones, and whoever looked only at as many as it can
    take might find all of them taken."""
    return 4 * room + 100


class ClaimCursors:
    """The cursors of one handle, by queue, and when it may look from the head again."""

    def __init__(self) -> None:
        self._by_queue: dict[str, ClaimCursor] = {}
        self._full_scan_at: dict[str, float] = {}
        self._due_from: dict[str, int] = {}
        self._short: set[str] = set()
        self._generation = -1
        # Workers that were started together should not be away for such a look together.
        self._spread = random.uniform(0.7, 1.3)  # noqa: S311 - spreads them

    def reset_if_reconnected(self, generation: int) -> None:
        """Drop all of them if the connection is another one."""
        if generation != self._generation:
            self._generation = generation
            self._by_queue.clear()
            self._full_scan_at.clear()
            self._due_from.clear()
            self._short.clear()

    def of(self, queue: str) -> ClaimCursor:
        """Up to where the order was claimed."""
        return self._by_queue.get(queue, HEAD)

    def start(self, queue: str) -> ClaimCursor:
        """Where to begin; at the head every now and then, since a claim that was undone by a crash leaves
        jobs behind that are no arrivals. Also where the queue was short of work the last time: what is found
        behind the cursor would be too little again."""
        if time.monotonic() >= self._full_scan_at.get(queue, 0.0) + self._spread * FULL_SCAN_SECONDS:
            return HEAD
        return HEAD if queue in self._short and self.may_scan_head(queue) else self.of(queue)

    def may_scan_head(self, queue: str) -> bool:
        """Whether a look from the head is due because too little was found behind the cursor."""
        return time.monotonic() >= self._full_scan_at.get(queue, 0.0)

    def record_head_scan(self, queue: str, seconds: float) -> None:
        """A look from the head took so long. A cheap one may be made at every turn."""
        wait = 0.0 if seconds < CHEAP_SCAN_SECONDS else min(SCAN_PAUSE_FACTOR * seconds, FULL_SCAN_SECONDS)
        self._full_scan_at[queue] = time.monotonic() + wait

    def record_result(self, queue: str, *, enough: bool) -> None:
        """Whether a claim has found as much as it was asked for."""
        if enough:
            self._short.discard(queue)
        else:
            self._short.add(queue)

    def apply(self, cursors: dict[str, ClaimCursor], due_from: dict[str, int]) -> None:
        """What was claimed and promoted is committed."""
        self._by_queue.update(cursors)
        self._due_from.update(due_from)

    def due_from(self, queue: str) -> int:
        """The time before which nothing is left that was due in a queue, or had expired."""
        return self._due_from.get(queue, _LOWEST)
