"""The part of the seam that reads the store's clock, and records readings for programs that start later."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from forebay.domain.lease import LONGEST_RENEWAL_MS

# An old reading shows its reader that every living worker has had time to renew since: each lease is renewed
# every 10 s or more often. A renewal comes up to 0.3 s late, because workers look at their leases in
# intervals, and later on a busy machine: hence two more seconds.
LATE_MS: Final = 2_000
EARLIER_MS: Final = LONGEST_RENEWAL_MS + LATE_MS
# The first reading of each period is kept. The slots cover EARLIER_MS and two periods.
PERIOD_MS: Final = 2_000
SLOTS: Final = 8
NAMES: Final = tuple(f"clock {slot}" for slot in range(SLOTS))


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the store's clock. `earlier` is the latest recorded reading that is at least 12 s old by
    this clock; None if there is none, or if this reading was not recorded."""

    now: int
    earlier: int | None = None


class ClockReadingStore(Protocol):
    """The write side of clock readings."""

    def read_clock(self, *, record: bool = False) -> ClockReading:
        """Read the store's clock. With `record` the time is kept for later readers, at most once in two
        seconds, and the answer has the `earlier` reading. Readings outlive their program."""
        ...


def slot_name(now: int) -> str:
    """The record that a reading at this time goes to."""
    return NAMES[now // PERIOD_MS % SLOTS]


def is_recorded(now: int, recorded: int | None) -> bool:
    """Return whether the slot has a reading of this period already. One from the future was recorded before
    the clock was set back."""
    return recorded is not None and now - now % PERIOD_MS <= recorded <= now


def latest_old_enough(now: int, recorded: list[int]) -> int | None:
    """The latest of the recorded readings that is old enough."""
    return max((one for one in recorded if one <= now - EARLIER_MS), default=None)
