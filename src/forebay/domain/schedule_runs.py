"""Runs of a schedule: which are due, which of them are enqueued, and when the next one is.

All of it is computed from a schedule that was read, and from the store's clock. The store applies the advance
only if the schedule has not changed meanwhile. So any number of schedulers may compute it at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.cron import parse_cron
from forebay.domain.job import LATEST_AT, NewJob
from forebay.domain.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
    job_at,
)
from forebay.domain.time_zone import zone_of

# A run that is found this late was not missed: the scheduler was only busy.
ON_TIME_MS: Final = 10_000
POSTPONE_MS: Final = 1_000
MAX_COUNTED: Final = 1_000
_FIRST_SPAN_MS: Final = 60_000

MISSED: Final = "missed: no scheduler was there to fire it"
REPLACED: Final = "a later run took its place while the one before had not ended"


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Run to be enqueued; `skip_reason` is recorded if a key of its job is taken."""

    planned_at: int
    job: NewJob
    skip_reason: str


class ScheduleAdvance(msgspec.Struct, frozen=True, kw_only=True):
    """Advance of a schedule: its runs and its next state, valid only for the `revision` that was read."""

    name: str
    revision: int
    runs: tuple[PlannedRun, ...] = ()
    skips: tuple[ScheduleRun, ...] = ()
    next_run_at: int | None = None
    check_at: int | None = None
    waits_for_previous: bool = False  # a run whose key is taken waits, and the schedule does not advance
    removes_schedule: bool = False  # it has no more runs, and is removed with its last one
    is_manual: bool = False  # it neither has to be due, nor changes the next run
    max_runs: int | None = None


def next_run(definition: ScheduleDefinition, after: int) -> int | None:
    """Return the first run later than an instant; None if there is none."""
    if definition.start_at is not None:
        after = max(after, definition.start_at - 1)
    at = _next_planned_at(definition, after)
    if at is None or at > LATEST_AT or (definition.end_at is not None and at > definition.end_at):
        return None
    return at


def next_runs(definition: ScheduleDefinition, after: int) -> Iterator[int]:
    """Yield the runs later than an instant."""
    at = next_run(definition, after)
    while at is not None:
        yield at
        at = next_run(definition, at)


def plan_runs(schedule: Schedule, after: int, roll: float) -> Schedule:
    """Return the schedule with its next run later than an instant; a paused one has it and is not due."""
    definition = schedule.definition
    is_over = definition.max_runs is not None and schedule.enqueued_runs >= definition.max_runs
    at = None if is_over else next_run(definition, after)
    due_at = None if schedule.is_paused else _check_at(definition, at, roll)
    return replace(schedule, next_run_at=at, check_at=due_at)


def plan_advance(schedule: Schedule, now: int, roll: float) -> ScheduleAdvance:
    """Plan the runs that are due at this time of the store's clock."""
    definition, first = schedule.definition, schedule.next_run_at
    if first is None:
        return ScheduleAdvance(name=schedule.name, revision=schedule.revision)
    due = _find_newest(definition, first, now)
    planned = due[-1:] if _is_waiting(schedule, first) else _choose_runs(definition, due, now)
    planned = _limit_runs(planned, definition, schedule.enqueued_runs)
    at = next_run(definition, now)
    return ScheduleAdvance(
        name=schedule.name,
        revision=schedule.revision,
        runs=tuple(_plan_run(definition, planned_at) for planned_at in planned),
        skips=tuple(_build_skips(definition, first, due, planned)),
        next_run_at=at,
        check_at=_check_at(definition, at, roll),
        waits_for_previous=definition.overlap is Overlap.QUEUE,
        removes_schedule=definition.is_one_off and bool(planned),
        max_runs=definition.max_runs,
    )


def postpone(schedule: Schedule, now: int) -> ScheduleAdvance:
    """Postpone a due run, because another transaction holds a key of its job."""
    return ScheduleAdvance(
        name=schedule.name,
        revision=schedule.revision,
        next_run_at=schedule.next_run_at,
        check_at=now + POSTPONE_MS,
    )


def _is_waiting(schedule: Schedule, first: int) -> bool:
    """Return whether a run waits for the one before: then it was not missed, however late it is. Jitter
    alone delays no check for so long."""
    waits = schedule.definition.overlap is Overlap.QUEUE and schedule.check_at is not None
    return waits and (schedule.check_at or 0) > first + schedule.definition.jitter_ms


