"""The part of the seam that keeps schedules, and what it takes to fire one, whatever keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from forebay.domain.schedule import (
    Schedule,
    ScheduleRun,
    ScheduleRunStatus,
)
from forebay.domain.schedule_runs import ScheduleAdvance


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """What is due at `now`, and after how long the next one is, None if there is no other."""

    now: int
    schedules: tuple[Schedule, ...] = ()
    next_due_ms: int | None = None


class FireResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a move; not `done` if somebody else has fired or changed the schedule meanwhile."""

    name: str
    applied: bool
    runs: tuple[ScheduleRun, ...] = ()

    @property
    def jobs(self) -> int:
        return sum(firing.status is ScheduleRunStatus.ENQUEUED for firing in self.runs)


class ScheduleStore(Protocol):
    """The write side of schedules. A schedule is a record with a revision: who has worked out a change from
    what was read says which revision that was, and an older one changes nothing."""

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        """Write a schedule as it is given, with the next revision and the store's time; `revision` is the one
        that it was worked out from, 0 for a new one. False, and nothing is written, if it has another by now.
        Leaves a SCHEDULE event, and is worth a wake-up."""
        ...

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        """Remove a schedule with its history; whether there was one. Its jobs stay. Leaves a SCHEDULE
        event."""
        ...

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        """Up to `limit` schedules with `due_at` now or earlier, the first first."""
        ...

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        """Make moves, all in one transaction; one answer each, in the order asked.

        A move is made only while the schedule has its revision and is due (unless it is made by hand). Its
        jobs are inserted as by an insert that is not atomic, in the same transaction that moves the schedule
        on: so each run is enqueued exactly once, whoever dies and however many fire. Each run and each skip
        leaves a line in the history, of which the last 100 are kept. A job that is refused leaves an error
        there; one whose key is taken is skipped, or holds the schedule where it is for another second
        (`holds`).
        """
        ...


class ScheduleReader(Protocol):
    """The read side of schedules."""

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        """These schedules, or all, by name; from the one behind `after` on."""
        ...

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        """What became of the runs of a schedule, newest first."""
        ...
