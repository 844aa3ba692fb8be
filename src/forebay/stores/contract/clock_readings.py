"""Protocols of the store contract for the store's clock, with readings recorded for programs that start
later."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from forebay.domain.lease import LONGEST_RENEWAL_MS

# An old reading shows its reader that every living worker has had time to renew since: each lease is renewed
# every 10 s or more often. A renewal comes up to 0.3 s late, because workers check their leases at
# intervals, and later on a busy machine: hence two more seconds.
LATE_MS: Final = 2_000
EARLIER_MS: Final = LONGEST_RENEWAL_MS + LATE_MS
# The first reading of each period is kept. The slots cover EARLIER_MS and two periods.
PERIOD_MS: Final = 2_000
SLOTS: Final = 8
NAMES: Final = tuple(f"clock {slot}" for slot in range(SLOTS))


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """Reading of the store's clock. `earlier` is the latest recorded reading that is at least 12 s old by
    this clock; None if there is none, or if this reading was not recorded.
    """

    now: int
    earlier: int | None = None


class ClockReadingStore(Protocol):
    """Write side of clock readings."""

    def read_clock(self, *, record: bool = False) -> ClockReading:
        """Read the store's clock. `record` stores the time for later readers, at most once in two seconds,
        and returns the `earlier` reading. Readings outlive their program.
        """
        ...


def slot_name(now: int) -> str:
    """Return the record that a reading at this time goes to."""
    return NAMES[now // PERIOD_MS % SLOTS]


def is_recorded(now: int, recorded: int | None) -> bool:
    """Return whether the slot has a reading of this period already. A reading from the future was recorded
    before the clock was set back.
    """
    return recorded is not None and now - now % PERIOD_MS <= recorded <= now


def latest_old_enough(now: int, recorded: list[int]) -> int | None:
    """Return the latest recorded reading that is old enough."""
    return max((reading for reading in recorded if reading <= now - EARLIER_MS), default=None)
