"""Schedules: save, remove, fire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.job import JobId
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_query import check_limit
from forebay.domain.operator_changes import schedule_changes
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule, ScheduleRun
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.shared.rows import Row, json_text
from forebay.stores.shared.schedules import (
    ScheduleUpdate,
    apply_advance,
    may_fire,
    row_from_schedule,
    row_from_schedule_run,
    schedule_from_row,
    schedule_run_from_row,
    schedules_from_rows,
)
from forebay.stores.sqlite.insert import InsertRules, insert_all
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteScheduleStore(ABC):
    """Mixin of the store: write side of schedules."""

    _new_id: Callable[[], JobId] | None
    _clock: Clock

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        return self._write(lambda tx: save(tx, schedule, actor), durable=True, moves=False)

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, name, actor), durable=True, moves=False)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        # Without the write lock: every worker polls, and nearly never is a schedule due.
        now = self._clock.now_ms()
        due = schedules_from_rows(self._query("schedules_due", {"now": now, "limit": limit}))
        [next_check_at] = [row[0] for row in self._query("schedules_next", {"now": now})] or [None]
        return DueSchedules(
            now=now, schedules=tuple(due), next_due_ms=None if next_check_at is None else next_check_at - now
        )

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        return self._write(lambda tx: fire_schedules(tx, self._new_id, advances), durable=True, moves=False)


class SqliteScheduleReader(ABC):
    """Mixin of the reader: read side of schedules."""

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        wanted = None if names is None else json_text(list(names))
        values: dict[str, object] = {"names": wanted, "after": after or "", "limit": limit}
        return schedules_from_rows(self._query("schedules", values))

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        check_limit(limit)
        return [
            schedule_run_from_row(row)
            for row in self._query("schedule_runs", {"schedule": name, "limit": limit})
        ]


def save(tx: Transaction, schedule: Schedule, actor: str) -> bool:
    row = tx.one("schedule", {"name": schedule.name})
    revision, created_at = (0, tx.now) if row is None else (row[1], row[-2])
    if revision != schedule.revision:
        return False
    saved = replace(schedule, revision=revision + 1, created_at=created_at, updated_at=tx.now)
    tx.run("schedule_save", row_from_schedule(saved))
    _record_event(tx, f"saved {schedule.name}", actor, schedule_changes(_decode_schedule(row), saved))
    tx.needs_wakeup = True
    return True


def drop(tx: Transaction, name: str, actor: str) -> bool:
    row = tx.one("schedule", {"name": name})
    if not _remove(tx, name):
        return False
    _record_event(tx, f"removed {name}", actor, schedule_changes(_decode_schedule(row), None))
    return True


def _decode_schedule(row: Row | None) -> Schedule | None:
    """Return the schedule of a row; None for one that cannot be read, which a save may be about to
    replace."""
    return next(iter(schedules_from_rows([] if row is None else [row])), None)


def _record_event(tx: Transaction, detail: str, actor: str, changes: Changes) -> None:
    tx.record(Event(kind=EventKind.SCHEDULE_CHANGED, actor=actor, detail=detail, changes=changes))


def fire_schedules(
    tx: Transaction, new_id: Callable[[], JobId] | None, advances: Sequence[ScheduleAdvance]
) -> list[FireResult]:
    return [_fire_one(tx, new_id, advance) for advance in advances]


def _fire_one(tx: Transaction, new_id: Callable[[], JobId] | None, advance: ScheduleAdvance) -> FireResult:
    row = tx.one("schedule", {"name": advance.name})
    schedule = None if row is None else schedule_from_row(row)
    if schedule is None or not may_fire(schedule, advance, tx.now):
        return FireResult(name=advance.name, applied=False)
    results = insert_all(tx, new_id, [run.job for run in advance.runs], InsertRules(), atomic=False)
    update = apply_advance(schedule, advance, results, tx.now)
    _save_update(tx, advance.name, update)
    return FireResult(name=advance.name, applied=True, runs=update.runs)


def _save_update(tx: Transaction, name: str, update: ScheduleUpdate) -> None:
    if update.schedule is None:
        _remove(tx, name)
        return
    tx.run("schedule_save", row_from_schedule(update.schedule))
    for run in update.runs:
        tx.run("schedule_run_add", row_from_schedule_run(name, run))
    if update.may_overflow:
        _trim(tx, name, MAX_STORED_RUNS)


def _remove(tx: Transaction, name: str) -> bool:
    _trim(tx, name, 0)
    return tx.run("schedule_remove", {"name": name}).rowcount > 0


def _trim(tx: Transaction, name: str, max_runs: int) -> None:
    values: dict[str, Any] = {"schedule": name, "max_runs": max_runs}
    tx.run("schedule_runs_trim", values)
