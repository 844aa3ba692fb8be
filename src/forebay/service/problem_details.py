"""Table of problems: how an error is reported over a network, with its status in each protocol."""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from forebay.errors import (
    AlertNotFound,
    AlertRuleNotFound,
    ApiKeyNotFound,
    ConfigError,
    DuplicateJob,
    Forbidden,
    ForebayError,
    GradualReviveNotFound,
    IllegalTransition,
    InvalidJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    PayloadError,
    QueueClosed,
    QueueFull,
    QueueNotEmpty,
    QueueNotFound,
    RateLimited,
    ScheduleNotFound,
    SessionNotFound,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
    UnknownTask,
    WaitTimeout,
    WorkerNotFound,
)
from forebay.service.schema.base import Problem

# For an unavailable store: the length of the outage is unknown.
RETRY_SECONDS: Final = 1


class ProblemKind(NamedTuple):
    """Kind of problem. `code` is stable and for programs; titles and details are for people."""

    code: str
    status: int
    grpc: str
    title: str


BAD_REQUEST: Final = ProblemKind("bad_request", 400, "INVALID_ARGUMENT", "The request cannot be read")
UNSUPPORTED: Final = ProblemKind("unsupported", 405, "UNIMPLEMENTED", "There is no such operation")
NOT_FOUND: Final = ProblemKind("not_found", 404, "NOT_FOUND", "There is nothing at this address")
TOO_LARGE: Final = ProblemKind("too_large", 413, "RESOURCE_EXHAUSTED", "The request is too large")
TOO_SLOW: Final = ProblemKind("too_slow", 408, "DEADLINE_EXCEEDED", "The request took too long to arrive")
INTERNAL: Final = ProblemKind("internal", 500, "INTERNAL", "The service has an internal error")
INTERNAL_DETAIL: Final = "the service has an internal error; its log has the details"

# The first matching class counts, so subclasses come first.
_KINDS: Final[tuple[tuple[type[ForebayError], ProblemKind], ...]] = (
    (JobNotFound, ProblemKind("job_not_found", 404, "NOT_FOUND", "There is no such job")),
    (QueueNotFound, ProblemKind("queue_not_found", 404, "NOT_FOUND", "There is no such queue")),
    (WorkerNotFound, ProblemKind("worker_not_found", 404, "NOT_FOUND", "There is no such worker")),
    (ScheduleNotFound, ProblemKind("schedule_not_found", 404, "NOT_FOUND", "There is no such schedule")),
    (
        GradualReviveNotFound,
        ProblemKind("gradual_revive_not_found", 404, "NOT_FOUND", "There is no such gradual revive"),
    ),
    (ApiKeyNotFound, ProblemKind("key_not_found", 404, "NOT_FOUND", "There is no such API key")),
    (SessionNotFound, ProblemKind("session_not_found", 404, "NOT_FOUND", "There is no such session")),
    (AlertNotFound, ProblemKind("alert_not_found", 404, "NOT_FOUND", "There is no such alert")),
    (AlertRuleNotFound, ProblemKind("rule_not_found", 404, "NOT_FOUND", "There is no such alert rule")),
    (Unauthenticated, ProblemKind("unauthenticated", 401, "UNAUTHENTICATED", "The caller is not known")),
    (Forbidden, ProblemKind("forbidden", 403, "PERMISSION_DENIED", "The API key does not allow this")),
    (TooManyRequests, ProblemKind("too_many_requests", 429, "RESOURCE_EXHAUSTED", "Requests come too fast")),
    (LeaseLost, ProblemKind("lease_lost", 409, "ABORTED", "The lease is not held any more")),
    (DuplicateJob, ProblemKind("duplicate", 409, "ALREADY_EXISTS", "The key or id is taken")),
    (
        IllegalTransition,
        ProblemKind("illegal_state", 409, "FAILED_PRECONDITION", "Its state does not allow this"),
    ),
    (JobFailed, ProblemKind("job_failed", 409, "FAILED_PRECONDITION", "The job has failed for good")),
    (JobCancelled, ProblemKind("job_cancelled", 409, "FAILED_PRECONDITION", "The job was cancelled")),
    (WaitTimeout, ProblemKind("not_final", 409, "FAILED_PRECONDITION", "The job has not ended")),
    (QueueClosed, ProblemKind("queue_closed", 409, "FAILED_PRECONDITION", "The queue takes no new jobs")),
    (QueueNotEmpty, ProblemKind("queue_not_empty", 409, "FAILED_PRECONDITION", "The queue still has jobs")),
    (QueueFull, ProblemKind("queue_full", 429, "RESOURCE_EXHAUSTED", "The queue is full")),
    (RateLimited, ProblemKind("rate_limited", 429, "RESOURCE_EXHAUSTED", "Jobs come too fast")),
    (PayloadError, ProblemKind("payload", 422, "INVALID_ARGUMENT", "The arguments cannot be stored")),
    (InvalidJob, ProblemKind("invalid", 422, "INVALID_ARGUMENT", "The request is not valid")),
    (ConfigError, ProblemKind("invalid", 422, "INVALID_ARGUMENT", "The request is not valid")),
    (UnknownTask, ProblemKind("unknown_task", 422, "INVALID_ARGUMENT", "There is no such task")),
    (StoreRefused, ProblemKind("payload", 422, "INVALID_ARGUMENT", "The store cannot store this")),
    (StoreBusy, ProblemKind("busy", 503, "ABORTED", "Another transaction holds what this needs")),
    (StoreUnavailable, ProblemKind("store_unavailable", 503, "UNAVAILABLE", "The store does not answer")),
    (StoreError, ProblemKind("store_unusable", 503, "UNAVAILABLE", "The store cannot be used as it is")),
)


def kind_of(error: ForebayError) -> ProblemKind:
    """Return the kind of problem that an error is reported as."""
    return next((kind for known, kind in _KINDS if isinstance(error, known)), INTERNAL)


def codes() -> dict[str, ProblemKind]:
    """Return every code that a client may get."""
    general = (BAD_REQUEST, UNSUPPORTED, NOT_FOUND, TOO_LARGE, TOO_SLOW, INTERNAL)
    return {kind.code: kind for kind in (*general, *(kind for _, kind in _KINDS))}


def field_of(error: ForebayError) -> str | None:
    """Return the field of the request to change, if the error names one."""
    return error.field if isinstance(error, InvalidJob) else None


def holder_of(error: ForebayError) -> str | None:
    """Return the job that holds the key or id."""
    return error.holder if isinstance(error, DuplicateJob) else None


def retry_after_of(error: ForebayError) -> int | None:
    """Return after how many whole seconds the request may be repeated; None if that is unknown."""
    if isinstance(error, (QueueFull, RateLimited, TooManyRequests)):
        return None if error.retry_after is None else max(1, ceil(error.retry_after))
    return RETRY_SECONDS if isinstance(error, StoreError) and not isinstance(error, StoreRefused) else None


def problem_of(error: ForebayError) -> Problem:
    """Return the problem for an error."""
    return make_problem(
        kind_of(error),
        str(error),
        field=field_of(error),
        holder=holder_of(error),
        retry_after_seconds=retry_after_of(error),
    )


def make_problem(
    kind: ProblemKind,
    detail: str,
    *,
    field: str | None = None,
    holder: str | None = None,
    retry_after_seconds: int | None = None,
) -> Problem:
    """Return a problem of this kind."""
    return Problem(
        type=f"urn:forebay:problem:{kind.code}",
        title=kind.title,
        status=kind.status,
        code=kind.code,
        detail=detail,
        field=field,
        holder=holder,
        retry_after_seconds=retry_after_seconds,
    )
