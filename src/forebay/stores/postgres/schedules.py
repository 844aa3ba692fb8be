"""Schedules: save, drop, fire and list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from msgspec.structs import replace

from forebay.domain.job import NewJob
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_query import check_limit
from forebay.domain.operator_changes import schedule_changes
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule, ScheduleRun
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.errors import StoreBusy
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.transaction import QueryRunner, Transaction
from forebay.stores.shared.rows import Row
from forebay.stores.shared.schedules import (
    ScheduleUpdate,
    apply_advance,
    may_fire,
    row_from_schedule,
    row_from_schedule_run,
    schedule_run_from_row,
    schedules_from_rows,
)

T = TypeVar("T")

# The columns that an advance changes.
ADVANCED_COLUMNS: Final = (
    "name",
    "revision",
    "next_run_at",
    "check_at",
    "last_run_at",
    "last_job_id",
    "enqueued_runs",
    "skipped_runs",
    "failed_runs",
    "updated_at",
)


class PostgresScheduleStore(ABC):
    """Schedule part of a write handle."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        return self._write(lambda tx: save(tx, schedule, actor))

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, name, actor))

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        return self._write(lambda tx: load_due(tx, limit))

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        return self._write(lambda tx: fire_schedules(tx, advances))


class PostgresScheduleReader(ABC):
    """Schedule part of a read handle."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        values = {"names": None if names is None else list(names), "after": after or "", "limit": limit}
        with self._open_snapshot() as snapshot:
            return schedules_from_rows(snapshot.all("schedules", values))

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        check_limit(limit)
        with self._open_snapshot() as snapshot:
            return [
                schedule_run_from_row(row)
                for row in snapshot.all("schedule_runs", {"schedule": name, "limit": limit})
            ]


def save(tx: Transaction, schedule: Schedule, actor: str) -> bool:
    row = tx.one("schedule_lock", {"name": schedule.name})
    revision, created_at = (0, tx.now) if row is None else (row[1], row[-2])
    if revision != schedule.revision:
        return False
    saved = replace(schedule, revision=revision + 1, created_at=created_at, updated_at=tx.now)
    if tx.one("schedule_save", row_from_schedule(saved)) is None:
        return False
    _record_event(tx, f"saved {schedule.name}", actor, schedule_changes(_decode_schedule(row), saved))
    tx.needs_wakeup = True
    return True


def drop(tx: Transaction, name: str, actor: str) -> bool:
    row = tx.one("schedule_lock", {"name": name})
    if not _remove(tx, name):
        return False
    _record_event(tx, f"removed {name}", actor, schedule_changes(_decode_schedule(row), None))
    return True


def load_due(tx: Transaction, limit: int) -> DueSchedules:
    due = tx.run("schedules_due", {"now": tx.now, "limit": limit})
    later = tx.one("schedules_next", {"now": tx.now})
    return DueSchedules(
        now=tx.now,
        schedules=tuple(schedules_from_rows(due.fetchall())),
        next_due_ms=None if later is None else later[0] - tx.now,
    )


def _decode_schedule(row: Row | None) -> Schedule | None:
    """Return the schedule of a row; None if it is unreadable, so that a save can replace it."""
    return next(iter(schedules_from_rows([] if row is None else [row])), None)


def _record_event(tx: Transaction, detail: str, actor: str, changes: Changes) -> None:
    tx.record(Event(kind=EventKind.SCHEDULE_CHANGED, actor=actor, detail=detail, changes=changes))


def fire_schedules(tx: Transaction, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
    """Apply advances; all of their jobs are one insert, so their keys are taken in one order."""
    rows = tx.all("schedules_lock", {"names": sorted({advance.name for advance in advances})})
    locked = {schedule.name: schedule for schedule in schedules_from_rows(rows)}
    pairs = []
    for advance in advances:
        # Removed, so that a second advance of the same schedule is refused.
        schedule = (
            locked.pop(advance.name, None) if may_fire(locked.get(advance.name), advance, tx.now) else None
        )
        pairs.append((advance, schedule))
    jobs = [run.job for advance, schedule in pairs if schedule is not None for run in advance.runs]
    results = iter(_insert_jobs(tx, jobs) if jobs else ())
    updates = [
        None
        if schedule is None
        else apply_advance(schedule, advance, [next(results) for _ in advance.runs], tx.now)
        for advance, schedule in pairs
    ]
    _save_updates(
        tx, [(advance.name, update) for advance, update in zip(advances, updates, strict=True) if update]
    )
    return [
        FireResult(name=advance.name, applied=update is not None, runs=update.runs if update else ())
        for advance, update in zip(advances, updates, strict=True)
    ]


def _insert_jobs(tx: Transaction, jobs: Sequence[NewJob]) -> list[InsertResult]:
    """Insert the jobs of runs; a refused job becomes a failed run.

    Raise StoreBusy for a job whose key another transaction holds: nothing advances, else its run would be
    lost.
    """
    results = insert_all(tx, jobs, InsertRules(), atomic=False)
    for result in results:
        if isinstance(result.error, StoreBusy):
            raise result.error
    return results


def _save_updates(tx: Transaction, updates: Sequence[tuple[str, ScheduleUpdate]]) -> None:
    """Store the results of advances, many by one statement."""
    removed = [name for name, update in updates if update.schedule is None]
    for name in removed:
        _remove(tx, name)
    saved = [(update.schedule, update) for _, update in updates if update.schedule is not None]
    if saved:
        # Without the definitions: these stay, and would have to be encoded again.
        advanced = [schedule for schedule, _ in saved]
        tx.run(
            "schedules_advance",
            {column: [getattr(schedule, column) for schedule in advanced] for column in ADVANCED_COLUMNS},
        )
    rows = [row_from_schedule_run(schedule.name, row) for schedule, update in saved for row in update.runs]
    if rows:
        tx.run("schedule_runs_add", {column: [row[column] for row in rows] for column in rows[0]})
    for schedule, update in saved:
        if update.may_overflow:
            tx.run("schedule_runs_trim", {"schedule": schedule.name, "limit": MAX_STORED_RUNS})


def _remove(tx: Transaction, name: str) -> bool:
    # The schedule first: an advance locks its row, and adds to the history that is deleted with it.
    was_there = tx.one("schedule_remove", {"name": name}) is not None
    tx.run("schedule_runs_trim", {"schedule": name, "limit": 0})
    return was_there
