"""Where a claim begins: behind what this handle has claimed before, and not at the head of the order.

While another transaction keeps the vacuum from its work, the head of `ready` is full of dead rows, and each
claim from there would read all that were ever removed. A cursor passes over them. What has come in behind it,
with a lower rank, is found by its arrival: each row of `ready` carries the transaction that put it there, and
a look asks for rows of transactions that the last look could not see. A cursor is a hint in memory: it is
dropped with its connection, and now and then a claim looks from the head all the same.
"""

from __future__ import annotations

import time
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
        """From the server's words, xmin:xmax:xid,xid; our own transaction may write after the look, too."""
        _, xmax, listed = text.split(":")
        return Snapshot(xmax, tuple(xid for xid in [*listed.split(","), own or ""] if xid))


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


class Cursors:
    """The cursors of one handle, by queue, and when it may look from the head again."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Cursor] = {}
        self._full_at: dict[str, float] = {}
        self._due_from: dict[str, int] = {}
        self._generation = -1

    def keep_for(self, generation: int) -> None:
        """Drop all of them if the connection is another one."""
        if generation != self._generation:
            self._generation = generation
            self._by_queue.clear()
            self._full_at.clear()
            self._due_from.clear()

    def of(self, queue: str) -> Cursor:
        """Where to begin; at the head every now and then, since a claim that was undone by a crash leaves
        jobs behind that are no arrivals."""
        if time.monotonic() >= self._full_at.get(queue, 0.0) + FULL_LOOK_SECONDS:
            return HEAD
        return self._by_queue.get(queue, HEAD)

    def may_look(self, queue: str) -> bool:
        """Whether a look from the head is due because too little was found behind the cursor."""
        return time.monotonic() >= self._full_at.get(queue, 0.0)

    def looked(self, queue: str, seconds: float) -> None:
        """A look from the head took so long. A cheap one may be made at every turn."""
        wait = 0.0 if seconds < CHEAP_LOOK_SECONDS else min(SHARE * seconds, FULL_LOOK_SECONDS)
        self._full_at[queue] = time.monotonic() + wait

    def move(self, moved: dict[str, Cursor], due_from: dict[str, int]) -> None:
        """What was claimed and promoted is committed."""
        self._by_queue.update(moved)
        self._due_from.update(due_from)

    def due_from(self, queue: str) -> int:
        """The time before which nothing that was due is left in a queue."""
        return self._due_from.get(queue, _LOWEST)
