"""Shapes for whoever looks at jobs, queues and the service itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from forebay.domain.dependencies import Edge, redact_parent
from forebay.domain.history import Attempt, Event, Timeline
from forebay.domain.job import Job, JobSummary
from forebay.domain.lifecycle import JobState, Status
from forebay.domain.settlement import OutcomeKind
from forebay.service.schema.base import ResponseModel, Values, at, moment_of, seconds
from forebay.service.schema.payloads import CallView, redacted_call


class JobListItem(ResponseModel, frozen=True, kw_only=True):
    """A job as a line of a list."""

    id: str
    queue: str
    task: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_seconds: float | None
    worker: str | None
    reason: str | None
    tags: list[str]


class AttemptView(ResponseModel, frozen=True, kw_only=True):
    """An attempt that did not end well."""

    attempt: int
    outcome: OutcomeKind
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    duration_seconds: float | None
    error_type: str
    error: str
    traceback: str


class EventView(ResponseModel, frozen=True, kw_only=True):
    """A rare thing that happened to a job."""

    kind: str
    at: datetime
    attempt: int | None
    actor: str | None
    detail: str


class EdgeView(ResponseModel, frozen=True, kw_only=True):
    """A job that this one waits for, or that waits for this one."""

    id: str
    edge: str
    on_failure: str


class ProgressView(ResponseModel, frozen=True, kw_only=True):
    """How far the newest attempt has come, as it has said."""

    done: float
    total: float | None
    message: str
    at: datetime


class JobView(CallView, frozen=True, kw_only=True):
    """A job with all that is known of it but its result, which has an address of its own. What stands under
    names that look secret is masked: only who claims the job is told. `attempt` grows with each claim,
    `run_number` with each attempt that has begun."""

    id: str
    queue: str
    task: str
    state: JobState
    status: Status
    is_final: bool
    priority: int
    attempt: int
    run_number: int
    failures: int
    crashes: int
    max_retries: int
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    expires_at: datetime | None
    lease_expires_at: datetime | None
    worker: str | None
    timeout_seconds: float | None
    unique_key: str | None
    idempotency_key: str | None
    metadata: Values
    tags: list[str]
    correlation_id: str | None
    parent_id: str | None
    limit_keys: dict[str, str]
    sequence: str | None
    cost: int
    cancel_reason: str | None
    reason: str | None
    attempts: list[AttemptView]
    events: list[EventView]
    depends_on: list[EdgeView]
    dependants: list[EdgeView]
    progress: ProgressView | None


class GraphEdgeView(ResponseModel, frozen=True, kw_only=True):
    """An edge of a graph: `child` waits for `parent`."""

    parent: str
    child: str
    edge: str
    on_failure: str


class GraphView(ResponseModel, frozen=True, kw_only=True):
    """The jobs around one that wait for each other; `is_whole` is false where it went on."""

    jobs: list[JobListItem]
    edges: list[GraphEdgeView]
    is_complete: bool


class JobList(ResponseModel, frozen=True, kw_only=True):
    """Jobs, newest first. `after` is where the next page begins, null at the end. A page may be short, or
    even empty, and still have a next one: after 100,000 jobs that do not fit a search stops, and
    `scanned_back_to`
    says that jobs which were created before that were not looked at."""

    jobs: list[JobListItem]
    after: str | None
    has_more: bool
    scanned_back_to: datetime | None = None
    total: int | None = None
    total_is_exact: bool | None = None


class PeekResponse(ResponseModel, frozen=True, kw_only=True):
    """The jobs that would be claimed next, in order."""

    jobs: list[JobListItem]


def job_list_item(job: JobSummary) -> JobListItem:
    return JobListItem(
        id=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        failures=job.failures,
        created_at=moment_of(job.created_at),
        run_at=moment_of(job.run_at),
        started_at=at(job.started_at),
        finished_at=at(job.finished_at),
        duration_seconds=seconds(job.duration_ms),
        worker=job.worker,
        reason=job.reason,
        tags=list(job.tags),
    )


def redact_list_item(line: JobListItem) -> JobListItem:
    """A line for somebody who may not know of all jobs: its reason names none of another queue."""
    return line if line.reason is None else replace(line, reason=redact_parent(line.reason))


def job_view(timeline: Timeline, parents: Sequence[Edge], dependants: Sequence[Edge]) -> JobView:
    """All that is known of a job."""
    job, progress = timeline.job, timeline.progress.progress
    call = redacted_call(job.payload)
    return JobView(
        args=call.args,
        kwargs=call.kwargs,
        payload_base64=call.payload_base64,
        payload_error=call.payload_error,
        max_retries=job.policy.max_retries,
        **_job_fields(job),
        attempts=[_attempt_view(one) for one in timeline.attempts],
        events=[_event_view(one) for one in timeline.events],
        depends_on=[_edge_view(one, one.parent) for one in parents],
        dependants=[_edge_view(one, one.child) for one in dependants],
        progress=None
        if progress is None
        else ProgressView(
            done=progress.done,
            total=progress.total,
            message=progress.message,
            at=moment_of(progress.at),
        ),
    )


def redact_job(view: JobView, hidden: Collection[str]) -> JobView:
    """A job for somebody who may not know of some others, which may be named all over it."""
    if not hidden:
        return view

    def hushed(text: str | None) -> str | None:
        for job_id in hidden:
            text = text and text.replace(job_id, "a job of another queue")
        return text

    return replace(
        view,
        parent_id=None if view.parent_id in hidden else view.parent_id,
        cancel_reason=hushed(view.cancel_reason),
        reason=hushed(view.reason),
        events=[replace(one, detail=hushed(one.detail) or "") for one in view.events],
        depends_on=[one for one in view.depends_on if one.id not in hidden],
        dependants=[one for one in view.dependants if one.id not in hidden],
    )


_COPIED_FIELDS = (
    *("id", "queue", "task", "state", "status", "is_final", "priority", "attempt", "run_number"),
    *("failures", "crashes", "worker", "unique_key", "metadata", "correlation_id", "parent_id"),
    *("limit_keys", "sequence", "cost", "cancel_reason", "reason"),
)
_TIME_FIELDS = (
    *("created_at", "updated_at", "run_at", "started_at", "finished_at", "deadline_at", "expires_at"),
    "lease_expires_at",
)


def _job_fields(job: Job) -> Values:
    """What a shape takes over from a record."""
    return {
        **{name: getattr(job, name) for name in _COPIED_FIELDS},
        **{name: at(getattr(job, name)) for name in _TIME_FIELDS},
        "tags": list(job.tags),
        "timeout_seconds": seconds(job.timeout_ms),
        "idempotency_key": job.idempotency_key,
    }


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        worker=attempt.worker,
        started_at=at(attempt.started_at),
        ended_at=moment_of(attempt.ended_at),
        duration_seconds=None
        if attempt.started_at is None
        else (attempt.ended_at - attempt.started_at) / 1_000,
        error_type=attempt.error.type,
        error=attempt.error.message,
        traceback=attempt.error.traceback,
    )


def _event_view(event: Event) -> EventView:
    return EventView(
        kind=event.kind.value,
        at=moment_of(event.occurred_at),
        attempt=event.attempt,
        actor=event.actor,
        detail=event.detail,
    )


def graph_view(jobs: Iterable[JobSummary], edges: Iterable[Edge], *, is_complete: bool) -> GraphView:
    return GraphView(
        jobs=[job_list_item(job) for job in jobs],
        edges=[
            GraphEdgeView(
                parent=one.parent, child=one.child, edge=one.state.value, on_failure=one.on_failure.value
            )
            for one in edges
        ],
        is_complete=is_complete,
    )


def _edge_view(edge: Edge, other: str) -> EdgeView:
    return EdgeView(id=other, edge=edge.state.value, on_failure=edge.on_failure.value)
