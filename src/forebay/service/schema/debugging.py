"""Shapes for whoever looks for a fault."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from forebay.app.advice import Advice
from forebay.app.masking import masked
from forebay.app.story import story
from forebay.domain.history import Timeline
from forebay.domain.job import Job
from forebay.domain.lifecycle import JobState
from forebay.errors import PayloadError
from forebay.service.schema.calls import CallShape, shown_call, value_of
from forebay.service.schema.looking import JobShape
from forebay.service.schema.shared import Asked, Shape, at, moment_of
from forebay.service.schema.steering import CommandShape, WorkerShape


class ContentShape(CallShape, frozen=True, kw_only=True):
    """A job in a queue, with its arguments; where they cannot be read, `payload_error` says why."""

    id: str
    task: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    run_at: datetime
    worker: str | None
    lease_expires_at: datetime | None


class ContentsAnswer(Shape, frozen=True, kw_only=True):
    """What is in a queue: what comes next, what runs, what is tried again later."""

    queue: str
    pending: list[ContentShape]
    running: list[ContentShape] | None
    retrying: list[ContentShape] | None


class MomentShape(Shape, frozen=True, kw_only=True):
    """Something that happened to a job."""

    at: datetime
    what: str
    detail: str


class TraceAnswer(Shape, frozen=True, kw_only=True):
    """A job with its result, and all that happened to it, oldest first."""

    job: JobShape
    result: Any
    result_error: str | None
    timeline: list[MomentShape]


class AdviceShape(Shape, frozen=True, kw_only=True):
    """What keeps a job, and what helps."""

    what: str
    todo: str


class InspectAnswer(Shape, frozen=True, kw_only=True):
    """A job as it is stored, and what could be done about it; nothing if it is well."""

    job: JobShape
    advice: list[AdviceShape]


class WorkerStateAnswer(Shape, frozen=True, kw_only=True):
    """What a worker has said with its last beat, and what its threads do; null if it has not said so in
    time."""

    worker: WorkerShape
    stacks: str | None


class SignalRequest(Asked, frozen=True, kw_only=True):
    """What a worker shall do. `status` asks for nothing."""

    signal: Literal["status", "pause", "resume", "shutdown"]


class SignalAnswer(Shape, frozen=True, kw_only=True):
    """The worker as it was when it was asked, and what it was asked."""

    worker: WorkerShape
    command: CommandShape | None


class SweepAnswer(Shape, frozen=True, kw_only=True):
    """A sweep has begun, unless one was under way."""

    has_begun: bool


def content_shape(job: Job) -> ContentShape:
    call = shown_call(job.payload)
    return ContentShape(
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


def trace_answer(timeline: Timeline, job: JobShape) -> TraceAnswer:
    lines = [
        MomentShape(at=moment_of(when), what=what, detail=detail) for when, what, detail in story(timeline)
    ]
    try:
        result, error = masked(value_of(timeline.job.result)), None
    except PayloadError as exc:
        result, error = None, str(exc)
    return TraceAnswer(job=job, result=result, result_error=error, timeline=lines)


def advice_shape(one: Advice) -> AdviceShape:
    return AdviceShape(what=one.what, todo=one.todo)
