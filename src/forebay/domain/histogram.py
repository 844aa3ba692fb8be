"""How long something took, over many times: counts in fixed steps, so that any two can be added up.

Steps grow with the value: sixteen to each doubling, whole microseconds below that. So a percentile is wrong
by at most a thirty-second part of itself (3.2 %), whatever was put together to get it, and a handful of
numbers tells of millions of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

# 285 years; what is longer counts as this long.
MAX_US: Final = 2**53 - 1
# A total is kept in 64 bits.
MAX_TOTAL_US: Final = 2**63 - 1
_BITS: Final = 4


class Histogram(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Lengths of time in microseconds, since many jobs take less than a millisecond. `steps` counts how many
    fell in each step, by the number of the step."""

    steps: dict[int, int] = {}
    total_us: int = 0
    min_us: int = 0
    max_us: int = 0

    @property
    def count(self) -> int:
        return sum(self.steps.values())

    @property
    def average_ms(self) -> float | None:
        """None if there was nothing, here and below."""
        return self.total_us / self.count / 1_000 if self.steps else None

    @property
    def min_ms(self) -> float | None:
        return self.min_us / 1_000 if self.steps else None

    @property
    def max_ms(self) -> float | None:
        return self.max_us / 1_000 if self.steps else None

    def percentile_ms(self, percent: float) -> float | None:
        """What so many of a hundred stayed within: 50 gives the median."""
        needed, seen = self.count * percent / 100, 0
        for step in sorted(self.steps):
            seen += self.steps[step]
            if seen >= needed:
                low, above = bounds_us(step)
                return min(max((low + above - 1) / 2, self.min_us), self.max_us) / 1_000
        return None

    def count_within(self, ms: float) -> int:
        """How many took no longer than this, by the step in which that falls."""
        last = step_of(int(ms * 1_000))
        return sum(count for step, count in self.steps.items() if step <= last)


def histogram_of(lengths: Iterable[int]) -> Histogram:
    """Of these lengths in microseconds. Below 0, as a clock that was set back has it, counts as 0."""
    # By value first: this is done for every job, and so most of it is not done in Python.
    counts = Counter(lengths)
    if not counts:
        return NOTHING
    steps: dict[int, int] = {}
    total = 0
    for length, count in counts.items():
        sane = min(max(length, 0), MAX_US)
        step = step_of(sane)
        steps[step] = steps.get(step, 0) + count
        total += sane * count
    least, most = (min(max(length, 0), MAX_US) for length in (min(counts), max(counts)))
    return Histogram(steps, min(total, MAX_TOTAL_US), least, most)


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """All of these as one; the order does not matter."""
    some = [one for one in histograms if one.steps]
    if len(some) <= 1:
        return some[0] if some else NOTHING
    steps: dict[int, int] = {}
    for one in some:
        for step, count in one.steps.items():
            steps[step] = steps.get(step, 0) + count
    return Histogram(
        steps,
        min(sum(one.total_us for one in some), MAX_TOTAL_US),
        min(one.min_us for one in some),
        max(one.max_us for one in some),
    )


def step_of(length_us: int) -> int:
    """The number of the step in which a length of 0 or more falls."""
    shift = length_us.bit_length() - _BITS - 1
    return (shift << _BITS) + (length_us >> shift) if shift > 0 else length_us


def bounds_us(step: int) -> tuple[int, int]:
    """From where a step goes, and where the next one begins."""
    shift = max(0, (step >> _BITS) - 1)
    low = (step - (shift << _BITS)) << shift
    return low, low + (1 << shift)


NOTHING: Final = Histogram()
