"""Schedules: saved, removed and fired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from msgspec.structs import replace

from forebay.domain.changes import schedule_changes
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import NewJob
from forebay.domain.query import check_limit
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule, ScheduleRun
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.errors import StoreBusy
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.values import InsertResult
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

# The columns that firing changes.
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
    """The part of a handle to write that keeps schedules."""

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
    """The part of a handle to look that shows schedules."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        values = {"names": None if names is None else list(names), "after": after or "", "limit": limit}
        with self._open_snapshot() as look:
            return schedules_from_rows(look.all("schedules", values))

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        check_limit(limit)
        with self._open_snapshot() as look:
            return [
                schedule_run_from_row(row)
                for row in look.all("schedule_runs", {"schedule": name, "limit": limit})
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
    found = tx.run("schedules_due", {"now": tx.now, "limit": limit})
    later = tx.one("schedules_next", {"now": tx.now})
    return DueSchedules(
        now=tx.now,
        schedules=tuple(schedules_from_rows(found.fetchall())),
        next_due_ms=None if later is None else later[0] - tx.now,
    )


def _decode_schedule(row: Row | None) -> Schedule | None:
    """One that cannot be read is as good as none: somebody may be about to replace it."""
    return next(iter(schedules_from_rows([] if row is None else [row])), None)


def _record_event(tx: Transaction, detail: str, actor: str, changes: Changes) -> None:
    tx.record(Event(kind=EventKind.SCHEDULE_CHANGED, actor=actor, detail=detail, changes=changes))


def fire_schedules(tx: Transaction, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
    """All jobs of all moves are inserted at once: their keys are taken in one order, whoever else takes
    some."""
    rows = tx.all("schedules_lock", {"names": sorted({move.name for move in advances})})
    locked = {schedule.name: schedule for schedule in schedules_from_rows(rows)}
    made = []
    for move in advances:
        # Taken out, so that a second move of the same schedule finds it moved.
        schedule = locked.pop(move.name, None) if may_fire(locked.get(move.name), move, tx.now) else None
        made.append((move, schedule))
    jobs = [run.job for move, schedule in made if schedule is not None for run in move.runs]
    receipts = iter(_insert_jobs(tx, jobs) if jobs else ())
    landings = [
        None
        if schedule is None
        else apply_advance(schedule, move, [next(receipts) for _ in move.runs], tx.now)
        for move, schedule in made
    ]
    _save_updates(
        tx, [(move.name, landing) for move, landing in zip(advances, landings, strict=True) if landing]
    )
    return [
        FireResult(name=move.name, applied=landing is not None, runs=landing.runs if landing else ())
        for move, landing in zip(advances, landings, strict=True)
    ]


def _insert_jobs(tx: Transaction, jobs: Sequence[NewJob]) -> list[InsertResult]:
    """Insert the jobs of runs. One that is refused for good is noted as failed; one whose key another
    transaction holds is not, and nothing moves: else its run would be lost."""
    receipts = insert_all(tx, jobs, InsertRules(), atomic=False)
    for receipt in receipts:
        if isinstance(receipt.error, StoreBusy):
            raise receipt.error
    return receipts


def _save_updates(tx: Transaction, updates: Sequence[tuple[str, ScheduleUpdate]]) -> None:
    """Write what the moves have come to, many by one statement."""
    gone = [name for name, landing in updates if landing.schedule is None]
    for name in gone:
        _remove(tx, name)
    stay = [(landing.schedule, landing) for _, landing in updates if landing.schedule is not None]
    if stay:
        # Column by column, without the definitions: these stay, and would have to be written as text.
        moved = [one for one, _ in stay]
        tx.run(
            "schedules_advance",
            {column: [getattr(one, column) for one in moved] for column in ADVANCED_COLUMNS},
        )
    lines = [row_from_schedule_run(one.name, line) for one, landing in stay for line in landing.runs]
    if lines:
        tx.run("schedule_runs_add", {column: [line[column] for line in lines] for column in lines[0]})
    for one, landing in stay:
        if landing.may_overflow:
            tx.run("schedule_runs_trim", {"schedule": one.name, "limit": MAX_STORED_RUNS})


def _remove(tx: Transaction, name: str) -> bool:
    # The schedule first: who fires it has its row, and adds to the history that goes with it.
    was_there = tx.one("schedule_remove", {"name": name}) is not None
    tx.run("schedule_runs_trim", {"schedule": name, "limit": 0})
    return was_there
