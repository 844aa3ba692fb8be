"""Low-water marks: values below which the scans of maintenance tasks find nothing.

While another transaction holds back vacuum, the low end of every scanned index is full of dead entries. A
scan from there would read all of them; a low-water mark skips them.

A mark is a hint, stored in `maintenance` so that all programs share it. It is used only where scans without
it are costly: as long as they are cheap, no mark is stored and every scan is a full one. No row is missed for
ever. A row may come in below a mark: committed long after its time, locked by a transaction that rolled back,
or written by a clock that went back. The next full scan finds it, every minute, or less often where no job
waits for it. Until then it does no harm: an expired job is not claimed, and an expired lease stays with its
holder.

Two marks must be exact: that of the counts, since readers start there, and that of the dependency outbox,
since jobs wait for its entries. `maintenance` explains how they are found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import psycopg

from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import Row

LOWEST: Final = -(2**63)
COSTLY: Final = 5_000  # index entries that a scan may read before a mark is worth storing
LATE_MS: Final = 5_000  # the next scan finds a row committed so long after its time
LATE_NUMBERS: Final = 100  # the same for ids and seqs
STEP: Final = 1_000  # a mark is not advanced by less: each update leaves a dead tuple
TOP: Final = 2**63 - 1
FULL_SCAN_MS: Final = 60_000

EXPIRED: Final = "expired"
DUE: Final = "delayed"
LEASES: Final = "leases"
RESCORE: Final = "rescore"
SCAN: Final = "scan"
KEYS: Final = "keys"
EVENTS: Final = "events"
COUNTS: Final = "counts"
OUTBOX: Final = "outbox"


class LowWaterMark(NamedTuple):
    """Position below which no row is left; scans start there until `full_scan_at`."""

    low: int = LOWEST
    full_scan_at: int = 0


class LowWaterMarks:
    """Low-water marks of one maintenance task while it runs."""

    def __init__(self, tx: Transaction, names: Iterable[str]) -> None:
        self._tx = tx
        self._indexes = sorted({name.partition(":")[0] for name in names})
        rows = tx.run("low_water_marks", {"names": [mark_name(name) for name in names]})
        self._read = self._query_entries_read()
        self._stored = {name.removeprefix(_PREFIX): LowWaterMark(*rest) for name, *rest in rows}
        self._advanced: dict[str, tuple[int, int | None]] = {}

    def since(self, name: str, top: int) -> int:
        """Return where a scan up to `top` starts.

        A mark above `top` is ignored: it is from before the clock was set back, or a retention was extended.
        """
        mark = self._stored.get(name, LowWaterMark())
        return mark.low if self._tx.now < mark.full_scan_at and mark.low <= top else LOWEST

    def advance(
        self,
        name: str,
        top: int,
        reached: int | None,
        *,
        late: int = LATE_MS,
        full_scan_ms: int = FULL_SCAN_MS,
    ) -> None:
        """Record that a scan up to `top` has left nothing below `reached`.

        With None the mark stays where it was. If it is stored, a full scan follows after `full_scan_ms`.
        """
        low = self._stored.get(name, LowWaterMark()).low if reached is None else reached - late
        self._advanced[name] = low, self._tx.now + full_scan_ms if self.since(name, top) == LOWEST else None

    def save(self) -> None:
        """Store the marks that are worth it: last in a task, and in one order, against deadlocks."""
        before: dict[str, int] = dict(self._read.fetchall())
        after: dict[str, int] = dict(self._query_entries_read().fetchall())
        costly = {index for index, read in after.items() if read - before[index] >= COSTLY}
        marks = {name: mark for name in sorted(self._advanced) if (mark := self._next_mark(name, costly))}
        if marks:
            values = {
                "names": [mark_name(name) for name in marks],
                "scan_positions": [mark.low for mark in marks.values()],
                "full_scan_at": [mark.full_scan_at for mark in marks.values()],
            }
            self._tx.run("low_water_marks_save", values)

    def _next_mark(self, name: str, costly: set[str]) -> LowWaterMark | None:
        low, full_scan_at = self._advanced[name]
        if low == LOWEST:
            return None
        if full_scan_at is not None:
            return LowWaterMark(low, full_scan_at) if name.partition(":")[0] in costly else None
        mark = self._stored[name]
        return LowWaterMark(low, mark.full_scan_at) if low >= mark.low + STEP else None

    def _query_entries_read(self) -> psycopg.Cursor[Row]:
        return self._tx.run("index_entries_read", {"names": self._indexes})


_PREFIX: Final = "low-water mark of "


def mark_name(name: str) -> str:
    """Return the name of a mark in the table `maintenance`."""
    return _PREFIX + name
