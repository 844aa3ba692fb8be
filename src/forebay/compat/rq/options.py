"""Options of RQ: translated to Forebay's, or refused with the alternative."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from forebay.app.job_options import SupportsId
from forebay.compat.unsupported import Unsupported
from forebay.domain.job_validation import MAX_PRIORITY
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import Curve, RetryPolicy
from forebay.errors import ConfigError

INTERVALS: Final = "rq_intervals"
_DURATION: Final = re.compile(r"(-?\d+)([dhms]?)\Z")
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "": 1}
_WAYS_OUT: Final = {
    "on_success": "use a workflow, or enqueue a follow-up in the task",
    "on_failure": "use a workflow with on_failure, or on_error of the app",
    "on_stopped": "use on_error of the app",
    "repeat": "declare a schedule: app.cron or app.every",
    "webhooks": "set up a channel of alerts",
    "pipeline": "use enqueue_many of the app, which stores all jobs or none",
    "unique": "use task.using(unique_key=...) of a task of forebay",
    "group_id": "use a workflow",
    "failure_ttl": "dead jobs are kept as long as their queue says: `forebay queues configure`",
    "is_async": "use forebay.testing, or call the function",
    "serializer": "arguments are kept as JSON with types",
    "enqueue_many": "use enqueue_many of the app",
    "empty": "use `forebay queues purge`",
}


def refuse(name: str, context: str) -> NoReturn:
    """Raise Unsupported with the alternative."""
    way = _WAYS_OUT.get(name, "see docs/guide/importing.md for what there is")
    raise Unsupported(f"{context} {name} of RQ is not offered here: {way}")


class Retry:
    """Number of retries of a failed job, and the delay in seconds before each."""

    def __init__(self, max: int, interval: int | Sequence[int] = 0, enqueue_at_front: bool = False) -> None:
        if enqueue_at_front:
            refuse("enqueue_at_front", "the option of Retry()")
        self.max = max
        self.intervals: list[int] = [interval] if isinstance(interval, int) else list(interval) or [0]
        if (
            type(max) is not int
            or max < 1
            or not all(type(each) is int and each >= 0 for each in self.intervals)
        ):
            raise ConfigError("Retry takes a number of retries from 1 on, and seconds from 0 on")

    @property
    def policy(self) -> RetryPolicy:
        first = self.intervals[0] * 1_000
        return RetryPolicy(
            max_retries=self.max,
            curve=Curve.FIXED,
            base_ms=first,
            floor_ms=0,
            ceiling_ms=max(first, RetryPolicy().ceiling_ms),
            jitter_high=0.0,
        )


class Dependency:
    """Jobs that must end first; with `allow_failure` also by failing."""

    def __init__(
        self,
        jobs: SupportsId | str | Sequence[SupportsId | str],
        allow_failure: bool = False,
        enqueue_at_front: bool = False,
    ) -> None:
        if enqueue_at_front:
            refuse("enqueue_at_front", "the option of Dependency()")
        several = jobs if isinstance(jobs, Sequence) and not isinstance(jobs, str) else [jobs]
        self.ids: list[str] = [each if isinstance(each, str) else each.id for each in several]
        self.allow_failure = allow_failure


def take_options(given: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Remove RQ's options from the keyword arguments of a call; return them translated, and result_ttl."""
    for name in (
        "on_success",
        "on_failure",
        "on_stopped",
        "repeat",
        "webhooks",
        "pipeline",
        "unique",
        "failure_ttl",
    ):
        if given.pop(name, None):
            refuse(name, "the option")
    chosen: dict[str, Any] = {}
    for name, (option, convert) in _CALL.items():
        value = given.pop(name, None)
        if value is not None:
            chosen[option] = convert(value)
    if given.pop("at_front", False):
        chosen["priority"] = MAX_PRIORITY
    chosen.update(_dependency_options(given.pop("depends_on", None)))
    metadata: dict[str, Json] = dict(given.pop("meta", None) or {})
    description = given.pop("description", None)
    if description:
        metadata["description"] = str(description)
    metadata.update(_retry_options(given.pop("retry", None), chosen))
    if metadata:
        chosen["metadata"] = metadata
    return chosen, parse_seconds(given.pop("result_ttl", None), "result_ttl")


def _retry_options(retry: Retry | None, chosen: dict[str, Any]) -> dict[str, Json]:
    if retry is None:
        chosen["retries"] = 0  # in RQ a failed job is not retried by default
        return {}
    if not isinstance(retry, Retry):
        raise ConfigError(f"retry must be a Retry of forebay.compat.rq, not {retry!r:.60}")
    chosen["retry_policy"] = retry.policy
    return {INTERVALS: list[Json](retry.intervals)} if len({*retry.intervals}) > 1 else {}


def _dependency_options(value: Any) -> Mapping[str, Any]:
    if not value:
        return {}
    dependency = value if isinstance(value, Dependency) else Dependency(value)
    return {"depends_on": dependency.ids, "on_failure": "ignore" if dependency.allow_failure else "hold"}


def parse_seconds(value: int | str | None, name: str) -> int | None:
    """Return a time in seconds; it may be given as `90`, `5m`, `2h` or `1d`."""
    if value is None:
        return None
    match = _DURATION.match(str(value))
    if match is None:
        raise ConfigError(f"{name} must be seconds or a text like 1h or 23m, not {value!r:.60}")
    return int(match[1]) * _UNITS[match[2]]


def _parse_timeout(value: int | str) -> int | None:
    seconds = parse_seconds(value, "job_timeout")
    if seconds == 0:
        raise ConfigError("job_timeout 0 is not allowed: -1 is without end")
    return None if seconds is None or seconds < 0 else seconds


def make_aware(when: datetime) -> datetime:
    """Return the time with the local zone if it has none, as in RQ."""
    if not isinstance(when, datetime):
        raise ConfigError(f"enqueue_at takes a datetime, not {when!r:.60}; for a length there is enqueue_in")
    return when if when.tzinfo is not None else when.astimezone()


def check_timedelta(value: timedelta) -> timedelta:
    if not isinstance(value, timedelta):
        raise ConfigError(f"enqueue_in takes a timedelta, not {value!r:.60}")
    return value


_CALL: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "job_timeout": ("timeout", _parse_timeout),
    "ttl": ("expires", lambda value: parse_seconds(value, "ttl")),
    "job_id": ("id", str),
}
