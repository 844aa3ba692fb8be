"""Where a duty begins to look: above what it has dealt with before, and not at the bottom of an index.

While another transaction keeps the vacuum from its work, the low end of every index that duties go through
is full of dead entries, and each look from there would read all that were ever removed. A floor passes over
them.

A floor is a hint, kept beside the duties so that all who run them share it, and used only where looks without
it are costly: as long as they are cheap, none is kept and every look is whole. Nothing is missed for ever:
what comes in below a floor (committed long after the time that it is for, held by somebody who then gave up,
written by a clock that went back) is found by the next whole look, which is made every minute, or less often
where nobody waits for it. Until then it does no harm: a job that has expired is not claimed, and a lease that
has ended is still its holder's.

Only two floors must be right: that of the counts, since readers begin there, and that of the list of what the
ends of jobs mean for others, since jobs wait for it. `duties` says how they are found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import psycopg

from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import Row

LOWEST: Final = -(2**63)
COSTLY: Final = 5_000  # entries of its index that a look may read before a floor is worth its while
LATE_MS: Final = 5_000  # what is committed so long after the time that it is for is found by the next look
LATE_NUMBERS: Final = 100  # the same for what is numbered
STEP: Final = 1_000  # a floor is not kept anew for less: its row grows a tail of dead versions, too
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
    """Nothing that was there is left below `low`; until `full_scan_at` looks begin there."""

    low: int = LOWEST
    full_scan_at: int = 0


class LowWaterMarks:
    """The floors of one duty, while it is done."""

    def __init__(self, tx: Transaction, names: Iterable[str]) -> None:
        self._tx = tx
        self._indexes = sorted({name.partition(":")[0] for name in names})
        rows = tx.run("low_water_marks", {"names": [mark_name(name) for name in names]})
        self._read = self._query_entries_read()
        self._stored = {name.removeprefix(_PREFIX): LowWaterMark(*rest) for name, *rest in rows}
        self._advanced: dict[str, tuple[int, int | None]] = {}

    def since(self, name: str, top: int) -> int:
        """Where a look up to `top` begins. A floor above it was kept before the clock was set back, or before
        jobs were to be kept for longer."""
        floor = self._stored.get(name, LowWaterMark())
        return floor.low if self._tx.now < floor.full_scan_at and floor.low <= top else LOWEST

    def advance(
        self,
        name: str,
        top: int,
        reached: int | None,
        *,
        late: int = LATE_MS,
        full_scan_ms: int = FULL_SCAN_MS,
    ) -> None:
        """A look up to `top` has left nothing below what it has reached; None if it does not know what that
        is, and then the floor stays where it was. If it is kept, a whole look is made after
        `full_scan_ms`."""
        low = self._stored.get(name, LowWaterMark()).low if reached is None else reached - late
        self._advanced[name] = low, self._tx.now + full_scan_ms if self.since(name, top) == LOWEST else None

    def save(self) -> None:
        """Keep what is worth keeping. Comes last in a duty, and all rows in one order: so nobody who waits
        for one of them holds what another one of them waits for."""
        before: dict[str, int] = dict(self._read.fetchall())
        after: dict[str, int] = dict(self._query_entries_read().fetchall())
        costly = {index for index, read in after.items() if read - before[index] >= COSTLY}
        kept = {name: floor for name in sorted(self._advanced) if (floor := self._next_mark(name, costly))}
        if kept:
            values = {
                "names": [mark_name(name) for name in kept],
                "scan_positions": [floor.low for floor in kept.values()],
                "full_scan_at": [floor.full_scan_at for floor in kept.values()],
            }
            self._tx.run("low_water_marks_save", values)

    def _next_mark(self, name: str, costly: set[str]) -> LowWaterMark | None:
        low, whole_at = self._advanced[name]
        if low == LOWEST:
            return None
        if whole_at is not None:
            return LowWaterMark(low, whole_at) if name.partition(":")[0] in costly else None
        floor = self._stored[name]
        return LowWaterMark(low, floor.full_scan_at) if low >= floor.low + STEP else None

    def _query_entries_read(self) -> psycopg.Cursor[Row]:
        return self._tx.run("index_entries_read", {"names": self._indexes})


_PREFIX: Final = "low-water mark of "


def mark_name(name: str) -> str:
    """What a floor is called among the duties."""
    return _PREFIX + name
