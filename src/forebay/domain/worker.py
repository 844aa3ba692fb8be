"""What a worker says about itself, and what it can be asked to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.text import clean_text, truncate_bytes

DEFAULT_HEARTBEAT_MS: Final = 10_000
MIN_HEARTBEAT_MS: Final = 5_000
MAX_HEARTBEAT_MS: Final = 300_000
COMMAND_EXPIRES_MS: Final = 30_000
COMMAND_RETENTION_MS: Final = 3_600_000
MAX_RESPONSE: Final = 65_536
SHOWN_JOBS: Final = 10


class WorkerState(StrEnum):
    """What a worker is doing, as it said with its last beat."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNRESPONSIVE = (
        "silent"  # its process lives and does not answer its supervisor: a job holds the interpreter
    )


class HeartbeatStatus(StrEnum):
    """How long ago a worker has beaten: one that misses two beats is stale, three, and it counts as dead."""

    ALIVE = "alive"
    STALE = "stale"
    DEAD = "dead"


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself; host and pid are labels, never identity.

    `paused` are queues it does not claim from; `running` are jobs it runs, `recent` those that it ran last,
    the latest at the end; at most ten are named of each. `stuck` counts jobs that did not stop when they were
    told to; `is_overdue` says that the worker itself should have stopped by now. `abandoned` counts calls
    whose attempts were settled at their time limits and that still run; a worker that `is_worn` has more of
    them than it may replace. `memory` is in bytes, `cpu` is how much of one core it took since its last beat,
    both of its process alone. `supervisor` is the pid of the process that keeps its leases, 0 where it does
    that. One that `is_remote` beats through a server: the process that writes it down lives and dies by
    itself.
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
        if missed < 2:  # noqa: PLR2004 - as the words of `HeartbeatStatus` have it
            return HeartbeatStatus.ALIVE
        return HeartbeatStatus.STALE if missed < 3 else HeartbeatStatus.DEAD  # noqa: PLR2004


class CommandKind(StrEnum):
    """What a worker can be asked to do through the store."""

    PAUSE = "pause"  # claim nothing more, of one queue or of all
    RESUME = "resume"
    STOP = "stop"  # as after SIGTERM: what runs may end for the worker's drain time
    DRAIN = "drain"  # stop when all that runs has ended, however long that takes
    HALT = "halt"  # stop at once: what runs is interrupted and handed back
    STACKS = "stacks"  # answer with the stacks of all threads


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to a worker. It is given to the worker once, until `expires_at`; `answer` is what came of it."""

    id: str
    worker: WorkerId
    kind: CommandKind
    queue: QueueName | None = None
    actor: str = ""
    sent_at: int = 0
    expires_at: int = 0
    delivered_at: int | None = None
    response: str | None = None


def truncate_answer(text: str) -> str:
    """What a store keeps of the answer to a command."""
    return truncate_bytes(clean_text(text), MAX_RESPONSE)
