"""Schedules: definition (`ScheduleDefinition`), stored progress (`Schedule`), and history of runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from forebay.domain.cron import parse_cron
from forebay.domain.job import DAY_MS, LATEST_AT, JobId, NewJob, UniqueUntil
from forebay.domain.job_validation import check_integer, check_text
from forebay.domain.time_zone import zone_of
from forebay.errors import ConfigError

MAX_NAME: Final = 100
MIN_EVERY_MS: Final = 1_000
MAX_LENGTH_MS: Final = 366 * DAY_MS
MAX_CATCH_UP: Final = 1_000
MAX_STORED_RUNS: Final = 100


class CatchUp(StrEnum):
    """Treatment of runs that were missed because no process was there to fire them."""

    ALL = "all"  # the newest `catch_up_limit` of the last `catch_up_ms`
    LATEST = "latest"
    NONE = "none"


class Overlap(StrEnum):
    """Treatment of a run while a job of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"  # the latest one waits for it; earlier ones are skipped


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Definition of a schedule. Exactly one of `cron`, `every_ms` and `at` has its times.

    Each run is a copy of `job`. Intervals count from `start_at`, or from 1970, so that every hour is the full
    hour, no matter when the schedule was saved. `expires_ms` and `deadline_ms` count from the time of the
    run.
    """

    name: str
    job: NewJob
    cron: str | None = None
    every_ms: int | None = None
    at: int | None = None
    timezone: str = "UTC"
    start_at: int | None = None
    end_at: int | None = None
    jitter_ms: int = 0
    catch_up: CatchUp = CatchUp.ALL
    catch_up_limit: int = 10
    catch_up_ms: int = DAY_MS
    overlap: Overlap = Overlap.ALLOW
    unique_key: str | None = None
    unique_ms: int = 300_000
    max_runs: int | None = None
    expires_ms: int | None = None
    deadline_ms: int | None = None
    # Declared in the code of a program, which declares it again with each start.
    is_declared: bool = False

    def __post_init__(self) -> None:
        check_text("name", self.name, max_length=MAX_NAME)
        self._check_when()
        self._check_numbers()
        self._check_job()

    @property
    def is_one_off(self) -> bool:
        return self.at is not None

    def has_timing_of(self, other: ScheduleDefinition) -> bool:
        """Return whether both have the same times, so that the next run need not be computed again."""
        return _timing(self) == _timing(other)

    def describe_times(self) -> str:
        """Describe the times for people."""
        if self.cron is not None:
            return self.cron if self.timezone == "UTC" else f"{self.cron} ({self.timezone})"
        if self.every_ms is not None:
            return f"every {_format_length(self.every_ms)}"
        return f"at {iso(self.at or 0)}"

    def _check_when(self) -> None:
        if sum(timing is not None for timing in (self.cron, self.every_ms, self.at)) != 1:
            raise ConfigError(f"schedule {self.name}: give exactly one of cron, every and at")
        zone_of(self.timezone)
        if self.cron is not None:
            parse_cron(self.cron)
        if self.every_ms is not None:
            check_integer("every_ms", self.every_ms, MIN_EVERY_MS, MAX_LENGTH_MS)
        for name, value in (("at", self.at), ("start_at", self.start_at), ("end_at", self.end_at)):
            if value is not None:
                check_integer(name, value, 0, LATEST_AT)
        if self.end_at is not None and self.end_at < (self.start_at or 0):
            raise ConfigError(f"schedule {self.name} would end before it starts")

    def _check_numbers(self) -> None:
        check_integer("jitter_ms", self.jitter_ms, 0, DAY_MS)
        check_integer("catch_up_limit", self.catch_up_limit, 1, MAX_CATCH_UP)
        check_integer("catch_up_ms", self.catch_up_ms, 0, MAX_LENGTH_MS)
        # Shorter than the poll interval of schedulers, it would distinguish nothing.
        check_integer("unique_ms", self.unique_ms, MIN_EVERY_MS, MAX_LENGTH_MS)
        for name, value, minimum in (
            ("max_runs", self.max_runs, 1),
            ("expires_ms", self.expires_ms, 0),
            ("deadline_ms", self.deadline_ms, 0),
        ):
            if value is not None:
                check_integer(name, value, minimum, MAX_LENGTH_MS)

    def _check_job(self) -> None:
        job = self.job
        if (job.id, job.run_at, job.idempotency_key, job.delay_ms) != (None, None, None, 0):
            raise ConfigError(f"schedule {self.name}: its jobs cannot bring id, run_at, delay or once")
        if self.unique_key is not None:
            check_text("unique_key", self.unique_key)
        if self.overlap is not Overlap.ALLOW and (job.unique_key is not None or self.is_one_off):
            raise ConfigError(f"schedule {self.name}: overlap is for recurring jobs without a unique key")
        if self.overlap is Overlap.QUEUE and self.unique_key is not None:
            raise ConfigError(f"schedule {self.name}: a run cannot both wait and be skipped as not unique")
        job_at(self, 0)  # the additions of a run to its job must be valid, too: a later error has no reader


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Stored schedule. `revision` grows with every change, so that no change is based on an older one.

    `next_run_at` is the time of the next run. `check_at` is when a scheduler checks the schedule: later by
    the jitter, or because the run waits for the one before. Both are None when there is no next run, and
    `check_at` while it is paused.
    """

    definition: ScheduleDefinition
    revision: int = 0
    is_paused: bool = False
    next_run_at: int | None = None
    check_at: int | None = None
    last_run_at: int | None = None
    last_job_id: JobId | None = None
    enqueued_runs: int = 0
    skipped_runs: int = 0
    failed_runs: int = 0
    created_at: int = 0
    updated_at: int = 0

    @property
    def name(self) -> str:
        return self.definition.name


