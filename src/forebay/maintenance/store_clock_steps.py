"""Observation of the store's clock: steps are detected by comparison with this process's monotonic clock."""

from __future__ import annotations

from math import ceil, floor, inf
from typing import Final, NamedTuple

from forebay.clock import Clock
from forebay.stores.contract.clock_readings import ClockReading, ClockReadingStore

STEP_MS: Final = 1_000
# A clock that NTP corrects without a step gains or loses at most 500 ppm.
SLEW: Final = 2_000


class ClockObservation(NamedTuple):
    """A reading of the store's clock.

    `latest` is where that clock can stand now at most without a step forward of more than a second. So after
    such a step it is a time of the clock before the step.
    """

    reading: ClockReading
    latest: int
    is_first: bool
    has_stepped: bool


class StoreClock:
    """The store's clock as observed by one process.

    A reading was taken between the call and its answer. So it gives the offset of the two clocks as an
    interval as wide as the call was long. Intervals of later readings are intersected: one quick call is
    enough to see a step during a slow one. Readings are compared one with the next, so slow corrections do
    not add up to a step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._low, self._high = -inf, inf
        self._read_at = -inf

    def read(self, store: ClockReadingStore, *, record: bool = False) -> ClockObservation:
        """Read the store's clock and compare it with what earlier readings predict."""
        before = floor(self._clock.monotonic() * 1_000)
        reading = store.read_clock(record=record)
        after = ceil(self._clock.monotonic() * 1_000)
        is_first = self._read_at == -inf
        slew = 0 if is_first else (after - self._read_at) / SLEW
        self._read_at = after
        low, high = reading.now - after, reading.now - before
        expected_low, expected_high = self._low - slew, self._high + slew
        self._low, self._high = max(low, expected_low), min(high, expected_high)
        if self._low > self._high:
            self._low, self._high = low, high
        has_stepped = low > expected_high + STEP_MS or high < expected_low - STEP_MS
        latest = min(high, expected_high) if has_stepped else self._high
        return ClockObservation(reading, floor(latest + after), is_first, has_stepped)