def manual_run(schedule: Schedule, now: int) -> ScheduleAdvance:
    """Plan a run now, whatever the times of the schedule are."""
    definition = schedule.definition
    run = PlannedRun(
        planned_at=now, job=job_at(definition, now, is_manual=True), skip_reason=_skip_reason(definition)
    )
    return ScheduleAdvance(name=schedule.name, revision=schedule.revision, runs=(run,), is_manual=True)


def _next_planned_at(definition: ScheduleDefinition, after: int) -> int | None:
    if definition.cron is not None:
        at = parse_cron(definition.cron).next_after(after // 1_000, zone_of(definition.timezone))
        return None if at is None else at * 1_000
    if definition.every_ms is not None:
        start = definition.start_at or 0
        return start + ((after - start) // definition.every_ms + 1) * definition.every_ms
    return definition.at if definition.at is not None and definition.at > after else None


def _check_at(definition: ScheduleDefinition, at: int | None, roll: float) -> int | None:
    return None if at is None else at + int(roll * definition.jitter_ms)


def _plan_run(definition: ScheduleDefinition, at: int) -> PlannedRun:
    return PlannedRun(planned_at=at, job=job_at(definition, at), skip_reason=_skip_reason(definition))


def _skip_reason(definition: ScheduleDefinition) -> str:
    reasons = []
    if definition.overlap is not Overlap.ALLOW:
        reasons.append("the run before has not ended")
    if definition.unique_key is not None:
        reasons.append("its unique key was used within its window")
    elif definition.job.unique_key is not None:
        reasons.append("its unique key is taken")
    return " or ".join(reasons) or "this run was enqueued before"


def _max_at_once(definition: ScheduleDefinition) -> int:
    return definition.catch_up_limit + ON_TIME_MS // 1_000 + 1


def _find_newest(definition: ScheduleDefinition, first: int, now: int) -> list[int]:
    """Return the newest runs from the first due one until now, at least as many as could be enqueued.

    They are searched backwards from now in growing spans, so that after a long downtime the search does not
    pass through a year of seconds.
    """
    span = _FIRST_SPAN_MS
    while now - span > first:
        newest = list(_until(now, next_runs(definition, now - span)))
        if len(newest) >= _max_at_once(definition):
            return newest
        span *= 8
    return [first, *_until(now, next_runs(definition, first))]


def _until(end: int, runs: Iterator[int]) -> Iterator[int]:
    return takewhile(lambda at: at <= end, runs)


def _choose_runs(definition: ScheduleDefinition, due: Sequence[int], now: int) -> list[int]:
    late_before = now - ON_TIME_MS - definition.jitter_ms
    on_time = [at for at in due if at >= late_before]
    missed = [at for at in due if now - definition.catch_up_ms <= at < late_before]
    if definition.is_one_off and definition.catch_up is not CatchUp.NONE:
        return list(due)  # no later run could replace it
    if definition.overlap is Overlap.QUEUE or definition.catch_up is CatchUp.LATEST:
        caught_up = [] if on_time else missed[-1:]
    else:
        caught_up = missed[-definition.catch_up_limit :]
    runs = on_time if definition.catch_up is CatchUp.NONE else caught_up + on_time
    max_at_once = 1 if definition.overlap is Overlap.QUEUE else _max_at_once(definition)
    return runs[-max_at_once:]


def _limit_runs(runs: list[int], definition: ScheduleDefinition, enqueued_runs: int) -> list[int]:
    max_runs = definition.max_runs
    return runs if max_runs is None else runs[: max(0, max_runs - enqueued_runs)]


def _build_skips(
    definition: ScheduleDefinition, first: int, due: Sequence[int], planned: Sequence[int]
) -> Iterator[ScheduleRun]:
    """Yield the runs that are not enqueued, as one line of the history."""
    skipped = [at for at in due if at not in planned]
    earlier = _count_runs(definition, first, due[0]) if due and first < due[0] else 0
    if not skipped and not earlier:
        return
    is_replaced = definition.overlap is Overlap.QUEUE and bool(planned)
    yield ScheduleRun(
        planned_at=first if earlier else skipped[0],
        last_planned_at=max(skipped, default=first),
        runs=earlier + len(skipped),
        status=ScheduleRunStatus.SKIPPED,
        reason=REPLACED if is_replaced else MISSED,
    )


def _count_runs(definition: ScheduleDefinition, first: int, end: int) -> int:
    runs = _until(end - 1, next_runs(definition, first))
    return 1 + sum(1 for _ in islice(runs, MAX_COUNTED - 1))
