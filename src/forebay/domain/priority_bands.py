"""Priorities in bands, for figures: nobody reads two hundred numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from forebay.domain.job import MIN_PRIORITY

# The least priority of each band, from the top.
BANDS: Final[Mapping[str, int]] = {
    "highest": 51,
    "high": 1,
    "normal": 0,
    "low": -50,
    "lowest": MIN_PRIORITY,
}


def band_of(priority: int) -> str:
    """In which band a priority is."""
    return next(band for band, least in BANDS.items() if priority >= least)


def count_by_band(priorities: Iterable[int]) -> dict[str, int]:
    """How many of these are in each band, from the top; all bands are there."""
    found = Counter(map(band_of, priorities))
    return {band: found[band] for band in BANDS}
