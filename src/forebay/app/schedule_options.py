"""Options of schedules: planned times, catch-up, overlap, uniqueness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypedDict, cast

from forebay.app.job_options import CallOptions, merge_options
from forebay.app.job_template import make_template
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.domain.durations_and_instants import Duration, Instant, duration_within, instant_ms
from forebay.domain.job import DAY_MS
from forebay.domain.schedule import MAX_LENGTH_MS, MIN_EVERY_MS, CatchUp, Overlap, ScheduleDefinition
from forebay.domain.time_zone import first_at, zone_of
from forebay.errors import ConfigError, InvalidJob, UnknownTask
from forebay.payload.codec import encode_call

CatchUpName = Literal["all", "latest", "none"]
OverlapName = Literal["allow", "skip", "queue"]


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule besides its times. Lengths are timedeltas or seconds.

    `timezone` is an IANA name; a datetime without a zone belongs to it. `catch_up` applies to runs that were
    missed while no worker ran. "all" enqueues the newest `catch_up_limit` (10) of the last `catch_up_within`
    (a day), "latest" one, "none" none. `overlap` applies to a run whose predecessor is not final: "allow" it,
    "skip" it, or "queue" one run until then. With `unique_key` at most one job is enqueued in `unique_for`
    (300 s).
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
    """Options of a schedule with its times: a cron line, an interval or an instant."""

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
    """Build the definition of a schedule; raise an error for a wrong value before anything is stored."""
    scheduled = _require_task(registry, task)
    positional, named = tuple(args), dict(kwargs or {})
    scheduled.check_fit(positional, named)
    payload = encode_call(positional, named, limit=scheduled.max_payload)
    template = make_template(scheduled.name, merge_options(options, scheduled.options))
    return ScheduleDefinition(
        name=name,
        job=template.job.with_payload(payload),
        expires_ms=template.expires_in_ms,
        deadline_ms=template.deadline_in_ms,
        is_declared=is_declared,
        **timing_fields(timing),
    )


def _require_task(registry: Registry, task: str | Task[..., Any]) -> Task[..., Any]:
    name = task.name if isinstance(task, Task) else task
    if not isinstance(name, str):
        raise ConfigError(f"a schedule is for a task or the name of one, not {task!r:.60}")
    if name not in registry:
        raise UnknownTask(
            f"no task is called {name!r} in this program, so its workers could not run the jobs"
        )
    return registry[name]


def timing_fields(timing: ScheduleTimingOptions) -> dict[str, Any]:
    """Return the fields of a definition for these options; raise ConfigError for an unknown one."""
    options = cast(Mapping[str, Any], timing)
    for name in options:
        if name not in ScheduleTimingOptions.__annotations__:
            names = ", ".join(sorted(ScheduleTimingOptions.__annotations__))
            raise ConfigError(f"a schedule has no option {name!r}; the options are {names}")
    return {
        **{field: options[name] for name, field in _DIRECT_FIELDS.items() if name in options},
        **{
            field: duration_within(name, options[name], least, most)
            for name, (field, least, most) in _DURATIONS.items()
            if name in options
        },
        **{
            field: _schedule_instant(name, options[name], options.get("timezone"))
            for name, field in _INSTANTS.items()
            if name in options
        },
        **{
            name: _check_choice(name, options[name], kind) for name, kind in _ENUMS.items() if name in options
        },
    }


def _schedule_instant(field: str, value: Any, timezone: str | None) -> int:
    """Return an instant in milliseconds; one without a zone belongs to the time zone of the schedule."""
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
