"""Firing what is due: read, work out, move."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.firing import ScheduleAdvance, plan_advance, postpone
from forebay.domain.schedule import ScheduleRun, ScheduleRunStatus
from forebay.errors import PayloadError, StoreBusy, StoreRefused
from forebay.stores.protocol import Store
from forebay.stores.scheduling import DueSchedules, FireResult

FIRE_BATCH: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


def fire_due(
    store: Store,
    roll: Callable[[], float],
    limit: int = FIRE_BATCH,
    waiting: dict[str, int] | None = None,
) -> tuple[int, bool]:
    """Fire up to `limit` schedules that are due; how many jobs that made, and whether there may be more.

    `waiting` keeps which schedules wait for another transaction, and until when, from call to call: each is
    logged once.
    """
    waiting = {} if waiting is None else waiting
    due = store.due_schedules(limit)
    if len(due.schedules) < limit:  # else it may be due and not among these
        names = {schedule.name for schedule in due.schedules}
        for name in [name for name, until in waiting.items() if until <= due.now and name not in names]:
            del waiting[name]
    moves = [plan_advance(schedule, due.now, roll()) for schedule in due.schedules]
    busy: dict[str, StoreBusy] = {}
    fired = _fire_isolating_errors(store, moves, busy) if moves else []
    for one in fired:
        waiting.pop(one.name, None)
        _log_errors(one)
    postponed = _postpone_busy(store, due, busy, waiting) if busy else []
    has_moved = any(one.applied for one in (*fired, *postponed))
    return sum(one.jobs for one in fired), len(due.schedules) >= limit and has_moved


def _postpone_busy(
    store: Store, due: DueSchedules, busy: Mapping[str, StoreBusy], waiting: dict[str, int]
) -> list[FireResult]:
    """Look again a second later at schedules whose jobs need a key that another transaction holds.

    They would be the first of each look, and hide from it what is due after them.
    """
    moves = [postpone(schedule, due.now) for schedule in due.schedules if schedule.name in busy]
    for move in moves:
        if move.name not in waiting:
            logger.warning("schedule %r has to wait: %s", move.name, busy[move.name])
        waiting[move.name] = move.check_at or due.now
    return store.fire_schedules(moves)


def _fire_isolating_errors(
    store: Store, moves: Sequence[ScheduleAdvance], busy: dict[str, StoreBusy]
) -> list[FireResult]:
    try:
        return store.fire_schedules(moves)
    except StoreBusy as exc:
        if len(moves) > 1:
            return [one for move in moves for one in _fire_isolating_errors(store, [move], busy)]
        busy[moves[0].name] = exc
        return []
    except (StoreRefused, PayloadError) as exc:  # the second is of what was wrapped before it got there
        if len(moves) > 1:
            return [one for move in moves for one in _fire_isolating_errors(store, [move], busy)]
        # It will never be stored: the schedule goes on without this run, and its history says why.
        [move] = moves
        errors = [
            ScheduleRun(planned_at=run.planned_at, status=ScheduleRunStatus.ERROR, reason=str(exc))
            for run in move.runs
        ]
        return store.fire_schedules([replace(move, runs=(), skips=(*move.skips, *errors))])


def _log_errors(fired: FireResult) -> None:
    for firing in fired.runs:
        if firing.status is ScheduleRunStatus.ERROR:
            logger.warning("a run of schedule %r was not enqueued: %s", fired.name, firing.reason)