class ScheduleRunStatus(StrEnum):
    """Status of a run."""

    ENQUEUED = "enqueued"
    SKIPPED = "skipped"
    ERROR = "error"


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """Line of a schedule's history. A line for several runs covers `planned_at` to `last_planned_at`; more
    than 1,000 are not counted further. `job_id` is the enqueued job, or the one that prevented the run."""

    planned_at: int
    status: ScheduleRunStatus
    recorded_at: int = 0
    job_id: JobId | None = None
    reason: str = ""
    last_planned_at: int | None = None
    runs: int = 1


class MissedRuns(NamedTuple):
    """Number of runs in some time, and of those that were skipped or refused. The history of a schedule
    with many runs may cover only a part of that time."""

    runs: int
    missed: int
    is_complete: bool

    @property
    def rate(self) -> float | None:
        """Return the ratio of missed runs; None without any run."""
        return self.missed / self.runs if self.runs else None


def missed_runs_since(history: Sequence[ScheduleRun], since: int) -> MissedRuns:
    """Return the missed runs in the history of a schedule that were recorded since then: a missed run is
    recorded when a scheduler finds it."""
    lines = [run for run in history if run.recorded_at >= since]
    missed = sum(run.runs for run in lines if run.status is not ScheduleRunStatus.ENQUEUED)
    return MissedRuns(sum(run.runs for run in lines), missed, is_complete=len(lines) < MAX_STORED_RUNS)


def add_missed_runs(parts: Collection[MissedRuns]) -> MissedRuns:
    """Add up the missed runs of several schedules."""
    return MissedRuns(
        sum(part.runs for part in parts),
        sum(part.missed for part in parts),
        is_complete=all(part.is_complete for part in parts),
    )


def iso(at: int) -> str:
    """Format an instant: ISO 8601 in UTC, with milliseconds only if they are not zero."""
    text = datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace(".000", "").replace("+00:00", "Z")


def overlap_key(name: str) -> str:
    """Return the unique key that jobs of a schedule share while their runs may not overlap."""
    return f"schedule {name}"


def job_at(definition: ScheduleDefinition, at: int, *, is_manual: bool = False) -> NewJob:
    """Return the job of the run at this time. Its idempotency key names schedule and time, so that no run
    is enqueued twice, even by a schedule that was removed and created again. A key of the schedule's own
    is used as it is."""
    job = definition.job
    idempotency_key = definition.unique_key or (
        None if is_manual else f"schedule {definition.name} {iso(at)}"
    )
    has_own_key = definition.overlap is not Overlap.ALLOW
    return msgspec.structs.replace(
        job,
        metadata={**job.metadata, "schedule_id": definition.name, "scheduled_for": iso(at)},
        unique_key=overlap_key(definition.name) if has_own_key else job.unique_key,
        unique_until=UniqueUntil.FINAL if has_own_key else job.unique_until,
        idempotency_key=idempotency_key,
        idempotency_ttl_ms=definition.unique_ms
        if definition.unique_key
        else max(DAY_MS, definition.catch_up_ms),
        expires_at=_later_of(at, definition.expires_ms, job.expires_at),
        deadline_at=_later_of(at, definition.deadline_ms, job.deadline_at),
    )


def _later_of(at: int, wait_ms: int | None, instant: int | None) -> int | None:
    return instant if wait_ms is None else min(at + wait_ms, LATEST_AT)


def _timing(definition: ScheduleDefinition) -> tuple[object, ...]:
    return (
        definition.cron,
        definition.every_ms,
        definition.at,
        definition.timezone,
        definition.start_at,
        definition.end_at,
    )


def _format_length(ms: int) -> str:
    for size, word in ((DAY_MS, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if ms % size == 0:
            return word if ms == size else f"{ms // size} {word}s"
    return f"{ms / 1_000:g} s"
