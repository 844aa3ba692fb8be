"""Counts of the jobs of a queue: by state, by lane, and ahead of one job."""

from __future__ import annotations

import msgspec

from forebay.domain.job import QueueName


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
