"""Cron expressions: parse them, and compute the next matching time.

Five fields (minute, hour, day of month, month, day of week) or six (seconds first). Where both day fields are
restricted a day needs to match only one of them. A field that begins with `*` or `?` restricts nothing by
itself, and then a day must match both. That is the rule of Debian's cron and others.

When clocks are changed, the rule of the same cron holds. An expression that names its hours and minutes means
wall-clock times, so it runs once at each: a skipped one right after the gap, a repeated one at its first
occurrence. An expression whose minutes or hours begin with `*` means "every ...", and follows elapsed time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from forebay.domain.time_zone import first_at, next_change, wall_at
from forebay.errors import ConfigError

LAST_YEAR: Final = 2100
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SATURDAY: Final = 6
_WEEK: Final = 7
_FIELDS: Final = (5, 6)

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(NamedTuple):
    name: str
    minimum: int
    maximum: int
    names: Mapping[str, int] = MappingProxyType({})
    is_day: bool = False

    def parse_number(self, text: str) -> int:
        number = self.names.get(text, int(text) if text.isascii() and text.isdigit() else -1)
        if not self.minimum <= number <= self.maximum:
            raise ValueError(
                f"{text or 'nothing'} is no {self.name}, which goes from {self.minimum} to {self.maximum}"
            )
        return number


_SECONDS: Final = _Field("second", 0, 59)
_MINUTES: Final = _Field("minute", 0, 59)
_HOURS: Final = _Field("hour", 0, 23)
_MONTH_DAYS: Final = _Field("day of the month", 1, 31, is_day=True)
_MONTHS_FIELD: Final = _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
_WEEK_DAYS: Final = _Field(
    "day of the week", 0, 7, {name: day for day, name in enumerate(_DAYS)}, is_day=True
)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed cron expression. Days of the week count from Sunday, 0."""

    line: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    days: frozenset[int]
    has_last_day: bool
    has_last_workday: bool
    weekdays: frozenset[int]
    numbered: frozenset[tuple[int, int]]  # the third Tuesday is (2, 3)
    last_weekdays: frozenset[int]
    needs_both: bool
    is_elapsed: bool

    def next_after(self, after: int, zone: tzinfo) -> int | None:
        """Return the first matching instant later than this one in a time zone; None if there is none."""
        return (
            self._next_by_elapsed_time(after, zone)
            if self.is_elapsed
            else self._next_by_wall_clock(after, zone)
        )

    def _next_by_wall_clock(self, after: int, zone: tzinfo) -> int | None:
        # A later wall-clock time is never an earlier instant by `first_at`, so the first match is the next.
        wall: datetime | None = wall_at(after, zone)
        while wall is not None:
            wall = self._wall_after(wall)
            at = None if wall is None else first_at(wall, zone)
            if at is not None and at > after:
                return at
        return None

    def _next_by_elapsed_time(self, after: int, zone: tzinfo) -> int | None:
        """Return the next match by elapsed time. Between two changes of the clocks it equals wall-clock
        time."""
        while True:
            shown = wall_at(after, zone)
            wall = self._wall_after(shown)
            if wall is None:
                return None
            at = after + round((wall - shown).total_seconds())
            change = next_change(zone, after, at)
            if change is None:
                return at
            if self._fits(wall_at(change, zone)):
                return change
            after = change

    def _fits(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self._has_date(wall.date())
        )

    def _wall_after(self, wall: datetime) -> datetime | None:
        start = wall + _SECOND
        time_of_day = self._time_from(start.time()) if self._has_date(start.date()) else None
        if time_of_day is not None:
            return datetime.combine(start.date(), time_of_day)
        day = self._day_after(start.date())
        return None if day is None else datetime.combine(day, self._first_time())

    def _first_time(self) -> time:
        return time(self.hours[0], self.minutes[0], self.seconds[0])

    def _time_from(self, start: time) -> time | None:
        """Return the first matching time of a day that is not earlier."""
        if start.hour in self.hours:
            if start.minute in self.minutes:
                second = _first_from(self.seconds, start.second)
                if second is not None:
                    return time(start.hour, start.minute, second)
            minute = _first_from(self.minutes, start.minute + 1)
            if minute is not None:
                return time(start.hour, minute, self.seconds[0])
        hour = _first_from(self.hours, start.hour + 1)
        return None if hour is None else time(hour, self.minutes[0], self.seconds[0])

    def _day_after(self, day: date) -> date | None:
        day += _DAY
        while day.year < LAST_YEAR:
            if day.month not in self.months:
                day = _next_month(day)
            elif self._has_date(day):
                return day
            else:
                day += _DAY
        return None

    def _has_date(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        last = (_next_month(day) - _DAY).day
        in_month, in_week = self._has_day(day, last), self._has_weekday(day, last)
        return (in_month and in_week) if self.needs_both else (in_month or in_week)

    def _has_day(self, day: date, last: int) -> bool:
        return (
            day.day in self.days
            or (self.has_last_day and day.day == last)
            or (self.has_last_workday and day.day == _last_workday(day, last))
        )

    def _has_weekday(self, day: date, last: int) -> bool:
        weekday = day.isoweekday() % _WEEK
        return (
            weekday in self.weekdays
            or (weekday, (day.day - 1) // _WEEK + 1) in self.numbered
            or (weekday in self.last_weekdays and day.day > last - _WEEK)
        )


@lru_cache(maxsize=4_096)
def parse_cron(line: str) -> Cron:
    """Parse an expression; raise ConfigError, which is a ValueError, for one that is wrong or can never
    match."""
    if not isinstance(line, str):
        raise ConfigError(f"a cron line is a text, not {line!r:.60}")
    fields = NICKNAMES.get(line.strip().lower(), line).upper().split()
    if len(fields) not in _FIELDS:
        raise ConfigError(_refusal(line, _shape(line)))
    try:
        cron = _parse_fields(line, *(["0", *fields] if len(fields) == min(_FIELDS) else fields))
    except ValueError as exc:
        raise ConfigError(_refusal(line, str(exc))) from exc
    # The calendar repeats after 28 years, as long as no century comes between.
    if cron._day_after(date(1999, 12, 31)) is None:
        raise ConfigError(_refusal(line, "no date ever matches it"))
    return cron


def _shape(line: str) -> str:
    if line.strip().startswith("@"):
        return f"the short forms are {', '.join(NICKNAMES)}"
    return "it needs five fields (minute, hour, day, month, day of the week), or six with seconds first"


def _refusal(line: str, reason: str) -> str:
    # Both are cut: the reason quotes parts of the line, which may be long.
    return f"the cron line {line!r:.100} cannot be used: {reason:.200}"


def _parse_fields(line: str, second: str, minute: str, hour: str, day: str, month: str, weekday: str) -> Cron:
    days, words = _parse_numbers(_MONTH_DAYS, day, _is_last_word)
    weekdays, special = _parse_numbers(_WEEK_DAYS, weekday, _is_special_weekday)
    numbered = {_parse_numbered(word) for word in special if "#" in word}
    last = {_WEEK_DAYS.parse_number(word.replace("L", "", 1)) % _WEEK for word in special if "#" not in word}
    return Cron(
        line=line,
        seconds=tuple(sorted(_parse_numbers(_SECONDS, second)[0])),
        minutes=tuple(sorted(_parse_numbers(_MINUTES, minute)[0])),
        hours=tuple(sorted(_parse_numbers(_HOURS, hour)[0])),
        months=frozenset(_parse_numbers(_MONTHS_FIELD, month)[0]),
        days=frozenset(days),
        has_last_day="L" in words,
        has_last_workday="LW" in words,
        weekdays=frozenset(number % _WEEK for number in weekdays),
        numbered=frozenset(numbered),
        last_weekdays=frozenset(last),
        needs_both=day[0] in "*?" or weekday[0] in "*?",
        is_elapsed=minute[0] == "*" or hour[0] == "*",
    )


def _never(word: str) -> bool:
    return False


def _parse_numbers(
    field: _Field, text: str, is_special: Callable[[str], bool] = _never
) -> tuple[set[int], list[str]]:
    """Return the numbers of a field, and its words that mean more than a number."""
    numbers: set[int] = set()
    special: list[str] = []
    for part in text.split(","):
        if is_special(part):
            special.append(part)
        else:
            numbers.update(_parse_span(field, part))
    return numbers, special


def _parse_span(field: _Field, part: str) -> range:
    if part.endswith("W"):
        raise ValueError(f"{part} (the working day nearest to a day) is not supported; LW is the last one")
    base, slash, step_text = part.partition("/")
    step = 1
    if slash:
        if not (step_text.isascii() and step_text.isdigit() and int(step_text) > 0):
            raise ValueError(f"the step in {part} must be a whole number from 1")
        step = int(step_text)
    if base == "*" or (base == "?" and field.is_day):
        return range(field.minimum, _maximum(field) + 1, step)
    low_text, dash, high_text = base.partition("-")
    low = field.parse_number(low_text)
    if not dash:
        return range(low, (max(low, _maximum(field)) if slash else low) + 1, step)
    high = field.parse_number(high_text)
    if field is _WEEK_DAYS and high == 0 < low:
        high = _WEEK  # FRI-SUN
    if high < low:
        raise ValueError(f"the range {base} goes backwards; write it as two, with a comma")
    return range(low, high + 1, step)


def _maximum(field: _Field) -> int:
    return _SATURDAY if field is _WEEK_DAYS else field.maximum


def _is_last_word(word: str) -> bool:
    return word in ("L", "LW")


def _is_special_weekday(word: str) -> bool:
    if word == "L":
        raise ValueError("L needs its day of the week: 5L is the last Friday of the month")
    is_last = word.replace("L", "", 1) in (*"01234567", *_DAYS) and "L" in word
    return "#" in word or is_last


def _parse_numbered(word: str) -> tuple[int, int]:
    day, _, number = word.partition("#")
    if number not in {"1", "2", "3", "4", "5"}:
        raise ValueError(f"{word} needs a number from 1 to 5 after the #")
    return _WEEK_DAYS.parse_number(day) % _WEEK, int(number)


def _first_from(numbers: tuple[int, ...], minimum: int) -> int | None:
    return next((number for number in numbers if number >= minimum), None)


def _next_month(day: date) -> date:
    return date(day.year + 1, 1, 1) if day.month == len(_MONTHS) else date(day.year, day.month + 1, 1)


def _last_workday(day: date, last: int) -> int:
    return last - max(0, date(day.year, day.month, last).isoweekday() - 5)
