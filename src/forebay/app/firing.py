"""Firing what is due: read, work out, move."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.firing import Move, advance
from forebay.domain.schedule import Firing, FiringStatus
from forebay.errors import PayloadError, StoreBusy, StoreRefused
from forebay.stores.protocol import Store
from forebay.stores.scheduling import Fired

FIRED_AT_ONCE: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


def fire_due(
    store: Store,
    roll: Callable[[], float],
    most: int = FIRED_AT_ONCE,
    waiting: set[str] | None = None,
) -> tuple[int, bool]:
    """Fire up to `most` schedules that are due; how many jobs that made, and whether there may be more.

    `waiting` keeps the names of schedules that wait for another transaction, from call to call: each is
    logged once.
    """
    waiting = set() if waiting is None else waiting
    due = store.due_schedules(most)
    if len(due.schedules) < most:  # else it may be due and not among these
        waiting.intersection_update([schedule.name for schedule in due.schedules])
    moves = [advance(schedule, due.now, roll()) for schedule in due.schedules]
    fired = _fired(store, moves, waiting) if moves else []
    for one in fired:
        waiting.discard(one.name)
        _report(one)
    return sum(one.jobs for one in fired), len(due.schedules) >= most and any(one.done for one in fired)


def _fired(store: Store, moves: Sequence[Move], waiting: set[str]) -> list[Fired]:
    try:
        return store.fire(moves)
    except StoreBusy as exc:
        if len(moves) > 1:
            return [one for move in moves for one in _fired(store, [move], waiting)]
        # A transaction holds the key of its job. The schedule stays due, and the next look fires it.
        if moves[0].name not in waiting:
            waiting.add(moves[0].name)
            logger.warning("schedule %r has to wait: %s", moves[0].name, exc)
        return []
    except (StoreRefused, PayloadError) as exc:  # the second is of what was wrapped before it got there
        if len(moves) > 1:
            return [one for move in moves for one in _fired(store, [move], waiting)]
        # It will never be stored: the schedule goes on without this run, and its history says why.
        [move] = moves
        errors = [Firing(at=run.at, status=FiringStatus.ERROR, reason=str(exc)) for run in move.runs]
        return store.fire([replace(move, runs=(), skips=(*move.skips, *errors))])


def _report(fired: Fired) -> None:
    for firing in fired.firings:
        if firing.status is FiringStatus.ERROR:
            logger.warning("a run of schedule %r was not enqueued: %s", fired.name, firing.reason)
