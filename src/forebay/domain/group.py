"""Failures that are the same one, put together: how many dead letters, of which tasks, since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.domain.fingerprint import FINGERPRINT, fingerprint, frames_of, words_of
from forebay.domain.job import JobId, JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Fate
from forebay.errors import ConfigError

MAX_GROUPS: Final = 1_000
NEWEST: Final = 10_000
MOST_NEWEST: Final = 100_000
COMMON_ERRORS: Final = 10


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with one fingerprint. `message` is the reason that they share, without what differs from
    job to job; `frames` are the functions of the task's own code that it came from, the innermost last.
    `example` is the job that died last."""

    id: str
    message: str
    frames: tuple[str, ...]
    jobs: int
    tasks: dict[str, int]
    first_at: int
    last_at: int
    example: JobId
    example_reason: str


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The largest groups first. `jobs` dead letters were looked at, the newest ones; there are more that were
    not unless `is_whole`. What did not fit among so many groups is counted in `others`."""

    groups: tuple[Group, ...]
    jobs: int
    is_whole: bool
    others: int = 0


class RetryStats(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs fared that have completed or died: `retried` of them had failed before their end, and
    `recovered` of these have completed. `errors` are what the dead ones died of, the most common first."""

    jobs: int
    retried: int
    recovered: int
    dead: int
    attempts: int
    errors: dict[str, int]
    is_whole: bool

    @property
    def success_rate(self) -> float | None:
        """The share of jobs that completed of those that had failed; None if there were none."""
        return self.recovered / self.retried if self.retried else None

    @property
    def average_attempts(self) -> float | None:
        return self.attempts / self.jobs if self.jobs else None


def retry_stats_of(jobs: Sequence[JobSummary], *, is_whole: bool) -> RetryStats:
    """The same of these jobs, which have all completed or died."""
    failed = [job for job in jobs if job.failures]
    dead = [job for job in jobs if job.state is JobState.DEAD]
    errors = Counter(words_of(job.reason or "") for job in dead)
    return RetryStats(
        jobs=len(jobs),
        retried=len(failed),
        recovered=sum(job.state is JobState.COMPLETED for job in failed),
        dead=len(dead),
        attempts=sum(job.attempt for job in jobs),
        errors=dict(errors.most_common(COMMON_ERRORS)),
        is_whole=is_whole,
    )


def traceback_of(fate: Fate) -> str:
    """The traceback of the error that ended a job; an operator or a parent may have ended it instead."""
    error = fate.error
    return error.traceback if error is not None and error.type in (fate.reason or "") else ""


def group_of(fate: Fate) -> str:
    """The fingerprint of how a job ended."""
    return fingerprint(fate.reason, traceback_of(fate))


def check_group(group: str) -> str:
    """The group, if it can be one; raises ConfigError."""
    if not FINGERPRINT.match(group):
        raise ConfigError(f"{group!r:.60} is no failure group: those have 16 digits from 0 to f")
    return group


class Grouping:
    """Puts dead letters together as they come. Of each group it holds a few numbers and one job."""

    def __init__(self) -> None:
        self._groups: dict[str, _Gathered] = {}
        self._jobs = 0

    @property
    def jobs(self) -> int:
        return self._jobs

    def add(self, fate: Fate) -> None:
        """Count a job that has ended."""
        self._jobs += 1
        group = group_of(fate)
        if group not in self._groups:
            self._groups[group] = _Gathered(fate)
        self._groups[group].add(fate)

    def found(self, *, is_whole: bool) -> Groups:
        """What there is by now."""
        made = [one.made(group) for group, one in self._groups.items()]
        made.sort(key=lambda group: (-group.jobs, -group.last_at, group.id))
        shown = tuple(made[:MAX_GROUPS])
        others = self._jobs - sum(group.jobs for group in shown)
        return Groups(groups=shown, jobs=self._jobs, is_whole=is_whole, others=others)


class _Gathered:
    __slots__ = ("first_at", "last", "tasks")

    def __init__(self, fate: Fate) -> None:
        self.tasks: Counter[str] = Counter()
        self.last = fate
        self.first_at = fate.finished_at or 0

    def add(self, fate: Fate) -> None:
        self.tasks[fate.task] += 1
        self.first_at = min(self.first_at, fate.finished_at or 0)
        if (fate.finished_at or 0) > (self.last.finished_at or 0):
            self.last = fate

    def made(self, group: str) -> Group:
        reason = self.last.reason or ""
        return Group(
            id=group,
            message=words_of(reason),
            frames=frames_of(traceback_of(self.last)),
            jobs=self.tasks.total(),
            tasks=dict(self.tasks.most_common()),
            first_at=self.first_at,
            last_at=self.last.finished_at or 0,
            example=self.last.id,
            example_reason=reason,
        )
