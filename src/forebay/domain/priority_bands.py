"""Bands of priorities, for metrics: two hundred single priorities are too many to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from forebay.domain.job_validation import MIN_PRIORITY

# Lowest priority of each band, from the top.
BANDS: Final[Mapping[str, int]] = {
    "highest": 51,
    "high": 1,
    "normal": 0,
    "low": -50,
    "lowest": MIN_PRIORITY,
}


def band_of(priority: int) -> str:
    """Return the band of a priority."""
    return next(band for band, minimum in BANDS.items() if priority >= minimum)


def count_by_band(priorities: Iterable[int]) -> dict[str, int]:
    """Count these priorities by band, from the top, including empty bands."""
    counted = Counter(map(band_of, priorities))
    return {band: counted[band] for band in BANDS}
