"""Time zones: which instant a time on the wall is, and when the clocks are changed.

Whole seconds since 1970 everywhere: that is what cron speaks of. Zones come from the standard library, which
reads each once; nothing here asks for the machine's own zone.
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
    """The zone of this IANA name; raises ConfigError if there is none."""
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
    """What the clocks of a zone show at an instant."""
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)


def first_at(wall: datetime, zone: tzinfo) -> int:
    """The first instant at which the clocks of a zone show this time; the end of the gap for one that is
    skipped, when they are put forward."""
    at = round(wall.replace(tzinfo=zone, fold=0).timestamp())
    shown = wall_at(at, zone)
    if shown == wall:
        return at
    # Counted with the offset from before the gap, so `at` lies behind its end, by less than it is long.
    gap = round((shown - wall).total_seconds())
    return _change_between(zone, at - gap, at)


def next_change(zone: tzinfo, after: int, until: int | None = None) -> int | None:
    """The first instant after this one from which on another offset holds; None if there is none in two
    years, or until the end given."""
    end = after + CHANGE_WITHIN if until is None else until
    # Day by day: no zone has ever changed its clocks and changed them back within one.
    while after < end:
        step = min(after + DAY, end)
        if _offset(zone, step) != _offset(zone, after):
            return _change_between(zone, after, step)
        after = step
    return None


def _change_between(zone: tzinfo, before: int, after: int) -> int:
    """The first instant with another offset than `before`, by halving."""
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
