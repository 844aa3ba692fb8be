"""Time zones, and when their clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from forebay.domain.time_zone import first_at, next_change, wall_at, zone_of
from forebay.errors import ConfigError

wall = datetime.fromisoformat


def utc(*parts: int) -> int:
    year, month, day, *rest = parts
    return round((datetime(year, month, day, tzinfo=UTC) + timedelta(hours=sum(rest))).timestamp())


@pytest.mark.shows("R-SCHED-42")
@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "utc+1", "/etc/localtime", "a\0b"])
def test_an_unknown_zone_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no time zone"):
        zone_of(name)


def test_utc_needs_no_zone_files() -> None:
    assert zone_of("UTC") is UTC


@pytest.mark.shows("R-SCHED-46")
def test_the_next_change_of_the_clocks_is_found_within_two_years_or_there_is_none() -> None:
    new_york = zone_of("America/New_York")

    assert next_change(new_york, utc(2024, 1, 1)) == utc(2024, 3, 10, 7)
    assert next_change(new_york, utc(2024, 3, 10, 7)) == utc(2024, 11, 3, 6)
    assert next_change(zone_of("Asia/Tokyo"), utc(2024, 1, 1)) is None
    assert next_change(new_york, utc(2024, 1, 1), utc(2024, 2, 1)) is None


def test_a_time_in_the_gap_is_the_end_of_the_gap() -> None:
    lord_howe = ZoneInfo("Australia/Lord_Howe")  # half an hour, at 02:00

    at = first_at(wall("2026-10-04 02:10"), lord_howe)

    assert wall_at(at, lord_howe) == wall("2026-10-04 02:30")
    assert wall_at(at - 1, lord_howe) == wall("2026-10-04 01:59:59")


def test_a_time_that_comes_twice_is_its_first_occurrence() -> None:
    berlin = ZoneInfo("Europe/Berlin")

    assert first_at(wall("2026-10-25 02:30"), berlin) == utc(2026, 10, 25) + 1_800
