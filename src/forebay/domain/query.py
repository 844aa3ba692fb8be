"""Queries to a store's reader, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from forebay.domain.job import Job, JobId, JobSummary, Json, PastError, QueueName
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError

MAX_PAGE: Final = 1_000
MAX_SEQ_DIGITS: Final = 18
EXACT_UP_TO: Final = 10_000


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for jobs: all conditions must hold, an empty one holds for every job.

    `text` is searched for in the payload and in the reason of the end; `metadata` compares top-level keys;
    all `tags` must be there.
    """

    queues: tuple[QueueName, ...] = ()
    states: tuple[JobState, ...] = ()
    tasks: tuple[str, ...] = ()
    priority_from: int | None = None
    priority_to: int | None = None
    created_from: int | None = None
    created_before: int | None = None
    finished_before: int | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    parent_id: JobId | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = {}
    text: str | None = None

    def __post_init__(self) -> None:
        # Half of a surrogate pair comes from a command line that is no UTF-8. No job has one, and every
        # engine would fail on it in its own way.
        try:
            msgspec.json.encode(self)
        except UnicodeEncodeError as exc:
            raise ConfigError(f"no job can hold the text {exc.object!r:.60}, so none can be found") from exc


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. `after` continues it and is None at the end. A page may have fewer jobs than its
    limit, or none, and still have a next one: the number of scanned rows is limited, too. Then
    `scanned_back_to` is when the last scanned job was created: older ones were not scanned."""

    jobs: tuple[JobSummary, ...]
    after: str | None = None
    scanned_back_to: int | None = None


class JobStateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """State of a job, without payload and result. `error` is the error of its last failed attempt."""

    id: JobId
    seq: int
    queue: QueueName
    task: str
    state: JobState
    finished_at: int | None
    reason: str | None
    error: PastError | None


def state_info_of(job: Job) -> JobStateInfo:
    """Return the state of a job."""
    return JobStateInfo(
        id=job.id,
        seq=job.seq,
        queue=job.queue,
        task=job.task,
        state=job.state,
        finished_at=job.finished_at,
        reason=job.reason,
        error=job.errors[-1] if job.errors else None,
    )


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs of a queue in each state."""

    scheduled: int = 0
    blocked: int = 0
    pending: int = 0
    running: int = 0
    retrying: int = 0
    completed: int = 0
    dead: int = 0
    cancelled: int = 0

    @property
    def live(self) -> int:
        """Return the number of jobs that are not final: they wait or run."""
        return self.scheduled + self.blocked + self.pending + self.running + self.retrying

    @property
    def total(self) -> int:
        """Return the number of all jobs."""
        return self.live + self.completed + self.dead + self.cancelled


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a pending job: the number of jobs ahead of it, exact up to 10,000, then an estimate.

    `starts_in_ms` is the expected wait by the queue's throughput of the last minute; None without any.
    """

    ahead: int
    is_exact: bool
    starts_in_ms: int | None


class LaneCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of pending jobs of a queue in one lane."""

    queue: QueueName
    lane: str
    jobs: int


class ArchiveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Archive line of a pruned job. `day` is the UTC day of its end."""

    id: JobId
    queue: QueueName
    task: str
    state: JobState
    created_at: int
    finished_at: int
    day: str
    duration_ms: int | None
    attempt: int
    failures: int
    excerpt: str
    reason: str | None


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a health check of a store; `problems` is empty when all is well."""

    engine: str
    schema: int
    problems: tuple[str, ...] = ()


class ServerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a store's server; None where a value does not exist or is unknown. Without a limit of its
    own a server has the memory of its machine. `evicted` counts keys that it has evicted since its start."""

    memory: int | None = None
    memory_limit: int | None = None
    evicted: int | None = None
    connections: int | None = None
    connection_limit: int | None = None


def used_ratio(used: int | None, total: int | None) -> float | None:
    """Return the used part of a total; None where it does not exist or is unknown."""
    return used / total if used is not None and total else None


def page_end(after: str) -> int:
    """Return the seq at which an earlier page ended; raise ConfigError for other texts."""
    if not after.isdecimal() or not after.isascii() or len(after) > MAX_SEQ_DIGITS:
        raise ConfigError(f"{after!r:.60} is not the end of an earlier page")
    return int(after)


def check_limit(limit: int) -> None:
    """Raise ConfigError unless a page may have this many lines."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise ConfigError(f"limit must be a whole number from 1 to {MAX_PAGE}, not {limit!r}")
