"""What can be said about a job besides its arguments: on the task, or for one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypedDict, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from forebay.app.times import Instant, Length, instant_at, length_ms
from forebay.domain.job import Json, NewJob, UniqueUntil
from forebay.domain.retry import DEFAULT_POLICY, PRESETS, RetryPolicy
from forebay.errors import ConfigError, InvalidJob

T = TypeVar("T")
OnTaken = Literal["return", "raise"]
Until = Literal["final", "started"]


class TaskOptions(TypedDict, total=False):
    """Options of a task; each can be replaced for one call by `using`.

    Lengths of time are timedeltas or seconds. `timeout` None means no limit, `retry` is a policy or the name
    of a preset.
    """

    queue: str
    priority: int
    retries: int
    max_crashes: int
    retry: RetryPolicy | str
    timeout: Length | None
    lease: Length
    expires: Length | Instant
    tags: Sequence[str]
    metadata: Mapping[str, Json]


class CallOptions(TaskOptions, total=False):
    """Options of one call."""

    id: str
    delay: Length
    run_at: Instant
    deadline: Length | Instant
    unique: str
    unique_until: Until
    once: str
    once_for: Length
    correlation_id: str
    on_conflict: OnTaken


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job without its payload. Times that count from the call are kept apart until it is made."""

    job: NewJob
    expires_in_ms: int | None = None
    deadline_in_ms: int | None = None
    on_conflict: OnTaken = "return"

    def made(self, payload: bytes, now_ms: Callable[[], int]) -> NewJob:
        """The job to be inserted. The clock is asked only if a time counts from now."""
        if self.expires_in_ms is None and self.deadline_in_ms is None:
            return self.job.with_payload(payload)
        now = now_ms()
        return replace(
            self.job,
            payload=payload,
            expires_at=self.job.expires_at if self.expires_in_ms is None else now + self.expires_in_ms,
            deadline_at=self.job.deadline_at if self.deadline_in_ms is None else now + self.deadline_in_ms,
        )


# Options that are a field of the job as they are, and those that are lengths of time.
_PLAIN: Final = {
    "queue": "queue",
    "priority": "priority",
    "id": "id",
    "unique": "unique_key",
    "once": "once_key",
    "correlation_id": "correlation_id",
}
_LENGTHS: Final = {"timeout": "timeout_ms", "lease": "lease_ms", "delay": "delay_ms", "once_for": "once_ms"}


def draft(task: str, options: CallOptions) -> Draft:
    """The job these options describe; raises InvalidJob or ConfigError naming what is wrong."""
    check_names(options, CallOptions)
    fields: dict[str, object] = {
        **{field: options[name] for name, field in _PLAIN.items() if name in options},  # type: ignore[literal-required]
        **{field: _length(options, name) for name, field in _LENGTHS.items() if name in options},
    }
    expires_at, expires_in = _moment("expires", options.get("expires"))
    deadline_at, deadline_in = _moment("deadline", options.get("deadline"))
    job = NewJob(
        task=task,
        policy=_policy(options),
        run_at=instant_at("run_at", options["run_at"]) if "run_at" in options else None,
        expires_at=expires_at,
        deadline_at=deadline_at,
        tags=_tags(options.get("tags", ())),
        metadata=_metadata(options.get("metadata", {})),
        unique_until=UniqueUntil(_one_of("unique_until", options.get("unique_until", "final"), Until)),
        **fields,  # type: ignore[arg-type]  # NewJob checks each of them
    )
    return Draft(
        job=job,
        expires_in_ms=expires_in,
        deadline_in_ms=deadline_in,
        on_conflict=_one_of("on_conflict", options.get("on_conflict", "return"), OnTaken),
    )


def check_names(options: CallOptions, kind: type[TaskOptions]) -> None:
    """Raise ConfigError for an option that does not exist, or not for a task."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"there is no option {name!r}; the options are {', '.join(sorted(known))}")


def _length(options: CallOptions, name: str) -> int | None:
    value: Length | None = options[name]  # type: ignore[literal-required]
    return None if value is None and name == "timeout" else length_ms(name, value)  # type: ignore[arg-type]


def _moment(name: str, value: Length | Instant | None) -> tuple[int | None, int | None]:
    """An instant, or the wait until it."""
    if value is None:
        return None, None
    if isinstance(value, datetime):
        return instant_at(name, value), None
    wait = length_ms(name, value)
    if wait < 0:
        raise InvalidJob(f"{name} must not lie before the call: {value!r:.60}", field=name)
    return None, wait


def _tags(value: Sequence[str]) -> tuple[str, ...]:
    # A text is a sequence of texts too, and "urgent" would become six tags.
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidJob(f"tags must be a list of texts, not {value!r:.60}", field="tags")
    return tuple(value)


def _metadata(value: Mapping[str, Json]) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        raise InvalidJob(f"metadata must be a dict, not {value!r:.60}", field="metadata")
    return dict(value)


def _one_of(name: str, value: T, words: object) -> T:
    if value not in get_args(words):
        raise ConfigError(f"{name} must be one of {', '.join(get_args(words))}, not {value!r:.60}")
    return value


def _policy(options: CallOptions) -> RetryPolicy:
    chosen = options.get("retry", DEFAULT_POLICY)
    if isinstance(chosen, str):
        if chosen not in PRESETS:
            raise ConfigError(f"there is no retry preset {chosen!r}; there are {', '.join(sorted(PRESETS))}")
        chosen = PRESETS[chosen]
    if not isinstance(chosen, RetryPolicy):
        raise ConfigError(f"retry must be a RetryPolicy or the name of a preset, not {chosen!r:.60}")
    changes: dict[str, int] = {}
    if "retries" in options:
        changes["max_retries"] = options["retries"]
    if "max_crashes" in options:
        changes["max_crashes"] = options["max_crashes"]
    return replace(chosen, **changes) if changes else chosen
