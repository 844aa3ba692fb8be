"""Due schedules: fire them, and isolate those whose runs the store refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.schedule import ScheduleRun, ScheduleRunStatus
from forebay.domain.schedule_runs import (
    ScheduleAdvance,
    plan_advance,
    postpone,
)
from forebay.errors import (
    PayloadError,
    StoreBusy,
    StoreRefused,
)
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.store import Store

FIRE_BATCH: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


def fire_due(
    store: Store,
    roll: Callable[[], float],
    limit: int = FIRE_BATCH,
    waiting: dict[str, int] | None = None,
) -> tuple[int, bool]:
    """Fire up to `limit` due schedules; return the number of new jobs, and whether more may be due.

    `waiting` holds the schedules that wait for another transaction, and until when, from call to call: each
    is logged once.
    """
    waiting = {} if waiting is None else waiting
    due = store.due_schedules(limit)
    if len(due.schedules) < limit:  # else it may be due and missing in this page
        names = {schedule.name for schedule in due.schedules}
        for name in [name for name, until in waiting.items() if until <= due.now and name not in names]:
            del waiting[name]
    advances = [plan_advance(schedule, due.now, roll()) for schedule in due.schedules]
    busy: dict[str, StoreBusy] = {}
    results = _fire_isolating_errors(store, advances, busy) if advances else []
    for result in results:
        waiting.pop(result.name, None)
        _log_errors(result)
    postponed = _postpone_busy(store, due, busy, waiting) if busy else []
    has_advanced = any(result.applied for result in (*results, *postponed))
    return sum(result.jobs for result in results), len(due.schedules) >= limit and has_advanced


def _postpone_busy(
    store: Store, due: DueSchedules, busy: Mapping[str, StoreBusy], waiting: dict[str, int]
) -> list[FireResult]:
    """Postpone by a second the schedules whose jobs need a key that another transaction holds.

    They would be the first of each page, and hide later due schedules from it.
    """
    advances = [postpone(schedule, due.now) for schedule in due.schedules if schedule.name in busy]
    for advance in advances:
        if advance.name not in waiting:
            logger.warning("schedule %r has to wait: %s", advance.name, busy[advance.name])
        waiting[advance.name] = advance.check_at or due.now
    return store.fire_schedules(advances)


def _fire_isolating_errors(
    store: Store, advances: Sequence[ScheduleAdvance], busy: dict[str, StoreBusy]
) -> list[FireResult]:
    try:
        return store.fire_schedules(advances)
    except StoreBusy as exc:
        if len(advances) > 1:
            return [
                result for advance in advances for result in _fire_isolating_errors(store, [advance], busy)
            ]
        busy[advances[0].name] = exc
        return []
    except (StoreRefused, PayloadError) as exc:  # PayloadError: the payload was not encrypted or offloaded
        if len(advances) > 1:
            return [
                result for advance in advances for result in _fire_isolating_errors(store, [advance], busy)
            ]
        # The run can never be stored: the schedule continues without it, and its history has the reason.
        [advance] = advances
        errors = [
            ScheduleRun(planned_at=run.planned_at, status=ScheduleRunStatus.ERROR, reason=str(exc))
            for run in advance.runs
        ]
        return store.fire_schedules([replace(advance, runs=(), skips=(*advance.skips, *errors))])


def _log_errors(result: FireResult) -> None:
    for run in result.runs:
        if run.status is ScheduleRunStatus.ERROR:
            logger.warning("a run of schedule %r was not enqueued: %s", result.name, run.reason)
