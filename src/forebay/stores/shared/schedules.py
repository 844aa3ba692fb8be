"""Firing of schedules, and schedules as rows, shared by engines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from forebay.domain.job import Dependency, JobId, NewJob, UniqueUntil
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.schedule import (
    MAX_STORED_RUNS,
    CatchUp,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
)
from forebay.domain.schedule_runs import POSTPONE_MS, PlannedRun, ScheduleAdvance
from forebay.errors import ForebayError
from forebay.prepared_types import prepare_type

logger: logging.Logger = logging.getLogger(__name__)


class InsertAnswer(Protocol):
    """Part of an insert result that firing needs."""

    @property
    def id(self) -> JobId | None: ...

    @property
    def is_new(self) -> bool: ...

    @property
    def error(self) -> ForebayError | None: ...


def may_fire(schedule: Schedule | None, advance: ScheduleAdvance, now: int) -> bool:
    """Return whether a schedule may be advanced: the guard of `fire_schedules`."""
    if schedule is None or schedule.revision != advance.revision:
        return False
    return advance.is_manual or (schedule.check_at is not None and schedule.check_at <= now)


class ScheduleUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an advance: the schedule, None if it is removed, and new lines of its history."""

    schedule: Schedule | None
    runs: tuple[ScheduleRun, ...] = ()

    @property
    def may_overflow(self) -> bool:
        """Return whether the history may have more lines than are kept; each line stands for at least one
        run."""
        schedule = self.schedule
        return (
            schedule is not None
            and schedule.enqueued_runs + schedule.skipped_runs + schedule.failed_runs > MAX_STORED_RUNS
            and bool(self.runs)
        )


def apply_advance(
    schedule: Schedule, advance: ScheduleAdvance, results: Sequence[InsertAnswer], now: int
) -> ScheduleUpdate:
    """Return the update of a schedule from its advance and the results of its jobs. The Redis engine does
    the same in `fire_schedules.lua`."""
    runs = [_build_run(run, result, now) for run, result in zip(advance.runs, results, strict=True)]
    advanced = replace(schedule, revision=schedule.revision + 1, updated_at=now)
    if advance.waits_for_previous and any(each_run.status is ScheduleRunStatus.SKIPPED for each_run in runs):
        return ScheduleUpdate(
            schedule=advanced if advance.is_manual else replace(advanced, check_at=now + POSTPONE_MS)
        )
    history = (*(replace(skip, recorded_at=now) for skip in advance.skips), *runs)
    if advance.removes_schedule and not any(each_run.status is ScheduleRunStatus.ERROR for each_run in runs):
        return ScheduleUpdate(schedule=None, runs=history)
    return ScheduleUpdate(schedule=_update_counters(advanced, advance, history), runs=history)


def _update_counters(schedule: Schedule, advance: ScheduleAdvance, runs: Sequence[ScheduleRun]) -> Schedule:
    totals = dict.fromkeys(ScheduleRunStatus, 0)
    last_run = schedule.last_run_at, schedule.last_job_id
    for run in runs:
        totals[run.status] += run.runs
        if run.status is ScheduleRunStatus.ENQUEUED:
            last_run = run.planned_at, run.job_id
    enqueued_runs = schedule.enqueued_runs + totals[ScheduleRunStatus.ENQUEUED]
    is_over = advance.max_runs is not None and enqueued_runs >= advance.max_runs
    next_times = (
        (schedule.next_run_at, schedule.check_at)
        if advance.is_manual
        else (advance.next_run_at, advance.check_at)
    )
    next_run_at, check_at = (None, None) if is_over else next_times
    return replace(
        schedule,
        next_run_at=next_run_at,
        check_at=check_at,
        last_run_at=last_run[0],
        last_job_id=last_run[1],
        enqueued_runs=enqueued_runs,
        skipped_runs=schedule.skipped_runs + totals[ScheduleRunStatus.SKIPPED],
        failed_runs=schedule.failed_runs + totals[ScheduleRunStatus.ERROR],
    )


def _build_run(run: PlannedRun, result: InsertAnswer, now: int) -> ScheduleRun:
    if result.error is not None:
        return ScheduleRun(
            planned_at=run.planned_at,
            status=ScheduleRunStatus.ERROR,
            recorded_at=now,
            reason=str(result.error),
        )
    if not result.is_new:
        return ScheduleRun(
            planned_at=run.planned_at,
            status=ScheduleRunStatus.SKIPPED,
            recorded_at=now,
            job_id=result.id,
            reason=run.skip_reason,
        )
    return ScheduleRun(
        planned_at=run.planned_at, status=ScheduleRunStatus.ENQUEUED, recorded_at=now, job_id=result.id
    )


def schedule_text(definition: ScheduleDefinition) -> str:
    """Return a definition as engines store it."""
    return msgspec.json.encode(definition).decode()


@lru_cache(maxsize=256)
def definition_from_text(text: str | bytes) -> ScheduleDefinition:
    """Return the definition of a stored text, cached because a batch of schedules is read twice: to check
    and to advance. Not with one decoder: metadata may be a type that contains itself. Fields that only a
    newer program knows are left out."""
    raw = msgspec.json.decode(text, type=dict[str, Any])
    job = NewJob(**_fields(raw.pop("job"), NewJob, _JOB_TYPES))
    return ScheduleDefinition(job=job, **_fields(raw, ScheduleDefinition, _TYPES))


_TYPES: Final[dict[str, Any]] = {"catch_up": CatchUp, "overlap": Overlap}
_JOB_TYPES: Final[dict[str, Any]] = {
    "payload": bytes,
    "policy": RetryPolicy,
    "unique_until": UniqueUntil,
    "tags": tuple[str, ...],
    "depends_on": tuple[Dependency, ...],
}


def _fields(raw: dict[str, Any], kind: type[msgspec.Struct], types: dict[str, Any]) -> dict[str, Any]:
    return {
        name: msgspec.convert(value, prepare_type(types[name])) if name in types else value
        for name, value in raw.items()
        if name in kind.__struct_fields__
    }


# Columns of both SQL engines, in the order of `schedule.sql` and `schedule_runs.sql`.


def row_from_schedule(schedule: Schedule) -> dict[str, object]:
    state = {name: getattr(schedule, name) for name in Schedule.__struct_fields__ if name != "definition"}
    return {**state, "name": schedule.name, "definition": schedule_text(schedule.definition)}


def schedule_from_row(row: Sequence[Any]) -> Schedule | None:
    """Return None for a definition that cannot be read here, such as one in a time zone that this machine
    does not know: it stops no other schedule."""
    try:
        definition = definition_from_text(row[0])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as exc:
        logger.warning("a schedule cannot be read here and is skipped: %s", exc)
        return None
    state = dict(zip(Schedule.__struct_fields__[1:], row[1:], strict=True))
    return Schedule(definition=definition, **{**state, "is_paused": bool(state["is_paused"])})


def schedules_from_rows(rows: Iterable[Sequence[Any]]) -> list[Schedule]:
    return [schedule for schedule in map(schedule_from_row, rows) if schedule is not None]


def row_from_schedule_run(name: str, run: ScheduleRun) -> dict[str, object]:
    return {**msgspec.structs.asdict(run), "schedule": name, "status": run.status.value}


def schedule_run_from_row(row: Sequence[Any]) -> ScheduleRun:
    planned_at, status, recorded_at, job_id, reason, last_planned_at, runs = row
    return ScheduleRun(
        planned_at=planned_at,
        status=ScheduleRunStatus(status),
        recorded_at=recorded_at,
        job_id=job_id,
        reason=reason,
        last_planned_at=last_planned_at,
        runs=runs,
    )
