"""Schedules: saved, removed and fired."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.changes import schedule_changes
from forebay.domain.firing import Move
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.schedule import FIRINGS_KEPT, Schedule
from forebay.stores.memory.inserting import insert
from forebay.stores.memory.state import State
from forebay.stores.scheduling import DueSchedules, Fired, landed, may_fire


def save(state: State, schedule: Schedule, actor: str) -> bool:
    known = state.schedules.get(schedule.name)
    if (known.revision if known else 0) != schedule.revision:
        return False
    created_at = known.created_at if known else state.now
    saved = replace(schedule, revision=schedule.revision + 1, created_at=created_at, updated_at=state.now)
    state.write(state.schedules, schedule.name, saved)
    _tell(state, f"saved {schedule.name}", actor, schedule_changes(known, saved))
    state.has_news = True
    return True


def drop(state: State, name: str, actor: str) -> bool:
    known = state.schedules.get(name)
    if known is None:
        return False
    _forget(state, name)
    _tell(state, f"removed {name}", actor, schedule_changes(known, None))
    return True


def due(state: State, limit: int) -> DueSchedules:
    waiting = [(one.due_at, one.name) for one in state.schedules.values() if one.due_at is not None]
    found = sorted(waiting)
    names = [name for due_at, name in found if due_at <= state.now]
    later = next((due_at - state.now for due_at, _ in found if due_at > state.now), None)
    schedules = tuple(state.schedules[name] for name in names[:limit])
    return DueSchedules(now=state.now, schedules=schedules, next_due_ms=later)


def fire(state: State, moves: Sequence[Move]) -> list[Fired]:
    return [_fire_one(state, move) for move in moves]


def _fire_one(state: State, move: Move) -> Fired:
    schedule = state.schedules.get(move.name)
    if schedule is None or not may_fire(schedule, move, state.now):
        return Fired(name=move.name, done=False)
    receipts = insert(state, [run.job for run in move.runs], "return", atomic=False, create_queues=True)
    landing = landed(schedule, move, receipts, state.now)
    if landing.schedule is None:
        _forget(state, move.name)
    else:
        state.write(state.schedules, move.name, landing.schedule)
        history = (*state.firings.get(move.name, ()), *landing.firings)
        state.write(state.firings, move.name, history[-FIRINGS_KEPT:])
    return Fired(name=move.name, done=True, firings=landing.firings)


def _tell(state: State, what: str, actor: str, changes: Changes) -> None:
    state.record(Event(kind=EventKind.SCHEDULE, actor=actor, detail=what, changes=changes))


def _forget(state: State, name: str) -> None:
    state.write(state.schedules, name, None)
    state.write(state.firings, name, None)
