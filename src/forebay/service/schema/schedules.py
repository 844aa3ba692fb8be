"""Shapes of schedules, workers and limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from forebay.domain.job import DAY_MS, NewJob, QueueName
from forebay.domain.limits import MAX_LIMIT, Limit
from forebay.domain.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
)
from forebay.domain.worker import Command, CommandKind, HeartbeatStatus, WorkerInfo, WorkerState
from forebay.operations.limit_status import LimitState, LimitStatus
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

_Name = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$")]
_Length = Annotated[float, Meta(ge=0, le=366 * DAY_MS / 1_000)]


class ScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """What to enqueue when: one of `cron`, `every_seconds` and `at` says when. What a known schedule has
    beside all this, such as retries, tags and keys, stays, and so do its arguments if neither `args` nor
    `kwargs` is given."""

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
        """The same for the store, in place of the one it knows; raises what is wrong with it."""
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
    """A schedule, and how far it has come."""

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
    """When a schedule would run next, and how a person would say it."""

    when: str
    runs: list[datetime]


class ScheduleList(ResponseModel, frozen=True, kw_only=True):
    """Schedules by name."""

    schedules: list[ScheduleView]


class ScheduleRunView(ResponseModel, frozen=True, kw_only=True):
    """What became of a run, or of several that were skipped together."""

    planned_at: datetime
    status: ScheduleRunStatus
    job_id: str | None
    reason: str
    runs: int


class ScheduleRunList(ResponseModel, frozen=True, kw_only=True):
    """Runs, newest first."""

    runs: list[ScheduleRunView]


class ChangeResponse(ResponseModel, frozen=True, kw_only=True):
    """Whether there was anything to do it to."""

    applied: bool


class LimitRequest(RequestModel, frozen=True, kw_only=True):
    """How many jobs of a scope run at once, and how many start in `per_seconds`. A scope is `global`,
    `queue:NAME`, `task:NAME` or `key:KIND`."""

    scope: Annotated[str, Meta(min_length=1, max_length=200)]
    concurrency: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    rate: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    per_seconds: Annotated[float, Meta(ge=0.001, le=DAY_MS / 1_000)] = 1
    burst: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None

    def limit(self) -> Limit:
        return Limit(
            scope=self.scope,
            concurrency=self.concurrency,
            rate=self.rate,
            per_ms=length(self.per_seconds) or 1,
            burst=self.burst,
        )


class LimitView(ResponseModel, frozen=True, kw_only=True):
    """A limit that holds."""

    scope: str
    concurrency: int | None
    rate: int | None
    per_seconds: float
    burst: int | None


class LimitUsageView(ResponseModel, frozen=True, kw_only=True):
    """A limit with its usage. `running` jobs count under it, and `tokens` more may start by its rate.

    `state` is `at_limit` while as many jobs run as may, `out_of_tokens` while the rate has no token, else
    `open`. For a limit by key, `running` counts all values, `tokens` is null, and `at_limit` says that jobs
    of some value wait. `waiting` jobs could start without the limit; `waiting_workers` could claim them."""

    scope: str
    concurrency: int | None
    rate: int | None
    per_seconds: float
    burst: int | None
    state: LimitState
    running: int
    tokens: int | None
    waiting: int
    waiting_workers: list[str]


class LimitList(ResponseModel, frozen=True, kw_only=True):
    """Limits by scope."""

    limits: list[LimitUsageView]


class WorkerView(ResponseModel, frozen=True, kw_only=True):
    """A worker as it has described itself with its last beat. `memory` is in bytes; `cpu` is how much of one
    core its process took since the beat before. `recent` are the jobs that it ran last, at most ten.
    `abandoned` counts calls that did not stop at their time limits, and still run though their attempts are
    settled."""

    id: str
    host: str
    pid: int
    state: WorkerState
    heartbeat_status: HeartbeatStatus
    queues: list[str]
    paused: list[str]
    running: list[str]
    slots: int
    stuck: int
    abandoned: int
    completed: int
    failed: int
    memory: int | None
    cpu: float | None
    started_at: datetime
    heartbeat_at: datetime
    recent: list[str]


class WorkerList(ResponseModel, frozen=True, kw_only=True):
    """Workers by start."""

    workers: list[WorkerView]


class CommandRequest(RequestModel, frozen=True, kw_only=True):
    """What workers are asked to do; all of them if none is named. `queue` is for pause and resume."""

    kind: Literal["pause", "resume", "stop", "drain", "halt", "stacks"]
    workers: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=1_000)] | None
    ) = None
    queue: Queue | None = None


class CommandView(ResponseModel, frozen=True, kw_only=True):
    """A wish to a worker, and what came of it; it hears of it within a second, or not after `expires_at`."""

    id: str
    worker: str
    kind: CommandKind
    sent_at: datetime
    expires_at: datetime
    delivered_at: datetime | None
    response: str | None


class CommandList(ResponseModel, frozen=True, kw_only=True):
    """One command for each worker that was asked."""

    commands: list[CommandView]


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


def limit_view(limit: Limit) -> LimitView:
    return LimitView(
        scope=limit.scope,
        concurrency=limit.concurrency,
        rate=limit.rate,
        per_seconds=seconds(limit.per_ms) or 0.0,
        burst=limit.burst,
    )


def limit_usage_view(status: LimitStatus) -> LimitUsageView:
    limit = limit_view(status.usage.limit)
    return LimitUsageView(
        **asdict(limit),
        state=status.state,
        running=status.usage.running,
        tokens=status.usage.tokens,
        waiting=status.waiting,
        waiting_workers=list(status.waiting_workers),
    )


def worker_view(worker: WorkerInfo, now_ms: int) -> WorkerView:
    plain = (
        "id",
        "host",
        "pid",
        "state",
        "slots",
        "stuck",
        "abandoned",
        "completed",
        "failed",
        "memory",
        "cpu",
    )
    fields: Values = {name: getattr(worker, name) for name in plain}
    return WorkerView(
        **fields,
        heartbeat_status=worker.heartbeat_status(now_ms),
        queues=list(worker.queues),
        paused=list(worker.paused),
        running=list(worker.running),
        started_at=moment_of(worker.started_at),
        heartbeat_at=moment_of(worker.heartbeat_at),
        recent=list(worker.recent),
    )


def command_view(command: Command) -> CommandView:
    return CommandView(
        id=command.id,
        worker=command.worker,
        kind=command.kind,
        sent_at=moment_of(command.sent_at),
        expires_at=moment_of(command.expires_at),
        delivered_at=at(command.delivered_at),
        response=command.response,
    )


def queue_name(name: str | None) -> QueueName | None:
    return None if name is None else QueueName(name)
