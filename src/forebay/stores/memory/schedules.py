"""Schedules: save, remove, fire."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.operator_changes import schedule_changes
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.memory.insert import insert
from forebay.stores.memory.state import State
from forebay.stores.shared.schedules import apply_advance, may_fire


def save(state: State, schedule: Schedule, actor: str) -> bool:
    stored = state.schedules.get(schedule.name)
    if (stored.revision if stored else 0) != schedule.revision:
        return False
    created_at = stored.created_at if stored else state.now
    saved = replace(schedule, revision=schedule.revision + 1, created_at=created_at, updated_at=state.now)
    state.write(state.schedules, schedule.name, saved)
    _record_event(state, f"saved {schedule.name}", actor, schedule_changes(stored, saved))
    state.needs_wakeup = True
    return True


def drop(state: State, name: str, actor: str) -> bool:
    stored = state.schedules.get(name)
    if stored is None:
        return False
    _remove(state, name)
    _record_event(state, f"removed {name}", actor, schedule_changes(stored, None))
    return True


def load_due(state: State, limit: int) -> DueSchedules:
    waiting = [
        (schedule.check_at, schedule.name)
        for schedule in state.schedules.values()
        if schedule.check_at is not None
    ]
    waiting_in_order = sorted(waiting)
    names = [name for due_at, name in waiting_in_order if due_at <= state.now]
    next_due_ms = next((due_at - state.now for due_at, _ in waiting_in_order if due_at > state.now), None)
    schedules = tuple(state.schedules[name] for name in names[:limit])
    return DueSchedules(now=state.now, schedules=schedules, next_due_ms=next_due_ms)


def fire_schedules(state: State, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
    return [_fire_one(state, advance) for advance in advances]


def _fire_one(state: State, advance: ScheduleAdvance) -> FireResult:
    schedule = state.schedules.get(advance.name)
    if schedule is None or not may_fire(schedule, advance, state.now):
        return FireResult(name=advance.name, applied=False)
    results = insert(state, [run.job for run in advance.runs], "return", atomic=False, create_queues=True)
    update = apply_advance(schedule, advance, results, state.now)
    if update.schedule is None:
        _remove(state, advance.name)
    else:
        state.write(state.schedules, advance.name, update.schedule)
        history = (*state.schedule_runs.get(advance.name, ()), *update.runs)
        state.write(state.schedule_runs, advance.name, history[-MAX_STORED_RUNS:])
    return FireResult(name=advance.name, applied=True, runs=update.runs)


def _record_event(state: State, detail: str, actor: str, changes: Changes) -> None:
    state.record(Event(kind=EventKind.SCHEDULE_CHANGED, actor=actor, detail=detail, changes=changes))


def _remove(state: State, name: str) -> None:
    state.write(state.schedules, name, None)
    state.write(state.schedule_runs, name, None)
