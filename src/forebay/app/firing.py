"""Firing what is due: read, work out, move."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.firing import Move, advance, postpone
from forebay.domain.schedule import Firing, FiringStatus
from forebay.errors import PayloadError, StoreBusy, StoreRefused
from forebay.stores.protocol import Store
from forebay.stores.scheduling import DueSchedules, Fired

FIRED_AT_ONCE: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


def fire_due(
    store: Store,
    roll: Callable[[], float],
    most: int = FIRED_AT_ONCE,
    waiting: dict[str, int] | None = None,
) -> tuple[int, bool]:
    """Fire up to `most` schedules that are due; how many jobs that made, and whether there may be more.

    `waiting` keeps which schedules wait for another transaction, and until when, from call to call: each is
    logged once.
    """
    waiting = {} if waiting is None else waiting
    due = store.due_schedules(most)
    if len(due.schedules) < most:  # else it may be due and not among these
        names = {schedule.name for schedule in due.schedules}
        for name in [name for name, until in waiting.items() if until <= due.now and name not in names]:
            del waiting[name]
    moves = [advance(schedule, due.now, roll()) for schedule in due.schedules]
    busy: dict[str, StoreBusy] = {}
    fired = _fired(store, moves, busy) if moves else []
    for one in fired:
        waiting.pop(one.name, None)
        _report(one)
    postponed = _postpone(store, due, busy, waiting) if busy else []
    has_moved = any(one.done for one in (*fired, *postponed))
    return sum(one.jobs for one in fired), len(due.schedules) >= most and has_moved


def _postpone(
    store: Store, due: DueSchedules, busy: Mapping[str, StoreBusy], waiting: dict[str, int]
) -> list[Fired]:
    """Look again a second later at schedules whose jobs need a key that another transaction holds.

    They would be the first of each look, and hide from it what is due after them.
    """
    moves = [postpone(schedule, due.now) for schedule in due.schedules if schedule.name in busy]
    for move in moves:
        if move.name not in waiting:
            logger.warning("schedule %r has to wait: %s", move.name, busy[move.name])
        waiting[move.name] = move.due_at or due.now
    return store.fire(moves)


def _fired(store: Store, moves: Sequence[Move], busy: dict[str, StoreBusy]) -> list[Fired]:
    try:
        return store.fire(moves)
    except StoreBusy as exc:
        if len(moves) > 1:
            return [one for move in moves for one in _fired(store, [move], busy)]
        busy[moves[0].name] = exc
        return []
    except (StoreRefused, PayloadError) as exc:  # the second is of what was wrapped before it got there
        if len(moves) > 1:
            return [one for move in moves for one in _fired(store, [move], busy)]
        # It will never be stored: the schedule goes on without this run, and its history says why.
        [move] = moves
        errors = [Firing(at=run.at, status=FiringStatus.ERROR, reason=str(exc)) for run in move.runs]
        return store.fire([replace(move, runs=(), skips=(*move.skips, *errors))])


def _report(fired: Fired) -> None:
    for firing in fired.firings:
        if firing.status is FiringStatus.ERROR:
            logger.warning("a run of schedule %r was not enqueued: %s", fired.name, firing.reason)
