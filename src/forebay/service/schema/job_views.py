"""Views of jobs, attempts, events and dependency graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from forebay.domain.dependencies import Edge, redact_parent
from forebay.domain.job import Job
from forebay.domain.job_history import Attempt, Event, Timeline
from forebay.domain.job_states import JobState, Status
from forebay.domain.job_views import JobSummary
from forebay.domain.settlement import OutcomeKind
from forebay.service.schema.base import ResponseModel, Values, at, moment_of, seconds
from forebay.service.schema.payloads import CallView, redacted_call


class JobListItem(ResponseModel, frozen=True, kw_only=True):
    """Job in a list."""

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
    """Attempt that did not complete."""

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
    """Event in the history of a job."""

    kind: str
    at: datetime
    attempt: int | None
    actor: str | None
    detail: str


class EdgeView(ResponseModel, frozen=True, kw_only=True):
    """Dependency of this job, or a dependant of it."""

    id: str
    edge: str
    on_failure: str


class ProgressView(ResponseModel, frozen=True, kw_only=True):
    """Latest progress that an attempt has reported."""

    done: float
    total: float | None
    message: str
    at: datetime


class JobView(CallView, frozen=True, kw_only=True):
    """Job with everything except its result, which has an endpoint of its own. Values under names that look
    secret are masked; only a claim returns them. `attempt` grows with each claim, `run_number` with each
    started attempt."""

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
    """Edge of a graph: `child` waits for `parent`."""

    parent: str
    child: str
    edge: str
    on_failure: str


class GraphView(ResponseModel, frozen=True, kw_only=True):
    """Jobs that are connected with one by dependencies; `is_complete` is false if the graph was cut."""

    jobs: list[JobListItem]
    edges: list[GraphEdgeView]
    is_complete: bool


class JobList(ResponseModel, frozen=True, kw_only=True):
    """Jobs, newest first. `after` is the start of the next page, null at the end. A page may be short, or
    even empty, and still have a next one: a search stops after 100,000 jobs that do not match. Then
    `scanned_back_to` says that jobs created before it were not scanned."""

    jobs: list[JobListItem]
    after: str | None
    has_more: bool
    scanned_back_to: datetime | None = None
    total: int | None = None
    total_is_exact: bool | None = None


class PeekResponse(ResponseModel, frozen=True, kw_only=True):
    """Next jobs to be claimed, in order."""

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


def redact_list_item(item: JobListItem) -> JobListItem:
    """Return a list item for a caller that may not know all jobs: its reason names no job of another
    queue."""
    return item if item.reason is None else replace(item, reason=redact_parent(item.reason))


def job_view(timeline: Timeline, parents: Sequence[Edge], dependants: Sequence[Edge]) -> JobView:
    """Return the view of a job with its history."""
    job, progress = timeline.job, timeline.progress.progress
    call = redacted_call(job.payload)
    return JobView(
        args=call.args,
        kwargs=call.kwargs,
        payload_base64=call.payload_base64,
        payload_error=call.payload_error,
        max_retries=job.policy.max_retries,
        **_job_fields(job),
        attempts=[_attempt_view(attempt) for attempt in timeline.attempts],
        events=[_event_view(event) for event in timeline.events],
        depends_on=[_edge_view(edge, edge.parent) for edge in parents],
        dependants=[_edge_view(edge, edge.child) for edge in dependants],
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
    """Return a view without the ids of hidden jobs, wherever they are named."""
    if not hidden:
        return view

    def redact(text: str | None) -> str | None:
        for job_id in hidden:
            text = text and text.replace(job_id, "a job of another queue")
        return text

    return replace(
        view,
        parent_id=None if view.parent_id in hidden else view.parent_id,
        cancel_reason=redact(view.cancel_reason),
        reason=redact(view.reason),
        events=[replace(event, detail=redact(event.detail) or "") for event in view.events],
        depends_on=[edge for edge in view.depends_on if edge.id not in hidden],
        dependants=[edge for edge in view.dependants if edge.id not in hidden],
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
    """Return the fields of a view that are copied from the job."""
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
                parent=edge.parent,
                child=edge.child,
                edge=edge.state.value,
                on_failure=edge.on_failure.value,
            )
            for edge in edges
        ],
        is_complete=is_complete,
    )


def _edge_view(edge: Edge, other: str) -> EdgeView:
    return EdgeView(id=other, edge=edge.state.value, on_failure=edge.on_failure.value)
