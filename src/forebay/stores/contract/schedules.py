"""Protocols of the store contract for schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from forebay.domain.schedule import Schedule, ScheduleRun, ScheduleRunStatus
from forebay.domain.schedule_runs import ScheduleAdvance


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that are due at `now`, and the wait until the next one; None if there is no other."""

    now: int
    schedules: tuple[Schedule, ...] = ()
    next_due_ms: int | None = None


class FireResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of firing a schedule; not `applied` if another caller has fired or changed it meanwhile."""

    name: str
    applied: bool
    runs: tuple[ScheduleRun, ...] = ()

    @property
    def jobs(self) -> int:
        return sum(run.status is ScheduleRunStatus.ENQUEUED for run in self.runs)


class ScheduleStore(Protocol):
    """Write side of schedules. A schedule has a revision: a change names the revision that it was derived
    from, and is not written over a newer one.
    """

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        """Save a schedule as it is given, with the next revision and the store's time. `revision` is the one
        that it was derived from, 0 for a new one. Return false, and write nothing, if the stored revision is
        another one by now. Leaves a SCHEDULE_CHANGED event and sends a wake-up.
        """
        ...

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        """Remove a schedule with its history and return whether there was one. Its jobs stay. Leaves a
        SCHEDULE_CHANGED event.
        """
        ...

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        """Return up to `limit` schedules with `check_at` now or earlier, earliest first."""
        ...

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        """Advance schedules, all in one transaction; return one result each, in the order given.

        A schedule is advanced only while it has the given revision and is due (unless the advance is manual).
        Its jobs are inserted as by an insert that is not atomic, in the same transaction. So each run is
        enqueued exactly once, even if a caller dies or several fire. Each run and each skip leaves a line in
        the history, of which the last 100 are kept. A refused job leaves an error there. One whose key is
        taken is skipped, or keeps the schedule where it is for another second (`waits_for_previous`).
        """
        ...


class ScheduleReader(Protocol):
    """Read side of schedules."""

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        """Return these schedules, or all, by name, after `after`."""
        ...

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        """Return the history of a schedule's runs, newest first."""
        ...
