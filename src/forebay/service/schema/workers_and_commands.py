"""Workers and the commands sent to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from forebay.domain.job import QueueName
from forebay.domain.worker import HeartbeatStatus, WorkerInfo, WorkerState
from forebay.domain.worker_command import Command, CommandKind
from forebay.service.schema.base import Queue, RequestModel, ResponseModel, Values, at, moment_of


class WorkerView(ResponseModel, frozen=True, kw_only=True):
    """Worker, as its last heartbeat describes it. `memory` is in bytes; `cpu` is the part of one core that
    its process used between its last two heartbeats. `recent` are its last jobs, at most ten. `abandoned`
    counts calls that did not stop at their timeout and still run, although their attempts are settled."""

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
    """Workers by start time."""

    workers: list[WorkerView]


class CommandRequest(RequestModel, frozen=True, kw_only=True):
    """Command to workers; to all of them if none is named. `queue` applies to pause and resume."""

    kind: Literal["pause", "resume", "stop", "drain", "halt", "stacks"]
    workers: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=1_000)] | None
    ) = None
    queue: Queue | None = None


class CommandView(ResponseModel, frozen=True, kw_only=True):
    """Command to a worker, with its response. The worker gets it within a second, and never after
    `expires_at`."""

    id: str
    worker: str
    kind: CommandKind
    sent_at: datetime
    expires_at: datetime
    delivered_at: datetime | None
    response: str | None


class CommandList(ResponseModel, frozen=True, kw_only=True):
    """Commands, one for each worker."""

    commands: list[CommandView]


def worker_view(worker: WorkerInfo, now_ms: int) -> WorkerView:
    copied = (
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
    fields: Values = {name: getattr(worker, name) for name in copied}
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
