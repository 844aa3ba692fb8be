"""Cron lines: what is understood, what is refused, and the next time after another."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.cron import NICKNAMES, Cron, parse_cron
from forebay.errors import ConfigError

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str, zone: tzinfo = UTC) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


def runs(line: str, start: str, number: int, zone: tzinfo = UTC) -> list[str]:
    """The next times after a start, both as the clocks of the zone show them; `*` marks the second of two."""
    found, moment = [], at(start, zone)
    for _ in range(number):
        after = parse_cron(line).next_after(moment, zone)
        assert after is not None
        moment = after
        shown = datetime.fromtimestamp(moment, zone)
        found.append(shown.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00") + "*" * shown.fold)
    return found


@pytest.mark.shows("R-TEST-61")
@pytest.mark.shows(
    "R-TEST-27", "R-SCHED-08", "R-SCHED-09", "R-SCHED-10", "R-SCHED-14", "R-EDGE-33", "R-BUG-24"
)  # fmt: skip
@pytest.mark.parametrize(
    ("line", "start", "expected"),
    [
        ("* * * * *", "2026-11-16 10:00", ["2026-11-16 10:01", "2026-11-16 10:02"]),
        ("*/15 * * * *", "2026-11-16 10:50", ["2026-11-16 11:00", "2026-11-16 11:15"]),
        ("5/20 * * * *", "2026-11-16 10:50", ["2026-11-16 11:05", "2026-11-16 11:25"]),
        ("0 2 * * *", "2026-11-16 02:00", ["2026-11-17 02:00", "2026-11-18 02:00"]),
        ("0 0 1 * *", "2026-11-16 10:00", ["2026-12-01 00:00", "2027-01-01 00:00"]),
        ("30 8-10/2 * * *", "2026-11-16 09:00", ["2026-11-16 10:30", "2026-11-17 08:30"]),
        ("0 9 * * MON-FRI", "2026-11-20 09:00", ["2026-11-23 09:00", "2026-11-24 09:00"]),
        ("0 9 * * fri-sun", "2026-11-20 09:00", ["2026-11-21 09:00", "2026-11-22 09:00"]),
        ("0 0 * * 0", "2026-11-16 10:00", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("0 0 * * 7", "2026-11-16 10:00", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("0 0 1 jan,JUL *", "2026-11-16 10:00", ["2027-01-01 00:00", "2027-07-01 00:00"]),
        ("0 0 31 * *", "2026-11-16 10:00", ["2026-12-31 00:00", "2027-01-31 00:00"]),
        ("0 0 29 2 *", "2026-11-16 10:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "2096-03-01 00:00", None),
        ("* * 29 2 *", "2096-03-01 00:00", None),
        ("0 0 L * *", "2027-02-01 00:00", ["2027-02-28 00:00", "2027-03-31 00:00"]),
        ("0 0 L 2 *", "2027-03-01 00:00", ["2028-02-29 00:00", "2029-02-28 00:00"]),
        ("0 0 LW * *", "2026-05-01 00:00", ["2026-05-29 00:00", "2026-06-30 00:00"]),
        ("0 0 1,L * *", "2026-11-16 10:00", ["2026-11-30 00:00", "2026-12-01 00:00"]),
        ("0 9 * * 2#3", "2026-11-16 10:00", ["2026-11-17 09:00", "2026-12-15 09:00"]),
        ("0 9 * * MON#5", "2026-11-16 10:00", ["2026-11-30 09:00", "2027-03-29 09:00"]),
        ("0 9 * * 5L", "2026-11-16 10:00", ["2026-11-27 09:00", "2026-12-25 09:00"]),
        ("0 9 ? * LFRI", "2026-11-16 10:00", ["2026-11-27 09:00", "2026-12-25 09:00"]),
        ("0 9 13 * FRI", "2026-11-10 10:00", ["2026-11-13 09:00", "2026-11-20 09:00"]),
        ("0 9 13 * ?", "2026-11-16 10:00", ["2026-12-13 09:00", "2027-01-13 09:00"]),
        ("0 9 */2 * MON", "2026-11-16 10:00", ["2026-11-23 09:00", "2026-12-07 09:00"]),
        ("*/20 * * * * *", "2026-11-16 10:00", ["2026-11-16 10:00:20", "2026-11-16 10:00:40"]),
        ("30 59 23 31 12 *", "2026-11-16 10:00", ["2026-12-31 23:59:30", "2027-12-31 23:59:30"]),
        ("@hourly", "2026-11-16 10:00", ["2026-11-16 11:00", "2026-11-16 12:00"]),
        (" @Daily ", "2026-11-16 10:00", ["2026-11-17 00:00", "2026-11-18 00:00"]),
        ("@weekly", "2026-11-16 10:00", ["2026-11-22 00:00", "2026-11-29 00:00"]),
        ("@yearly", "2026-11-16 10:00", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_cp4_2_the_next_times_of_a_line(line: str, start: str, expected: list[str] | None) -> None:
    if expected is None:
        assert parse_cron(line).next_after(at(start), UTC) is None
    else:
        assert runs(line, start, len(expected)) == expected


@pytest.mark.shows("R-SCHED-11", "R-SCHED-12", "R-EDGE-34", "R-SCHED-09", "R-TEST-61")
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * * *", "five fields"),
        ("@reboot", "@hourly"),
        ("60 * * * *", "60 is no minute"),
        ("* 24 * * *", "24 is no hour"),
        ("* * 0 * *", "0 is no day of the month"),
        ("* * * 13 *", "13 is no month"),
        ("* * * FOO *", "FOO is no month"),
        ("* * * * 8", "8 is no day of the week"),
        ("-1 * * * *", "is no minute"),
        ("1,,2 * * * *", "nothing is no minute"),
        ("1-5-9 * * * *", "5-9 is no minute"),
        ("٣ * * * *", "is no minute"),
        ("? * * * *", "? is no minute"),
        ("*/0 * * * *", "whole number from 1"),
        ("*/x * * * *", "whole number from 1"),
        ("30-10 * * * *", "goes backwards"),
        ("* * 15W * *", "LW is the last one"),
        ("* * * * L", "5L is the last Friday"),
        ("* * * * 2#6", "from 1 to 5"),
        ("0 0 31 2 *", "no date ever matches"),
        ("0 0 30 FEB *", "no date ever matches"),
        ("0 0 31 4,6,9,11 *", "no date ever matches"),
    ],
)
def test_a_line_that_is_wrong_or_never_matches_is_refused_in_plain_words(line: str, word: str) -> None:
    with pytest.raises(ValueError, match="cannot be used") as caught:
        parse_cron(line)

    assert isinstance(caught.value, ConfigError)
    assert word in str(caught.value)


def test_a_line_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="a cron line is a text"):
        parse_cron(5)


@pytest.mark.shows("R-SCHED-15")
def test_a_line_is_understood_once() -> None:
    assert parse_cron("1 2 3 4 *") is parse_cron("1 2 3 4 *")


def test_every_nickname_can_be_read() -> None:
    assert {parse_cron(name).hours for name in NICKNAMES} >= {(0,)}


@pytest.mark.shows("R-SCHED-43")
def test_nine_in_new_york_is_another_hour_of_utc_in_summer() -> None:
    line = parse_cron("0 9 * * *")

    assert line.next_after(at("2024-03-09 12:00"), NEW_YORK) == at("2024-03-09 14:00")
    assert line.next_after(at("2024-03-09 15:00"), NEW_YORK) == at("2024-03-10 13:00")
    assert line.next_after(at("2024-11-02 15:00"), NEW_YORK) == at("2024-11-03 14:00")


@pytest.mark.shows("R-SCHED-44", "R-SCHED-45", "R-EDGE-32", "R-TEST-33")
@pytest.mark.parametrize(
    ("line", "start", "expected"),
    [
        ("30 2 * * *", "2024-03-09 12:00", ["2024-03-10 03:00", "2024-03-11 02:30"]),
        ("0,30 2 * * *", "2024-03-09 12:00", ["2024-03-10 03:00", "2024-03-11 02:00"]),
        ("30 2,3 * * *", "2024-03-09 12:00", ["2024-03-10 03:00", "2024-03-10 03:30"]),
        ("30 1 * * *", "2024-11-02 12:00", ["2024-11-03 01:30", "2024-11-04 01:30"]),
        ("0 * * * *", "2024-03-10 00:30", ["2024-03-10 01:00", "2024-03-10 03:00"]),
        ("*/30 2 * * *", "2024-03-09 12:00", ["2024-03-11 02:00", "2024-03-11 02:30"]),
        (
            "*/30 1 * * *",
            "2024-11-02 12:00",
            ["2024-11-03 01:00", "2024-11-03 01:30", "2024-11-03 01:00*", "2024-11-03 01:30*"],
        ),
    ],
)
def test_when_clocks_are_changed_named_times_run_once_and_intervals_go_on(
    line: str, start: str, expected: list[str]
) -> None:
    assert runs(line, start, len(expected), NEW_YORK) == expected


def test_a_named_time_does_not_run_again_in_the_second_hour() -> None:
    in_second_hour = at("2024-11-03 06:10")  # 01:10, for the second time

    assert parse_cron("30 1 * * *").next_after(in_second_hour, NEW_YORK) == at("2024-11-04 06:30")


# ------------------------------------------------------------------ whole years, worked out in another way

YEARS = [
    ("America/New_York", 2026),
    ("Europe/London", 2026),
    ("Australia/Sydney", 2026),
    ("Australia/Lord_Howe", 2026),
    ("America/Sao_Paulo", 2018),
    ("Pacific/Apia", 2011),  # it left out a whole day
    ("Africa/Casablanca", 2026),
]


def by_counting(cron: Cron, zone: tzinfo, year: int) -> list[int]:
    """Every quarter of an hour of a year that the clocks of the zone call one of the line."""
    start, end = at(f"{year}-01-01"), at(f"{year + 1}-01-01")
    shown = ((moment, datetime.fromtimestamp(moment, zone)) for moment in range(start, end, 900))
    return [moment for moment, one in shown if one.minute in cron.minutes and one.hour in cron.hours]


def by_the_calendar(cron: Cron, zone: tzinfo, year: int) -> list[int]:
    """Each named time of each day: as it is, or the first moment after the gap it lies in."""
    found = set()
    for day in range(-1, 367):
        for hour in cron.hours:
            for minute in cron.minutes:
                wall = datetime.combine(date(year, 1, 1), datetime.min.time()) + timedelta(
                    day, 0, 0, 0, minute, hour
                )
                moment = round(wall.replace(tzinfo=zone).timestamp())
                # Behind the gap the clocks show more than was asked for: go back to where they jumped.
                while datetime.fromtimestamp(moment - 60, zone).replace(tzinfo=None) >= wall:
                    moment -= 60
                found.add(moment)
    return sorted(one for one in found if at(f"{year}-01-01") <= one < at(f"{year + 1}-01-01"))


def all_runs(cron: Cron, zone: tzinfo, year: int) -> list[int]:
    found, moment = [], cron.next_after(at(f"{year}-01-01") - 1, zone)
    while moment is not None and moment < at(f"{year + 1}-01-01"):
        found.append(moment)
        moment = cron.next_after(moment, zone)
    return found


@pytest.mark.shows("R-SCHED-41", "R-SCHED-47", "R-TEST-29", "R-TEST-61")
@pytest.mark.parametrize(("name", "year"), YEARS)
@pytest.mark.parametrize("line", ["*/30 * * * *", "*/15 1-3 * * *"])
def test_intervals_follow_the_time_that_passes_through_a_whole_year(name: str, year: int, line: str) -> None:
    cron, zone = parse_cron(line), ZoneInfo(name)

    assert all_runs(cron, zone, year) == by_counting(cron, zone, year)


@pytest.mark.shows("R-SCHED-41", "R-SCHED-44", "R-SCHED-45", "R-TEST-29")
@pytest.mark.parametrize(("name", "year"), YEARS)
@pytest.mark.parametrize("line", ["30 2 * * *", "0 0 * * *", "15,45 0,1,2,3 * * *"])
def test_cp4_4_named_times_run_once_each_through_a_whole_year(name: str, year: int, line: str) -> None:
    cron, zone = parse_cron(line), ZoneInfo(name)

    assert all_runs(cron, zone, year) == by_the_calendar(cron, zone, year)


@pytest.mark.shows("R-SCHED-13")
@given(
    st.sampled_from(["* * * * *", "*/7 3 * * *", "30 2 * * *", "0 0 L * *", "5 4 * * 2#1", "*/20 0 1 * * *"]),
    st.sampled_from([UTC, NEW_YORK, ZoneInfo("Australia/Lord_Howe")]),
    st.integers(at("2020-01-01"), at("2030-01-01")),
)
def test_the_next_time_is_later_and_nothing_lies_between(line: str, zone: tzinfo, start: int) -> None:
    cron = parse_cron(line)

    first = cron.next_after(start, zone)

    assert first is not None
    assert first > start
    # Asked from any moment in between, the answer is the same.
    assert cron.next_after((start + first) // 2, zone) == first
    assert cron.next_after(first - 1, zone) == first
