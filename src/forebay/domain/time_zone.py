"""Time zones: wall-clock times as instants, and changes of the clocks.

All times are whole seconds since 1970, the resolution of cron. Zones come from the standard library, which
reads each once; nothing here reads the machine's own zone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from forebay.errors import ConfigError

DAY: Final = 86_400
CHANGE_WITHIN: Final = 730 * DAY


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return the zone of this IANA name; raise ConfigError if there is none."""
    if name == "UTC":
        return UTC  # also where no zone files are installed
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - every program would load it, and few have a schedule

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as exc:
        raise ConfigError(
            f"there is no time zone {name!r:.60}; use an IANA name such as Europe/Berlin "
            "(where no zone is known at all, install tzdata)"
        ) from exc


def wall_at(at: int, zone: tzinfo) -> datetime:
    """Return the wall-clock time of a zone at an instant."""
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)


def first_at(wall: datetime, zone: tzinfo) -> int:
    """Return the first instant with this wall-clock time in a zone; the end of the gap for a time that is
    skipped when clocks are put forward."""
    at = round(wall.replace(tzinfo=zone, fold=0).timestamp())
    shown = wall_at(at, zone)
    if shown == wall:
        return at
    # Computed with the offset before the gap, so `at` is after its end, by less than its length.
    gap = round((shown - wall).total_seconds())
    return _change_between(zone, at - gap, at)


def next_change(zone: tzinfo, after: int, until: int | None = None) -> int | None:
    """Return the first instant after this one with another offset; None if there is none in two years, or
    until the given end."""
    end = after + CHANGE_WITHIN if until is None else until
    # Day by day: no zone has ever changed its clocks and changed them back within one.
    while after < end:
        step = min(after + DAY, end)
        if _offset(zone, step) != _offset(zone, after):
            return _change_between(zone, after, step)
        after = step
    return None


def _change_between(zone: tzinfo, before: int, after: int) -> int:
    """Return the first instant with another offset than `before`, by bisection."""
    offset = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: tzinfo, at: int) -> timedelta:
    return datetime.fromtimestamp(at, zone).utcoffset() or timedelta()
