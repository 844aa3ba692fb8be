"""What programs say about a schedule: when its jobs run, and what becomes of those that cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypedDict, cast

from forebay.app.options import CallOptions, make_template, merge_options
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.domain.durations import Duration, Instant, duration_within, instant_ms
from forebay.domain.job import DAY_MS
from forebay.domain.schedule import MAX_LENGTH_MS, MIN_EVERY_MS, CatchUp, Overlap, ScheduleDefinition
from forebay.domain.time_zone import first_at, zone_of
from forebay.errors import ConfigError, InvalidJob, UnknownTask
from forebay.payload.codec import encode_call

CatchUpName = Literal["all", "latest", "none"]
OverlapName = Literal["allow", "skip", "queue"]


class ScheduleOptions(TypedDict, total=False):
    """What can be said about a schedule besides its times. Lengths are timedeltas or seconds.

    `timezone` is an IANA name; datetimes without a zone are meant in it. `catch_up` is for runs that nobody
    was there to fire: "all" enqueues the newest `catch_up_limit` (10) of the time `catch_up_within` (a day),
    "latest" one, "none" none. `overlap` is for runs whose job before has not ended: "allow" them, "skip"
    them, or "queue" one until it has. With `unique` at most one job is enqueued in `unique_for` (300 s).
    """

    timezone: str
    start: Instant
    end: Instant
    jitter: Duration
    catch_up: CatchUpName
    catch_up_limit: int
    catch_up_within: Duration
    overlap: OverlapName
    unique_key: str
    unique_for: Duration
    max_runs: int


class ScheduleTimingOptions(ScheduleOptions, total=False):
    """The same with the times: one of a cron line, an interval and an instant."""

    cron: str
    every: Duration
    at: Instant


_DURATIONS: Final = {
    "every": ("every_ms", MIN_EVERY_MS, MAX_LENGTH_MS),
    "jitter": ("jitter_ms", 0, DAY_MS),
    "catch_up_within": ("catch_up_ms", 0, MAX_LENGTH_MS),
    "unique_for": ("unique_ms", MIN_EVERY_MS, MAX_LENGTH_MS),
}
_INSTANTS: Final = {"at": "at", "start": "start_at", "end": "end_at"}
_DIRECT_FIELDS: Final = {
    "cron": "cron",
    "timezone": "timezone",
    "catch_up_limit": "catch_up_limit",
    "unique_key": "unique_key",
    "max_runs": "max_runs",
}
_ENUMS: Final[dict[str, type[StrEnum]]] = {"catch_up": CatchUp, "overlap": Overlap}


def make_definition(
    registry: Registry,
    name: str,
    task: str | Task[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: CallOptions,
    timing: ScheduleTimingOptions,
    *,
    is_declared: bool = False,
) -> ScheduleDefinition:
    """The schedule that this describes; raises what is wrong with it before anything is stored."""
    known = _require_task(registry, task)
    placed, named = tuple(args), dict(kwargs or {})
    known.check_fit(placed, named)
    payload = encode_call(placed, named, limit=known.max_payload)
    drafted = make_template(known.name, merge_options(options, known.options))
    return ScheduleDefinition(
        name=name,
        job=drafted.job.with_payload(payload),
        expires_ms=drafted.expires_in_ms,
        deadline_ms=drafted.deadline_in_ms,
        is_declared=is_declared,
        **timing_fields(timing),
    )


def _require_task(registry: Registry, task: str | Task[..., Any]) -> Task[..., Any]:
    name = task.name if isinstance(task, Task) else task
    if not isinstance(name, str):
        raise ConfigError(f"a schedule is for a task or the name of one, not {task!r:.60}")
    if name not in registry:
        raise UnknownTask(f"no task is called {name!r} in this program, so nobody could run its jobs")
    return registry[name]


def timing_fields(timing: ScheduleTimingOptions) -> dict[str, Any]:
    """The fields of a definition that options of these names mean."""
    given = cast(Mapping[str, Any], timing)
    for name in given:
        if name not in ScheduleTimingOptions.__annotations__:
            options = ", ".join(sorted(ScheduleTimingOptions.__annotations__))
            raise ConfigError(f"a schedule has no option {name!r}; the options are {options}")
    return {
        **{field: given[name] for name, field in _DIRECT_FIELDS.items() if name in given},
        **{
            field: duration_within(name, given[name], least, most)
            for name, (field, least, most) in _DURATIONS.items()
            if name in given
        },
        **{
            field: _schedule_instant(name, given[name], given.get("timezone"))
            for name, field in _INSTANTS.items()
            if name in given
        },
        **{name: _check_choice(name, given[name], words) for name, words in _ENUMS.items() if name in given},
    }


def _schedule_instant(field: str, value: Any, timezone: str | None) -> int:
    """An instant; one without a zone is meant in that of the schedule, if it names one."""
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return instant_ms(field, value)
    if timezone is None:
        raise InvalidJob(f"{field} has no time zone: give it one, or the schedule a timezone", field=field)
    at = first_at(value.replace(microsecond=0), zone_of(timezone))
    return instant_ms(field, datetime.fromtimestamp(at, UTC).replace(microsecond=value.microsecond))


def _check_choice(name: str, value: Any, choices: type[StrEnum]) -> StrEnum:
    if value not in list(choices):
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r:.60}")
    return choices(value)
