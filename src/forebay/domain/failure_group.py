"""Failure groups: dead letters with the same error, counted by task."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from forebay.domain.failure_fingerprint import FINGERPRINT, fingerprint, frames_of, normalize_reason
from forebay.domain.job import JobId
from forebay.domain.job_views import JobStateInfo
from forebay.errors import ConfigError

MAX_GROUPS: Final = 1_000
DEFAULT_NEWEST: Final = 10_000
MAX_NEWEST: Final = 100_000
COMMON_ERRORS: Final = 10


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with one fingerprint. `message` is their common reason, without what differs from job
    to job. `frames` are the functions of the task's own code that raised it, the innermost last. `example`
    is the job that failed last."""

    id: str
    message: str
    frames: tuple[str, ...]
    jobs: int
    tasks: dict[str, int]
    first_at: int
    last_at: int
    example: JobId
    example_reason: str


class FailureGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Failure groups, the largest first. `jobs` of the newest dead letters were examined, all of them only
    if `is_complete`. Jobs beyond the limit on groups are counted in `others`."""

    groups: tuple[FailureGroup, ...]
    jobs: int
    is_complete: bool
    others: int = 0


def traceback_of(info: JobStateInfo) -> str:
    """Return the traceback of the error that ended a job; empty if an operator or a parent ended it
    instead."""
    error = info.error
    return error.traceback if error is not None and error.type in (info.reason or "") else ""


def group_of(info: JobStateInfo) -> str:
    """Return the fingerprint of a job's end."""
    return fingerprint(info.reason, traceback_of(info))


def check_group(group: str) -> str:
    """Return the group if it can be one; raise ConfigError."""
    if not FINGERPRINT.match(group):
        raise ConfigError(f"{group!r:.60} is no failure group: those have 16 digits from 0 to f")
    return group


class FailureGrouper:
    """Accumulator of failure groups. It holds a few numbers and one job for each group."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupAccumulator] = {}
        self._jobs = 0

    @property
    def jobs(self) -> int:
        return self._jobs

    def add(self, info: JobStateInfo) -> None:
        """Count a job that has ended."""
        self._jobs += 1
        group = group_of(info)
        if group not in self._groups:
            self._groups[group] = _GroupAccumulator(info)
        self._groups[group].add(info)

    def build_groups(self, *, is_complete: bool) -> FailureGroups:
        """Return the groups of the jobs so far."""
        groups = [accumulator.build(group) for group, accumulator in self._groups.items()]
        groups.sort(key=lambda group: (-group.jobs, -group.last_at, group.id))
        shown = tuple(groups[:MAX_GROUPS])
        others = self._jobs - sum(group.jobs for group in shown)
        return FailureGroups(groups=shown, jobs=self._jobs, is_complete=is_complete, others=others)


class _GroupAccumulator:
    __slots__ = ("first_at", "last", "tasks")

    def __init__(self, info: JobStateInfo) -> None:
        self.tasks: Counter[str] = Counter()
        self.last = info
        self.first_at = info.finished_at or 0

    def add(self, info: JobStateInfo) -> None:
        self.tasks[info.task] += 1
        self.first_at = min(self.first_at, info.finished_at or 0)
        if (info.finished_at or 0) > (self.last.finished_at or 0):
            self.last = info

    def build(self, group: str) -> FailureGroup:
        reason = self.last.reason or ""
        return FailureGroup(
            id=group,
            message=normalize_reason(reason),
            frames=frames_of(traceback_of(self.last)),
            jobs=self.tasks.total(),
            tasks=dict(self.tasks.most_common()),
            first_at=self.first_at,
            last_at=self.last.finished_at or 0,
            example=self.last.id,
            example_reason=reason,
        )
