"""Durations and instants of users, converted to the milliseconds that all lower layers use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from forebay.domain.job import LATEST_AT
from forebay.errors import InvalidJob

Duration: TypeAlias = timedelta | float
Instant: TypeAlias = datetime


def duration_ms(field: str, value: Duration) -> int:
    """Return a duration in milliseconds, from a timedelta or from seconds."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidJob(
            f"{field} must be a timedelta or a number of seconds, not {value!r:.60}", field=field
        )
    try:
        return round(value * 1_000)
    except (ValueError, OverflowError):
        raise InvalidJob(f"{field} must be a finite number of seconds, not {value!r}", field=field) from None


def duration_within(field: str, value: Duration, min_ms: int, max_ms: int) -> int:
    """Return a duration between two bounds; the error is in seconds, like the caller's value."""
    ms = duration_ms(field, value)
    if not min_ms <= ms <= max_ms:
        bounds = f"{min_ms / 1_000:g} to {max_ms / 1_000:,.0f} seconds"
        raise InvalidJob(f"{field} must be from {bounds}, not {value!r:.60}", field=field)
    return ms


def instant_ms(field: str, value: Instant) -> int:
    """Return an instant in milliseconds. A datetime without a time zone is ambiguous and refused."""
    if not isinstance(value, datetime):
        raise InvalidJob(f"{field} must be a datetime, not {value!r:.60}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidJob(
            f"{field} has no time zone: say which, for example {field}=when.astimezone()", field=field
        )
    # Whole milliseconds by integer arithmetic: a float of this size is off by up to half a microsecond.
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return check_instant(field, since // timedelta(milliseconds=1))


def check_instant(field: str, at: int) -> int:
    """Return an instant that a store can hold; raise InvalidJob for others."""
    if not 0 <= at <= LATEST_AT:
        raise InvalidJob(f"{field} must lie between the years 1970 and 2100", field=field)
    return at


def as_datetime(at: int | None) -> datetime | None:
    """Return a stored instant as an aware datetime in UTC."""
    return None if at is None else datetime.fromtimestamp(at / 1_000, UTC)
