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
from forebay.stores.rows import Row

LOWEST: Final = -(2**63)
COSTLY: Final = 5_000  # entries of its index that a look may read before a floor is worth its while
LATE_MS: Final = 5_000  # what is committed so long after the time that it is for is found by the next look
LATE_NUMBERS: Final = 100  # the same for what is numbered
STEP: Final = 1_000  # a floor is not kept anew for less: its row grows a tail of dead versions, too
TOP: Final = 2**63 - 1
WHOLE_MS: Final = 60_000

EXPIRED: Final = "expired"
DUE: Final = "due"
LEASES: Final = "leases"
RESCORE: Final = "rescore"
WALK: Final = "walk"
KEYS: Final = "keys"
EVENTS: Final = "events"
COUNTS: Final = "counts"
AFTERMATHS: Final = "aftermaths"


class Floor(NamedTuple):
    """Nothing that was there is left below `low`; until `whole_at` looks begin there."""

    low: int = LOWEST
    whole_at: int = 0


class Floors:
    """The floors of one duty, while it is done."""

    def __init__(self, tx: Transaction, names: Iterable[str]) -> None:
        self._tx = tx
        self._indexes = sorted({name.partition(":")[0] for name in names})
        rows = tx.run("floors", {"names": [stored(name) for name in names]})
        self._read = self._ask_read()
        self._kept = {name.removeprefix(_PREFIX): Floor(*rest) for name, *rest in rows}
        self._passed: dict[str, tuple[int, int | None]] = {}

    def since(self, name: str, top: int) -> int:
        """Where a look up to `top` begins. A floor above it was kept before the clock was set back, or before
        jobs were to be kept for longer."""
        floor = self._kept.get(name, Floor())
        return floor.low if self._tx.now < floor.whole_at and floor.low <= top else LOWEST

    def passed(
        self, name: str, top: int, reached: int | None, *, late: int = LATE_MS, whole_ms: int = WHOLE_MS
    ) -> None:
        """A look up to `top` has left nothing below what it has reached; None if it does not know what that
        is, and then the floor stays where it was. If it is kept, a whole look is made after `whole_ms`."""
        low = self._kept.get(name, Floor()).low if reached is None else reached - late
        self._passed[name] = low, self._tx.now + whole_ms if self.since(name, top) == LOWEST else None

    def save(self) -> None:
        """Keep what is worth keeping. Comes last in a duty, and all rows in one order: so nobody who waits
        for one of them holds what another one of them waits for."""
        before: dict[str, int] = dict(self._read.fetchall())
        after: dict[str, int] = dict(self._ask_read().fetchall())
        costly = {index for index, read in after.items() if read - before[index] >= COSTLY}
        kept = {name: floor for name in sorted(self._passed) if (floor := self._next(name, costly))}
        if kept:
            values = {
                "names": [stored(name) for name in kept],
                "lows": [floor.low for floor in kept.values()],
                "whole_at": [floor.whole_at for floor in kept.values()],
            }
            self._tx.run("floors_save", values)

    def _next(self, name: str, costly: set[str]) -> Floor | None:
        low, whole_at = self._passed[name]
        if low == LOWEST:
            return None
        if whole_at is not None:
            return Floor(low, whole_at) if name.partition(":")[0] in costly else None
        floor = self._kept[name]
        return Floor(low, floor.whole_at) if low >= floor.low + STEP else None

    def _ask_read(self) -> psycopg.Cursor[Row]:
        return self._tx.run("entries_read", {"names": self._indexes})


_PREFIX: Final = "floor of "


def stored(name: str) -> str:
    """What a floor is called among the duties."""
    return _PREFIX + name
