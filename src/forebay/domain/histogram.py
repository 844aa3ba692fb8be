"""Histograms of durations: counts in fixed steps, so that any two can be added up.

Steps grow with the value: sixteen to each doubling, whole microseconds below that. So a percentile is wrong
by at most a thirty-second part of itself (3.2 %), after any number of merges. A handful of numbers describes
millions of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

# 285 years; longer durations count as this long.
MAX_US: Final = 2**53 - 1
# A total is stored in 64 bits.
MAX_TOTAL_US: Final = 2**63 - 1
_BITS: Final = 4


class Histogram(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Durations in microseconds, since many jobs take less than a millisecond. `steps` has the counts by
    the number of the step."""

    steps: dict[int, int] = {}
    total_us: int = 0
    min_us: int = 0
    max_us: int = 0

    @property
    def count(self) -> int:
        return sum(self.steps.values())

    @property
    def average_ms(self) -> float | None:
        """Return the average; None for an empty histogram, here and below."""
        return self.total_us / self.count / 1_000 if self.steps else None

    @property
    def min_ms(self) -> float | None:
        return self.min_us / 1_000 if self.steps else None

    @property
    def max_ms(self) -> float | None:
        return self.max_us / 1_000 if self.steps else None

    def percentile_ms(self, percent: float) -> float | None:
        """Return a percentile: 50 is the median."""
        needed, counted = self.count * percent / 100, 0
        for step in sorted(self.steps):
            counted += self.steps[step]
            if counted >= needed:
                low, above = bounds_us(step)
                return min(max((low + above - 1) / 2, self.min_us), self.max_us) / 1_000
        return None

    def count_within(self, ms: float) -> int:
        """Return how many durations were no longer than this, by its step."""
        last = step_of(int(ms * 1_000))
        return sum(count for step, count in self.steps.items() if step <= last)


def histogram_of(lengths: Iterable[int]) -> Histogram:
    """Return the histogram of these durations in microseconds. Negative ones, after the clock was set
    back, count as 0."""
    # By value first: this runs for every job, and so most of the work is not done in Python.
    counts = Counter(lengths)
    if not counts:
        return NOTHING
    steps: dict[int, int] = {}
    total = 0
    for length, count in counts.items():
        clamped = min(max(length, 0), MAX_US)
        step = step_of(clamped)
        steps[step] = steps.get(step, 0) + count
        total += clamped * count
    min_us, max_us = (min(max(length, 0), MAX_US) for length in (min(counts), max(counts)))
    return Histogram(steps, min(total, MAX_TOTAL_US), min_us, max_us)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Merge histograms; the order does not matter."""
    nonempty = [histogram for histogram in histograms if histogram.steps]
    if len(nonempty) <= 1:
        return nonempty[0] if nonempty else NOTHING
    steps: dict[int, int] = {}
    for histogram in nonempty:
        for step, count in histogram.steps.items():
            steps[step] = steps.get(step, 0) + count
    return Histogram(
        steps,
        min(sum(histogram.total_us for histogram in nonempty), MAX_TOTAL_US),
        min(histogram.min_us for histogram in nonempty),
        max(histogram.max_us for histogram in nonempty),
    )


def step_of(length_us: int) -> int:
    """Return the number of the step of a duration of 0 or more."""
    shift = length_us.bit_length() - _BITS - 1
    return (shift << _BITS) + (length_us >> shift) if shift > 0 else length_us


def bounds_us(step: int) -> tuple[int, int]:
    """Return the start of a step and the start of the next one."""
    shift = max(0, (step >> _BITS) - 1)
    low = (step - (shift << _BITS)) << shift
    return low, low + (1 << shift)


NOTHING: Final = Histogram()
