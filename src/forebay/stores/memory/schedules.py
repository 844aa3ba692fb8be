"""Schedules: saved, removed and fired."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.changes import schedule_changes
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.memory.insert import insert
from forebay.stores.memory.state import State
from forebay.stores.shared.schedules import apply_advance, may_fire


def save(state: State, schedule: Schedule, actor: str) -> bool:
    known = state.schedules.get(schedule.name)
    if (known.revision if known else 0) != schedule.revision:
        return False
    created_at = known.created_at if known else state.now
    saved = replace(schedule, revision=schedule.revision + 1, created_at=created_at, updated_at=state.now)
    state.write(state.schedules, schedule.name, saved)
    _record_event(state, f"saved {schedule.name}", actor, schedule_changes(known, saved))
    state.needs_wakeup = True
    return True


def drop(state: State, name: str, actor: str) -> bool:
    known = state.schedules.get(name)
    if known is None:
        return False
    _remove(state, name)
    _record_event(state, f"removed {name}", actor, schedule_changes(known, None))
    return True


def load_due(state: State, limit: int) -> DueSchedules:
    waiting = [(one.check_at, one.name) for one in state.schedules.values() if one.check_at is not None]
    found = sorted(waiting)
    names = [name for due_at, name in found if due_at <= state.now]
    later = next((due_at - state.now for due_at, _ in found if due_at > state.now), None)
    schedules = tuple(state.schedules[name] for name in names[:limit])
    return DueSchedules(now=state.now, schedules=schedules, next_due_ms=later)


def fire_schedules(state: State, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
    return [_fire_one(state, move) for move in advances]


def _fire_one(state: State, advance: ScheduleAdvance) -> FireResult:
    schedule = state.schedules.get(advance.name)
    if schedule is None or not may_fire(schedule, advance, state.now):
        return FireResult(name=advance.name, applied=False)
    receipts = insert(state, [run.job for run in advance.runs], "return", atomic=False, create_queues=True)
    landing = apply_advance(schedule, advance, receipts, state.now)
    if landing.schedule is None:
        _remove(state, advance.name)
    else:
        state.write(state.schedules, advance.name, landing.schedule)
        history = (*state.schedule_runs.get(advance.name, ()), *landing.runs)
        state.write(state.schedule_runs, advance.name, history[-MAX_STORED_RUNS:])
    return FireResult(name=advance.name, applied=True, runs=landing.runs)


def _record_event(state: State, detail: str, actor: str, changes: Changes) -> None:
    state.record(Event(kind=EventKind.SCHEDULE_CHANGED, actor=actor, detail=detail, changes=changes))


def _remove(state: State, name: str) -> None:
    state.write(state.schedules, name, None)
    state.write(state.schedule_runs, name, None)
