from __future__ import annotations

import pytest

from forebay.domain.job_validation import MAX_PRIORITY, MIN_PRIORITY
from forebay.domain.priority_bands import band_of, count_by_band


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (MAX_PRIORITY, "highest"),
        (51, "highest"),
        (50, "high"),
        (1, "high"),
        (0, "normal"),
        (-1, "low"),
        (-50, "low"),
        (-51, "lowest"),
        (MIN_PRIORITY, "lowest"),
    ],
)
def test_every_priority_is_in_a_band(priority: int, band: str) -> None:
    assert band_of(priority) == band


@pytest.mark.shows("R-PRI-11", "R-MET-19", "R-MET-52")
def test_all_bands_are_counted_from_the_top() -> None:
    assert list(count_by_band([0, 7, 0, -100]).items()) == [
        *(("highest", 0), ("high", 1), ("normal", 2), ("low", 0), ("lowest", 1))
    ]
