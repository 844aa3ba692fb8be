"""Schedules: requests and views."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import replace

from forebay.domain.job import DAY_MS, NewJob, QueueName
from forebay.domain.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
)
from forebay.payload.codec import encode_tagged_call
from forebay.service.schema.base import (
    Moment,
    Priority,
    Queue,
    RequestModel,
    ResponseModel,
    Task,
    Values,
    at,
    in_ms,
    length,
    moment_of,
    seconds,
)
from forebay.service.schema.payloads import CallView, check_not_masked, redacted_call

_Length = Annotated[float, Meta(ge=0, le=366 * DAY_MS / 1_000)]


class ScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Definition of a schedule: one of `cron`, `every_seconds` and `at` says when to enqueue the job. Other
    settings of a known schedule stay, such as retries, tags and keys. Its arguments stay too if neither
    `args` nor `kwargs` is given."""

    task: Task
    queue: Queue = "default"
    args: Annotated[list[Any], Meta(max_length=100)] | None = None
    kwargs: Annotated[dict[str, Any], Meta(max_length=50)] | None = None
    priority: Priority | None = None
    metadata: Values = field(default_factory=dict)
    cron: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    every_seconds: Annotated[float, Meta(ge=1, le=366 * DAY_MS / 1_000)] | None = None
    at: Moment | None = None
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    start_at: Moment | None = None
    end_at: Moment | None = None
    jitter_seconds: Annotated[float, Meta(ge=0, le=DAY_MS / 1_000)] = 0
    catch_up: CatchUp = CatchUp.ALL
    catch_up_limit: Annotated[int, Meta(ge=1, le=1_000)] = 10
    catch_up_seconds: _Length = DAY_MS / 1_000
    overlap: Overlap = Overlap.ALLOW
    max_runs: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None

    def definition(self, name: str, known: ScheduleDefinition | None) -> ScheduleDefinition:
        """Return the definition for the store, in place of the known one; raises its errors."""
        job = NewJob(task=self.task, payload=encode_tagged_call([], {})) if known is None else known.job
        fields: Values = {
            "job": replace(
                job,
                task=self.task,
                payload=self._payload(job.payload),
                queue=QueueName(self.queue),
                priority=self.priority,
                metadata=self.metadata,
            ),
            "cron": self.cron,
            "every_ms": length(self.every_seconds),
            "at": in_ms("at", self.at),
            "timezone": self.timezone,
            "start_at": in_ms("start_at", self.start_at),
            "end_at": in_ms("end_at", self.end_at),
            "jitter_ms": length(self.jitter_seconds) or 0,
            "catch_up": self.catch_up,
            "catch_up_limit": self.catch_up_limit,
            "catch_up_ms": length(self.catch_up_seconds) or 0,
            "overlap": self.overlap,
            "max_runs": self.max_runs,
            "is_declared": False,
        }
        return ScheduleDefinition(name=name, **fields) if known is None else replace(known, **fields)

    def _payload(self, known: bytes) -> bytes:
        if self.args is None and self.kwargs is None:
            return known
        check_not_masked(self.args, self.kwargs)
        return encode_tagged_call(self.args or [], self.kwargs or {})


class ScheduleView(CallView, frozen=True, kw_only=True):
    """Schedule with its counters and next run."""

    name: str
    when: str
    cron: str | None
    every_seconds: float | None
    at: datetime | None
    task: str
    queue: str
    priority: int | None
    metadata: Values
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    jitter_seconds: float
    is_paused: bool
    is_declared: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_job_id: str | None
    overlap: Overlap
    catch_up: CatchUp
    catch_up_limit: int
    catch_up_seconds: float
    max_runs: int | None
    enqueued_runs: int
    skipped_runs: int
    failed_runs: int
    created_at: datetime
    updated_at: datetime


class PreviewResponse(ResponseModel, frozen=True, kw_only=True):
    """Next runs of a schedule, with a description of its times."""

    when: str
    runs: list[datetime]


class ScheduleList(ResponseModel, frozen=True, kw_only=True):
    """Schedules by name."""

    schedules: list[ScheduleView]


class ScheduleRunView(ResponseModel, frozen=True, kw_only=True):
    """Run of a schedule, or several runs that were skipped together."""

    planned_at: datetime
    status: ScheduleRunStatus
    job_id: str | None
    reason: str
    runs: int


class ScheduleRunList(ResponseModel, frozen=True, kw_only=True):
    """Runs, newest first."""

    runs: list[ScheduleRunView]


def schedule_view(schedule: Schedule) -> ScheduleView:
    definition = schedule.definition
    call = redacted_call(definition.job.payload)
    return ScheduleView(
        args=call.args,
        kwargs=call.kwargs,
        payload_base64=call.payload_base64,
        payload_error=call.payload_error,
        name=schedule.name,
        when=definition.describe_times(),
        cron=definition.cron,
        every_seconds=seconds(definition.every_ms),
        at=at(definition.at),
        task=definition.job.task,
        queue=definition.job.queue,
        priority=definition.job.priority,
        metadata=dict(definition.job.metadata),
        timezone=definition.timezone,
        start_at=at(definition.start_at),
        end_at=at(definition.end_at),
        jitter_seconds=definition.jitter_ms / 1_000,
        is_paused=schedule.is_paused,
        is_declared=definition.is_declared,
        next_run_at=at(schedule.next_run_at),
        last_run_at=at(schedule.last_run_at),
        last_job_id=schedule.last_job_id,
        overlap=definition.overlap,
        catch_up=definition.catch_up,
        catch_up_limit=definition.catch_up_limit,
        catch_up_seconds=definition.catch_up_ms / 1_000,
        max_runs=definition.max_runs,
        enqueued_runs=schedule.enqueued_runs,
        skipped_runs=schedule.skipped_runs,
        failed_runs=schedule.failed_runs,
        created_at=moment_of(schedule.created_at),
        updated_at=moment_of(schedule.updated_at),
    )


def schedule_run_view(run: ScheduleRun) -> ScheduleRunView:
    return ScheduleRunView(
        planned_at=moment_of(run.planned_at),
        status=run.status,
        job_id=run.job_id,
        reason=run.reason,
        runs=run.runs,
    )
