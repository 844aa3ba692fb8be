"""Times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import pytest

from forebay.domain.durations_and_instants import as_datetime, duration_ms, duration_within, instant_ms
from forebay.errors import InvalidJob


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (1, 1_000),
        (0.25, 250),
        (1.0004, 1_000),
        (-2, -2_000),
        (timedelta(minutes=2), 120_000),
        (timedelta(milliseconds=3), 3),
        (timedelta(microseconds=1_600), 2),
        (timedelta(days=30), 2_592_000_000),
    ],
)
def test_a_length_is_a_timedelta_or_seconds(value: float | timedelta, ms: int) -> None:
    length = duration_ms("delay", value)

    assert (length, type(length)) == (ms, int)


@pytest.mark.parametrize("value", ["5", None, True, Decimal(5), datetime(2030, 1, 1, tzinfo=UTC), [1]])
def test_anything_else_is_no_length(value: Any) -> None:
    with pytest.raises(InvalidJob, match=r"delay must be a timedelta or a number of seconds") as caught:
        duration_ms("delay", value)

    assert caught.value.field == "delay"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_length_is_finite(value: float) -> None:
    with pytest.raises(InvalidJob, match="timeout must be a finite number") as caught:
        duration_ms("timeout", value)

    assert caught.value.field == "timeout"


@pytest.mark.shows("R-JOB-17")
@pytest.mark.parametrize(
    ("value", "at"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2030, 1, 1, 12, tzinfo=UTC), 1_893_499_200_000),
        (datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))), 1_893_499_200_000),
        (datetime(2030, 1, 1, 12, 0, 0, 1_999, tzinfo=UTC), 1_893_499_200_001),
        (datetime(2099, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 4_102_444_799_999),
    ],
)
def test_an_instant_is_whole_milliseconds_utc(value: datetime, at: int) -> None:
    assert instant_ms("run_at", value) == at


class Nowhere(tzinfo):
    """A time zone that does not say how far it is from UTC."""

    def utcoffset(self, when: datetime | None) -> None: ...

    def dst(self, when: datetime | None) -> None: ...

    def tzname(self, when: datetime | None) -> str:
        return "nowhere"


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=Nowhere())])  # noqa: DTZ001 - that is the point
def test_an_instant_without_a_zone_is_refused(value: datetime) -> None:
    with pytest.raises(InvalidJob, match="run_at has no time zone") as caught:
        instant_ms("run_at", value)

    assert caught.value.field == "run_at"


@pytest.mark.parametrize("value", [5, "2030-01-01", None])
def test_anything_else_is_no_instant(value: Any) -> None:
    with pytest.raises(InvalidJob, match="run_at must be a datetime"):
        instant_ms("run_at", value)


def test_a_stored_instant_comes_back_in_utc() -> None:
    assert as_datetime(1_893_499_200_001) == datetime(2030, 1, 1, 12, 0, 0, 1_000, tzinfo=UTC)
    assert as_datetime(None) is None


@pytest.mark.parametrize(("value", "ms"), [(1, 1_000), (timedelta(seconds=60), 60_000)])
def test_a_duration_between_its_bounds_is_returned_in_milliseconds(value: float | timedelta, ms: int) -> None:
    assert duration_within("lease", value, 1_000, 60_000) == ms


@pytest.mark.parametrize("value", [0.999, 60.001, timedelta(minutes=2)])
def test_a_duration_beyond_its_bounds_is_refused_in_seconds(value: float | timedelta) -> None:
    with pytest.raises(InvalidJob, match="lease must be from 1 to 60 seconds, not") as caught:
        duration_within("lease", value, 1_000, 60_000)

    assert caught.value.field == "lease"


@pytest.mark.parametrize("year", [1969, 2101])
def test_an_instant_that_no_store_can_hold_is_refused(year: int) -> None:
    with pytest.raises(InvalidJob, match="run_at must lie between the years 1970 and 2100"):
        instant_ms("run_at", datetime(year, 6, 1, tzinfo=UTC))
