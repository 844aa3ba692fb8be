"""Times as users write them, in the milliseconds that everything below counts in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from forebay.errors import InvalidJob

Length: TypeAlias = timedelta | float
Instant: TypeAlias = datetime


def length_ms(field: str, value: Length) -> int:
    """A length of time: a timedelta, or seconds."""
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


def instant_at(field: str, value: Instant) -> int:
    """An instant in milliseconds; a datetime without a zone could mean any of many and is refused."""
    if not isinstance(value, datetime):
        raise InvalidJob(f"{field} must be a datetime, not {value!r:.60}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidJob(
            f"{field} has no time zone: say which, for example {field}=when.astimezone()", field=field
        )
    # Whole milliseconds by integer arithmetic: a float of this size is off by up to half a microsecond.
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def as_datetime(at: int | None) -> datetime | None:
    """A stored instant as an aware datetime in UTC."""
    return None if at is None else datetime.fromtimestamp(at / 1_000, UTC)
