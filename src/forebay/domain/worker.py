"""Workers: their state and the details of their heartbeats."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from forebay.domain.job import JobId, QueueName, WorkerId

DEFAULT_HEARTBEAT_MS: Final = 10_000
MIN_HEARTBEAT_MS: Final = 5_000
MAX_HEARTBEAT_MS: Final = 300_000
SHOWN_JOBS: Final = 10


class WorkerState(StrEnum):
    """State of a worker as of its last heartbeat."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    # Its process lives and does not answer its supervisor: a job holds the interpreter.
    UNRESPONSIVE = "unresponsive"


class HeartbeatStatus(StrEnum):
    """Age of a worker's last heartbeat: after two missed ones it is stale, after three it counts as dead."""

    ALIVE = "alive"
    STALE = "stale"
    DEAD = "dead"


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Worker as of its last heartbeat; host and pid are labels, never identity.

    `paused` are queues that it does not claim from; `running` are its jobs, `recent` its last ones, the
    latest at the end; at most ten of each. `stuck` counts jobs that did not stop when they were told to;
    `is_overdue` means that the worker itself should have stopped by now. `abandoned` counts calls whose
    attempts were settled at their time limits and that still run; a worker that `is_worn` has more of them
    than it may replace. `memory` is in bytes, `cpu` is the fraction of one core since its last heartbeat,
    both of its process alone. `supervisor` is the pid of the process that renews its leases, 0 where it does
    that itself. A worker that `is_remote` sends heartbeats through a server: the process that writes them
    lives and dies independently.
    """

    id: WorkerId
    host: str = ""
    pid: int = 0
    queues: tuple[QueueName, ...] = ()
    state: WorkerState = WorkerState.IDLE
    started_at: int = 0
    heartbeat_at: int = 0
    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    paused: tuple[QueueName, ...] = ()
    running: tuple[JobId, ...] = ()
    slots: int = 0
    stuck: int = 0
    abandoned: int = 0
    is_worn: bool = False
    is_overdue: bool = False
    completed: int = 0
    failed: int = 0
    memory: int | None = None
    cpu: float | None = None
    supervisor: int = 0
    is_remote: bool = False
    recent: tuple[JobId, ...] = ()

    def heartbeat_status(self, now: int) -> HeartbeatStatus:
        missed = (now - self.heartbeat_at) / self.heartbeat_ms
        if missed < 2:  # noqa: PLR2004 - see `HeartbeatStatus`
            return HeartbeatStatus.ALIVE
        return HeartbeatStatus.STALE if missed < 3 else HeartbeatStatus.DEAD  # noqa: PLR2004
