"""Job template: a job without its payload, built from checked options and reused for each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from forebay.app.job_options import (
    CallOptions,
    ConflictAction,
    KeyFrom,
    OnFailureName,
    Until,
    check_names,
)
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.durations_and_instants import (
    Duration,
    Instant,
    check_instant,
    duration_ms,
    duration_within,
    instant_ms,
)
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import (
    DAY_MS,
    LATEST_AT,
    MAX_TIMEOUT_MS,
    MIN_LEASE_MS,
    MIN_TIMEOUT_MS,
    Dependency,
    JobId,
    NewJob,
    OnFailure,
    UniqueUntil,
)
from forebay.domain.job_validation import check_integer, check_kind, check_text
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import DEFAULT_POLICY, MAX_RETRIES, PRESETS, RetryPolicy
from forebay.errors import ConfigError, InvalidJob

T = TypeVar("T")


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A job without its payload. Times relative to the call are stored apart until `build`."""

    job: NewJob
    expires_in_ms: int | None = None
    deadline_in_ms: int | None = None
    on_conflict: ConflictAction = "return"
    limit_by: dict[str, KeyFrom] = {}
    sequence_by: KeyFrom | None = None

    @property
    def depends_on_arguments(self) -> bool:
        """True if limit keys or the sequence come from the arguments."""
        return bool(self.limit_by) or self.sequence_by is not None

    def build(self, payload: bytes, now_ms: Callable[[], int]) -> NewJob:
        """Return the job to insert. The clock is read only if a time is relative to the call."""
        if self.expires_in_ms is None and self.deadline_in_ms is None:
            return self.job.with_payload(payload)
        now = now_ms()
        return replace(
            self.job,
            payload=payload,
            expires_at=_resolve_instant("expires", now, self.expires_in_ms, self.job.expires_at),
            deadline_at=_resolve_instant("deadline", now, self.deadline_in_ms, self.job.deadline_at),
        )


def _resolve_instant(name: str, now: int, wait: int | None, instant: int | None) -> int | None:
    return instant if wait is None else check_instant(name, now + wait)


# Options that map to one field of the job; those among them that are short texts; lengths of time with their
# bounds. All are checked here, so that an error names the option that the caller wrote.
_DIRECT_FIELDS: Final = {
    "queue": "queue",
    "priority": "priority",
    "id": "id",
    "unique_key": "unique_key",
    "idempotency_key": "idempotency_key",
    "correlation_id": "correlation_id",
    "sequence": "sequence",
    "cost": "cost",
    "client": "client",
}
_TEXTS: Final = ("id", "unique_key", "idempotency_key", "correlation_id", "client")
_DURATIONS: Final = {
    "timeout": ("timeout_ms", MIN_TIMEOUT_MS, MAX_TIMEOUT_MS),
    "lease": ("lease_ms", MIN_LEASE_MS, DAY_MS),
    "delay": ("delay_ms", 0, LATEST_AT),
    "idempotency_ttl": ("idempotency_ttl_ms", 1, 366 * DAY_MS),
}


