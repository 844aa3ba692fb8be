"""Schedules: saved, removed and fired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.changes import schedule_changes
from forebay.domain.firing import Move
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import JobId
from forebay.domain.query import check_limit
from forebay.domain.schedule import FIRINGS_KEPT, Firing, Schedule
from forebay.stores.rows import Row, json_text
from forebay.stores.scheduling import (
    DueSchedules,
    Fired,
    Landing,
    firing_from_row,
    landed,
    may_fire,
    row_from_firing,
    row_from_schedule,
    schedule_from_row,
    schedules_from_rows,
)
from forebay.stores.sqlite.inserting import Rules, insert_all
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteSchedules(ABC):
    """The part of a handle to write that keeps schedules."""

    _new_id: Callable[[], JobId] | None
    _clock: Clock

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        return self._write(lambda tx: save(tx, schedule, actor), durable=True, moves=False)

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, name, actor), durable=True, moves=False)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        # Beside all writers: every worker asks, and nearly never is anything due.
        now = self._clock.now_ms()
        found = schedules_from_rows(self._looked("schedules_due", {"now": now, "limit": limit}))
        [later] = [row[0] for row in self._looked("schedules_next", {"now": now})] or [None]
        return DueSchedules(
            now=now, schedules=tuple(found), next_due_ms=None if later is None else later - now
        )

    def fire(self, moves: Sequence[Move]) -> list[Fired]:
        return self._write(lambda tx: fire(tx, self._new_id, moves), durable=True, moves=False)


class LooksAtSqliteSchedules(ABC):
    """The part of a handle to look that shows schedules."""

    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        wanted = None if names is None else json_text(list(names))
        values: dict[str, object] = {"names": wanted, "after": after or "", "limit": limit}
        return schedules_from_rows(self._looked("schedules", values))

    def firings(self, name: str, *, limit: int = 100) -> list[Firing]:
        check_limit(limit)
        return [firing_from_row(row) for row in self._looked("firings", {"name": name, "limit": limit})]


def save(tx: Transaction, schedule: Schedule, actor: str) -> bool:
    row = tx.one("schedule", {"name": schedule.name})
    revision, created_at = (0, tx.now) if row is None else (row[1], row[-2])
    if revision != schedule.revision:
        return False
    saved = replace(schedule, revision=revision + 1, created_at=created_at, updated_at=tx.now)
    tx.run("schedule_save", row_from_schedule(saved))
    _tell(tx, f"saved {schedule.name}", actor, schedule_changes(_seen(row), saved))
    tx.has_news = True
    return True


def drop(tx: Transaction, name: str, actor: str) -> bool:
    row = tx.one("schedule", {"name": name})
    if not _forget(tx, name):
        return False
    _tell(tx, f"removed {name}", actor, schedule_changes(_seen(row), None))
    return True


def _seen(row: Row | None) -> Schedule | None:
    """One that cannot be read is as good as none: somebody may be about to replace it."""
    return next(iter(schedules_from_rows([] if row is None else [row])), None)


def _tell(tx: Transaction, what: str, actor: str, changes: Changes) -> None:
    tx.record(Event(kind=EventKind.SCHEDULE, actor=actor, detail=what, changes=changes))


def fire(tx: Transaction, new_id: Callable[[], JobId] | None, moves: Sequence[Move]) -> list[Fired]:
    return [_fire_one(tx, new_id, move) for move in moves]


def _fire_one(tx: Transaction, new_id: Callable[[], JobId] | None, move: Move) -> Fired:
    row = tx.one("schedule", {"name": move.name})
    schedule = None if row is None else schedule_from_row(row)
    if schedule is None or not may_fire(schedule, move, tx.now):
        return Fired(name=move.name, done=False)
    receipts = insert_all(tx, new_id, [run.job for run in move.runs], Rules(), atomic=False)
    landing = landed(schedule, move, receipts, tx.now)
    _keep(tx, move.name, landing)
    return Fired(name=move.name, done=True, firings=landing.firings)


def _keep(tx: Transaction, name: str, landing: Landing) -> None:
    if landing.schedule is None:
        _forget(tx, name)
        return
    tx.run("schedule_save", row_from_schedule(landing.schedule))
    for firing in landing.firings:
        tx.run("firing_add", row_from_firing(name, firing))
    if landing.may_overflow:
        _trim(tx, name, FIRINGS_KEPT)


def _forget(tx: Transaction, name: str) -> bool:
    _trim(tx, name, 0)
    return tx.run("schedule_remove", {"name": name}).rowcount > 0


def _trim(tx: Transaction, name: str, kept: int) -> None:
    values: dict[str, Any] = {"name": name, "kept": kept}
    tx.run("firings_trim", values)
