"""Responses of debug operations."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from forebay.domain.job import Job
from forebay.domain.job_history import Timeline
from forebay.domain.job_states import JobState
from forebay.errors import PayloadError
from forebay.operations.job_diagnosis import DiagnosisItem
from forebay.operations.job_timeline import timeline_lines
from forebay.payload.masking import mask
from forebay.service.schema.base import RequestModel, ResponseModel, at, moment_of
from forebay.service.schema.job_views import JobView
from forebay.service.schema.payloads import CallView, redacted_call, value_of
from forebay.service.schema.workers_and_commands import CommandView, WorkerView


class QueuedJobView(CallView, frozen=True, kw_only=True):
    """Job in a queue, with its arguments; `payload_error` says why they cannot be read."""

    id: str
    task: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    run_at: datetime
    worker: str | None
    lease_expires_at: datetime | None


class QueueContentsResponse(ResponseModel, frozen=True, kw_only=True):
    """Contents of a queue: next jobs, running jobs, jobs that will be retried."""

    queue: str
    pending: list[QueuedJobView]
    running: list[QueuedJobView] | None
    retrying: list[QueuedJobView] | None


class TimelineEntryView(ResponseModel, frozen=True, kw_only=True):
    """Entry in the timeline of a job."""

    at: datetime
    what: str
    detail: str


class TraceResponse(ResponseModel, frozen=True, kw_only=True):
    """Job with its result and its timeline, oldest entry first."""

    job: JobView
    result: Any
    result_error: str | None
    timeline: list[TimelineEntryView]


class DiagnosisView(ResponseModel, frozen=True, kw_only=True):
    """Obstacle of a job, and its remedy."""

    what: str
    todo: str


class InspectResponse(ResponseModel, frozen=True, kw_only=True):
    """Job as it is stored, with its diagnosis; empty if nothing is wrong."""

    job: JobView
    diagnosis: list[DiagnosisView]


class WorkerStateResponse(ResponseModel, frozen=True, kw_only=True):
    """Worker as its last heartbeat describes it, and its thread stacks; null if it has not responded in
    time."""

    worker: WorkerView
    stacks: str | None


class SignalRequest(RequestModel, frozen=True, kw_only=True):
    """Signal to a worker. `status` sends nothing."""

    signal: Literal["status", "pause", "resume", "shutdown"]


class SignalResponse(ResponseModel, frozen=True, kw_only=True):
    """Worker as it was before the signal, and the command that was sent."""

    worker: WorkerView
    command: CommandView | None


class SweepResponse(ResponseModel, frozen=True, kw_only=True):
    """Whether a sweep was started; false if one is running."""

    has_begun: bool


def queued_job_view(job: Job) -> QueuedJobView:
    call = redacted_call(job.payload)
    return QueuedJobView(
        args=call.args,
        kwargs=call.kwargs,
        payload_base64=call.payload_base64,
        payload_error=call.payload_error,
        id=job.id,
        task=job.task,
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        failures=job.failures,
        run_at=moment_of(job.run_at),
        worker=job.worker,
        lease_expires_at=at(job.lease_expires_at),
    )


def trace_response(timeline: Timeline, job: JobView) -> TraceResponse:
    lines = [
        TimelineEntryView(at=moment_of(at_ms), what=what, detail=detail)
        for at_ms, what, detail in timeline_lines(timeline)
    ]
    try:
        result, error = mask(value_of(timeline.job.result)), None
    except PayloadError as exc:
        result, error = None, str(exc)
    return TraceResponse(job=job, result=result, result_error=error, timeline=lines)


def diagnosis_view(item: DiagnosisItem) -> DiagnosisView:
    return DiagnosisView(what=item.obstacle, todo=item.remedy)
