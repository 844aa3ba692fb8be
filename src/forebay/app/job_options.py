"""Options of jobs besides their arguments: defaults of an app, options of a task and of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypedDict, cast

from forebay.domain.durations_and_instants import Duration, Instant
from forebay.domain.job import JobId
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import ConfigError

ConflictAction = Literal["return", "raise"]
Until = Literal["final", "started"]
OnFailureName = Literal["cancel", "fail", "ignore", "hold"]
KeyFrom = str | Callable[..., object]  # the name of an argument, or a function of all of them


class SupportsId(Protocol):
    """A job by its id: a handle or a record."""

    @property
    def id(self) -> JobId: ...


class TaskOptions(TypedDict, total=False):
    """Options of a task, and defaults of an app; each can be replaced for one call by `using`.

    Lengths of time are timedeltas or seconds. `timeout` None means no limit, `retry_policy` is a policy or
    the name of a preset.
    """

    queue: str
    priority: int
    retries: int
    max_crashes: int
    retry_policy: RetryPolicy | str
    timeout: Duration | None
    lease: Duration
    expires: Duration | Instant | None
    tags: Sequence[str]
    metadata: Mapping[str, Json]
    limit_keys: Mapping[str, str]
    limit_by: Mapping[str, KeyFrom]
    fairness_key: str
    fairness_by: KeyFrom
    sequence: str | None
    sequence_by: KeyFrom
    cost: int
    client: str


class CallOptions(TaskOptions, total=False):
    """Options of one call."""

    id: str
    delay: Duration
    run_at: Instant
    deadline: Duration | Instant
    unique_key: str
    unique_until: Until
    idempotency_key: str
    idempotency_ttl: Duration
    correlation_id: str
    on_conflict: ConflictAction
    depends_on: Sequence[str | SupportsId] | str | SupportsId
    on_failure: OnFailureName
    allow_missing: bool


def merge_options(upper: CallOptions, lower: CallOptions) -> CallOptions:
    """Merge the options of two layers; the upper one wins. A policy there also replaces the counts below
    it."""
    hidden = ("retries", "max_crashes") if "retry_policy" in upper else ()
    inherited = {name: value for name, value in lower.items() if name not in hidden}
    return cast(CallOptions, {**inherited, **upper})  # the names and types of both are those of the class


def check_names(options: CallOptions, kind: type[TaskOptions], others: Iterable[str] = ()) -> None:
    """Raise ConfigError for an unknown option, or one that a task cannot have; names of `others` are
    allowed."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(_unknown_option_message(name, sorted({*known, *others})))


def _unknown_option_message(name: str, known: Sequence[str]) -> str:
    if name in CallOptions.__annotations__:
        return f"there is no option {name!r} of a task; give it to one call: task.using({name}=...)"
    from difflib import get_close_matches  # noqa: PLC0415 - only when an option was mistyped

    matches = get_close_matches(name, known, n=1, cutoff=0.75)
    guess = f"did you mean {matches[0]}? The" if matches else "the"
    return f"there is no option {name!r}; {guess} options are {', '.join(known)}"
