"""Claim cursors: a claim starts behind the jobs that this handle has claimed before.

While another transaction holds back vacuum, the head of `ready` is full of dead tuples. A claim from the head
would read all of them; the cursor skips them. Jobs inserted behind it, with a lower rank, are arrivals:
each row of `ready` carries the xid that inserted it, and a claim asks for rows of transactions that the
previous snapshot could not see. A cursor is a hint in memory. It is dropped with its connection, and from
time to time a claim scans from the head all the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

FULL_SCAN_SECONDS: Final = 30.0
CHEAP_SCAN_SECONDS: Final = 0.02
LATE_MS: Final = 60_000  # a job may be committed so long after its due time
SCAN_PAUSE_FACTOR: Final = 20  # pause after a slow scan from the head, in multiples of its duration
_LOWEST: Final = -(2**63)
_LAST_TRANSACTION: Final = str(2**64 - 1)


class TxSnapshot(NamedTuple):
    """Transactions that a snapshot could not see: those from `xmax` on, and those still running."""

    xmax: str = _LAST_TRANSACTION
    running_xids: tuple[str, ...] = ()

    @staticmethod
    def of(text: str, own: str | None) -> TxSnapshot:
        """Parse the text `xmin:xmax:xid,xid`, and add our own transaction, which may still write.

        No transaction is listed twice: its rows would be found twice, and claimed twice. Our own may be the
        newest of all; then it is among those from `xmax` on.
        """
        _, xmax, running = text.split(":")
        running_xids = {xid for xid in running.split(",") if xid}
        if own is not None and int(own) < int(xmax):
            running_xids.add(own)
        return TxSnapshot(xmax, tuple(sorted(running_xids)))


class ClaimCursor(NamedTuple):
    """Last rank of a queue's order that was claimed, and the snapshot from which arrivals are counted."""

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
            "running_xids": list(self.seen.running_xids),
        }


HEAD: Final = ClaimCursor()
RankKey = tuple[int, int]  # rank and seq


class CursorProgress(NamedTuple):
    """Changes of one claim to a queue's order, by rank."""

    removed: Sequence[RankKey]
    late: Sequence[RankKey]  # found as arrivals
    has_arrivals_left: bool  # some arrivals stay: no room for them, or another transaction has locked them
    has_many_arrivals: bool  # more arrivals than a claim asks for
    is_exhausted: bool  # all candidates are gone, and there was room for more


def advance_cursor(
    stored: ClaimCursor, start: ClaimCursor, progress: CursorProgress, seen: TxSnapshot
) -> ClaimCursor:
    """Return the cursor behind the removed jobs, after a claim that started at `start`.

    As long as arrivals are left, the next claim asks for them again: the transaction that has locked them may
    roll back. Only if many are left the cursor goes back to them, since the rest follows right behind the
    removed ones. To go back for a few would mean to read all dead tuples in between.
    """
    if progress.has_many_arrivals and progress.late:
        return ClaimCursor(*min(progress.late), seen)
    # If the candidates are exhausted, no job is left before the rank reached earlier.
    reached = stored if progress.is_exhausted else start
    rank, seq = max([*progress.removed, (reached.rank, reached.seq)])
    # A scan from the head asks for no arrivals: its snapshot has "seen" all later transactions. Arrivals left
    # then come from the first scan from the stored cursor, whose snapshot asks for them again.
    left = stored.seen if start.is_at_head else start.seen
    return ClaimCursor(rank, seq, left if progress.has_arrivals_left else seen)


def max_arrivals(room: int) -> int:
    """Return how many arrivals a claim reads.

    Other workers see the same ones. A claim that read only as many as it has room for might find all of them
    locked.
    """
    return 4 * room + 100


class ClaimCursors:
    """Claim cursors of one handle by queue, and the times of its next scans from the head."""

    def __init__(self) -> None:
        self._by_queue: dict[str, ClaimCursor] = {}
        self._full_scan_at: dict[str, float] = {}
        self._due_from: dict[str, int] = {}
        self._short: set[str] = set()
        self._generation = -1
        # Workers that were started together should not scan from the head together.
        self._spread = random.uniform(0.7, 1.3)  # noqa: S311 - spreads them

    def reset_if_reconnected(self, generation: int) -> None:
        """Drop all cursors if the connection was opened again."""
        if generation != self._generation:
            self._generation = generation
            self._by_queue.clear()
            self._full_scan_at.clear()
            self._due_from.clear()
            self._short.clear()

    def of(self, queue: str) -> ClaimCursor:
        """Return the cursor of a queue."""
        return self._by_queue.get(queue, HEAD)

    def start(self, queue: str) -> ClaimCursor:
        """Return where a claim starts.

        From time to time it is the head: a claim undone by a crash leaves jobs behind that are no arrivals.
        It is also the head if the queue was short of jobs the last time, since the cursor would find too few
        again.
        """
        if time.monotonic() >= self._full_scan_at.get(queue, 0.0) + self._spread * FULL_SCAN_SECONDS:
            return HEAD
        return HEAD if queue in self._short and self.may_scan_head(queue) else self.of(queue)

    def may_scan_head(self, queue: str) -> bool:
        """Return whether a scan from the head may follow a claim that found too few jobs."""
        return time.monotonic() >= self._full_scan_at.get(queue, 0.0)

    def record_head_scan(self, queue: str, seconds: float) -> None:
        """Record the duration of a scan from the head; a cheap one may be repeated with every claim."""
        wait = 0.0 if seconds < CHEAP_SCAN_SECONDS else min(SCAN_PAUSE_FACTOR * seconds, FULL_SCAN_SECONDS)
        self._full_scan_at[queue] = time.monotonic() + wait

    def record_result(self, queue: str, *, enough: bool) -> None:
        """Record whether a claim has found as many jobs as it had room for."""
        if enough:
            self._short.discard(queue)
        else:
            self._short.add(queue)

    def apply(self, cursors: dict[str, ClaimCursor], due_from: dict[str, int]) -> None:
        """Store the cursors and due times of a committed transaction."""
        self._by_queue.update(cursors)
        self._due_from.update(due_from)

    def due_from(self, queue: str) -> int:
        """Return the time before which no due or expired job is left in a queue."""
        return self._due_from.get(queue, _LOWEST)