def make_template(task: str, options: CallOptions) -> JobTemplate:
    """Build the template that these options describe; raise InvalidJob or ConfigError naming a wrong one."""
    check_names(options, CallOptions)
    expires_at, expires_in = _instant_or_wait("expires", options.get("expires"))
    deadline_at, deadline_in = _instant_or_wait("deadline", options.get("deadline"))
    job = NewJob(
        task=task,
        policy=_retry_policy(options),
        run_at=_run_at(options),
        expires_at=expires_at,
        deadline_at=deadline_at,
        tags=_tags(options.get("tags", ())),
        metadata=_metadata(options.get("metadata", {})),
        limit_keys=_limit_keys(options),
        unique_until=UniqueUntil(_check_choice("unique_until", options.get("unique_until", "final"), Until)),
        depends_on=_dependencies(options),
        allow_missing=options.get("allow_missing", False) is True,
        **_fields(cast(Mapping[str, Any], options)),  # NewJob checks the rest
    )
    return JobTemplate(
        job=job,
        expires_in_ms=expires_in,
        deadline_in_ms=deadline_in,
        on_conflict=_check_choice("on_conflict", options.get("on_conflict", "return"), ConflictAction),
        limit_by=_limit_by(options),
        sequence_by=_sequence_by(options),
    )


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the job that map directly to an option."""
    for name in _TEXTS:
        if name in options:
            check_text(name, options[name])
    return {
        **{field: options[name] for name, field in _DIRECT_FIELDS.items() if name in options},
        **{
            field: _duration(name, options[name], least, most)
            for name, (field, least, most) in _DURATIONS.items()
            if name in options
        },
    }


def _duration(name: str, value: Duration | None, min_ms: int, max_ms: int) -> int | None:
    if value is None and name == "timeout":
        return None
    return duration_within(name, cast(Duration, value), min_ms, max_ms)  # refuses None


def _run_at(options: CallOptions) -> int | None:
    if "run_at" not in options:
        return None
    if options.get("delay"):
        raise InvalidJob("give delay or run_at, not both", field="run_at")
    return instant_ms("run_at", options["run_at"])


def _instant_or_wait(name: str, value: Duration | Instant | None) -> tuple[int | None, int | None]:
    """Return an instant, or the wait until it; the other value is None."""
    if value is None:
        return None, None
    if isinstance(value, datetime):
        return instant_ms(name, value), None
    wait = duration_ms(name, value)
    if wait < 0:
        raise InvalidJob(f"{name} must not lie before the call: {value!r:.60}", field=name)
    return None, wait


def _tags(value: Sequence[str]) -> tuple[str, ...]:
    # A str is a sequence of strings too: "urgent" would become six tags.
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidJob(f"tags must be a list of texts, not {value!r:.60}", field="tags")
    return tuple(value)


def _metadata(value: Mapping[str, Json]) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        raise InvalidJob(f"metadata must be a dict, not {value!r:.60}", field="metadata")
    return dict(value)


def _dependencies(options: CallOptions) -> tuple[Dependency, ...]:
    """Return the dependencies of the job, given as ids or handles."""
    on_failure = OnFailure(_check_choice("on_failure", options.get("on_failure", "cancel"), OnFailureName))
    value = options.get("depends_on", ())
    parents = [value] if isinstance(value, str) or hasattr(value, "id") else value
    if not isinstance(parents, Iterable):
        raise InvalidJob(
            f"depends_on must be a list of handles or ids, not {value!r:.60}", field="depends_on"
        )
    ids = [parent if isinstance(parent, str) else getattr(parent, "id", parent) for parent in parents]
    return dependencies_of(dict.fromkeys(cast(list[JobId], ids)), on_failure)  # NewJob refuses a wrong id


def _limit_keys(options: CallOptions) -> dict[str, str]:
    """Return the explicit limit keys. The fairness key is one of them; its own option wins."""
    value = options.get("limit_keys", {})
    if not isinstance(value, Mapping):
        raise InvalidJob(f"limit_keys must be a dict of texts, not {value!r:.60}", field="limit_keys")
    if "fairness_key" not in options:
        return dict(value)
    check_text("fairness_key", options["fairness_key"])
    return {**value, FAIRNESS: options["fairness_key"]}


def _limit_by(options: CallOptions) -> dict[str, KeyFrom]:
    """Return the sources of limit keys that are not given explicitly."""
    value = options.get("limit_by", {})
    if not isinstance(value, Mapping):
        raise InvalidJob(f"limit_by must be a dict, not {value!r:.60}", field="limit_by")
    for kind, source in value.items():
        check_kind(kind, "limit_by")
        _check_source("limit_by", source)
    if "fairness_by" not in options:
        return dict(value)
    _check_source("fairness_by", options["fairness_by"])
    return {**value, FAIRNESS: options["fairness_by"]}


def _sequence_by(options: CallOptions) -> KeyFrom | None:
    """Return the source of the sequence; None if the call names a sequence, or says that there is none."""
    source = options.get("sequence_by")
    if source is not None:
        _check_source("sequence_by", source)
    return None if "sequence" in options else source


def _check_source(name: str, source: KeyFrom) -> None:
    if not (isinstance(source, str) or callable(source)):
        raise InvalidJob(f"{name} must name an argument or be a function, not {source!r:.60}", field=name)


def _check_choice(name: str, value: T, choices: object) -> T:
    if value not in get_args(choices):
        raise ConfigError(f"{name} must be one of {', '.join(get_args(choices))}, not {value!r:.60}")
    return value


def _retry_policy(options: CallOptions) -> RetryPolicy:
    policy = options.get("retry_policy", DEFAULT_POLICY)
    if isinstance(policy, str):
        if policy not in PRESETS:
            raise ConfigError(f"there is no retry preset {policy!r}; there are {', '.join(sorted(PRESETS))}")
        policy = PRESETS[policy]
    if not isinstance(policy, RetryPolicy):
        raise ConfigError(f"retry_policy must be a RetryPolicy or the name of a preset, not {policy!r:.60}")
    changes: dict[str, int] = {}
    if "retries" in options:
        check_integer("retries", options["retries"], 0, MAX_RETRIES)
        changes["max_retries"] = options["retries"]
    if "max_crashes" in options:
        check_integer("max_crashes", options["max_crashes"], 0, MAX_RETRIES)
        changes["max_crashes"] = options["max_crashes"]
    return replace(policy, **changes) if changes else policy
