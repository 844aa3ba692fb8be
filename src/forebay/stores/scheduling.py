"""The part of the seam that keeps schedules, and what it takes to fire one, whatever keeps it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from forebay.domain.firing import HELD_FOR_MS, Move, Run
from forebay.domain.job import JobId, Need, NewJob, UniqueUntil
from forebay.domain.retry import RetryPolicy
from forebay.domain.schedule import FIRINGS_KEPT, CatchUp, Definition, Firing, FiringStatus, Overlap, Schedule
from forebay.errors import ForebayError

logger: logging.Logger = logging.getLogger(__name__)


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """What is due at `now`, and after how long the next one is, None if there is no other."""

    now: int
    schedules: tuple[Schedule, ...] = ()
    next_due_ms: int | None = None


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a move; not `done` if somebody else has fired or changed the schedule meanwhile."""

    name: str
    done: bool
    firings: tuple[Firing, ...] = ()

    @property
    def jobs(self) -> int:
        return sum(firing.status is FiringStatus.ENQUEUED for firing in self.firings)


class Taken(Protocol):
    """What is to be known of the answer to a new job."""

    @property
    def id(self) -> JobId | None: ...

    @property
    def is_new(self) -> bool: ...

    @property
    def error(self) -> ForebayError | None: ...


class KeepsSchedules(Protocol):
    """The write side of schedules. A schedule is a record with a revision: who has worked out a change from
    what was read says which revision that was, and an older one changes nothing."""

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        """Write a schedule as it is given, with the next revision and the store's time; `revision` is the one
        that it was worked out from, 0 for a new one. False, and nothing is written, if it has another by now.
        Leaves a SCHEDULE event, and is worth a wake-up."""
        ...

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        """Remove a schedule with its history; whether there was one. Its jobs stay. Leaves a SCHEDULE
        event."""
        ...

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        """Up to `limit` schedules with `due_at` now or earlier, the first first."""
        ...

    def fire(self, moves: Sequence[Move]) -> list[Fired]:
        """Make moves, all in one transaction; one answer each, in the order asked.

        A move is made only while the schedule has its revision and is due (unless it is made by hand). Its
        jobs are inserted as by an insert that is not atomic, in the same transaction that moves the schedule
        on: so each run is enqueued exactly once, whoever dies and however many fire. Each run and each skip
        leaves a line in the history, of which the last 100 are kept. A job that is refused leaves an error
        there; one whose key is taken is skipped, or holds the schedule where it is for another second
        (`holds`).
        """
        ...


class LooksAtSchedules(Protocol):
    """The read side of schedules."""

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        """These schedules, or all, by name; from the one behind `after` on."""
        ...

    def firings(self, name: str, *, limit: int = 100) -> list[Firing]:
        """What became of the runs of a schedule, newest first."""
        ...


def may_fire(schedule: Schedule | None, move: Move, now: int) -> bool:
    """The guard of a move."""
    if schedule is None or schedule.revision != move.revision:
        return False
    return move.by_hand or (schedule.due_at is not None and schedule.due_at <= now)


class Landing(msgspec.Struct, frozen=True, kw_only=True):
    """What a move leaves behind: the schedule, None if it is gone, and lines of its history."""

    schedule: Schedule | None
    firings: tuple[Firing, ...] = ()

    @property
    def may_overflow(self) -> bool:
        """Whether the history may have more lines than are kept; each line speaks of at least one run."""
        one = self.schedule
        return one is not None and one.fired + one.skipped + one.failed > FIRINGS_KEPT and bool(self.firings)


def landed(schedule: Schedule, move: Move, receipts: Sequence[Taken], now: int) -> Landing:
    """What a move comes to, once its jobs have been answered. The Redis engine says the same in
    `fire.lua`."""
    runs = [_firing(run, receipt, now) for run, receipt in zip(move.runs, receipts, strict=True)]
    moved = replace(schedule, revision=schedule.revision + 1, updated_at=now)
    if move.holds and any(firing.status is FiringStatus.SKIPPED for firing in runs):
        return Landing(schedule=moved if move.by_hand else replace(moved, due_at=now + HELD_FOR_MS))
    firings = (*(replace(skip, recorded_at=now) for skip in move.skips), *runs)
    if move.removes and not any(firing.status is FiringStatus.ERROR for firing in runs):
        return Landing(schedule=None, firings=firings)
    return Landing(schedule=_counted(moved, move, firings), firings=firings)


def _counted(schedule: Schedule, move: Move, firings: Sequence[Firing]) -> Schedule:
    totals = dict.fromkeys(FiringStatus, 0)
    last = schedule.last_at, schedule.last_job_id
    for firing in firings:
        totals[firing.status] += firing.count
        if firing.status is FiringStatus.ENQUEUED:
            last = firing.at, firing.job_id
    fired = schedule.fired + totals[FiringStatus.ENQUEUED]
    is_over = move.max_firings is not None and fired >= move.max_firings
    kept = (schedule.next_at, schedule.due_at) if move.by_hand else (move.next_at, move.due_at)
    next_at, due_at = (None, None) if is_over else kept
    return replace(
        schedule,
        next_at=next_at,
        due_at=due_at,
        last_at=last[0],
        last_job_id=last[1],
        fired=fired,
        skipped=schedule.skipped + totals[FiringStatus.SKIPPED],
        failed=schedule.failed + totals[FiringStatus.ERROR],
    )


def _firing(run: Run, receipt: Taken, now: int) -> Firing:
    if receipt.error is not None:
        return Firing(at=run.at, status=FiringStatus.ERROR, recorded_at=now, reason=str(receipt.error))
    if not receipt.is_new:
        return Firing(
            at=run.at, status=FiringStatus.SKIPPED, recorded_at=now, job_id=receipt.id, reason=run.taken
        )
    return Firing(at=run.at, status=FiringStatus.ENQUEUED, recorded_at=now, job_id=receipt.id)


def schedule_text(definition: Definition) -> str:
    """A definition as engines store it."""
    return msgspec.json.encode(definition).decode()


@lru_cache(maxsize=256)
def definition_from_text(text: str | bytes) -> Definition:
    """The other way round, for a batch of schedules once: they are read to be looked at, and to be moved. Not
    by one decoder: what metadata may hold is a type that contains itself, and fields that only a newer
    program knows are left out."""
    raw = msgspec.json.decode(text, type=dict[str, Any])
    job = NewJob(**_fields(raw.pop("job"), NewJob, _JOB_TYPES))
    return Definition(job=job, **_fields(raw, Definition, _TYPES))


_TYPES: Final[dict[str, Any]] = {"catch_up": CatchUp, "overlap": Overlap}
_JOB_TYPES: Final[dict[str, Any]] = {
    "payload": bytes,
    "policy": RetryPolicy,
    "unique_until": UniqueUntil,
    "tags": tuple[str, ...],
    "depends_on": tuple[Need, ...],
}


def _fields(raw: dict[str, Any], kind: type[msgspec.Struct], types: dict[str, Any]) -> dict[str, Any]:
    return {
        name: msgspec.convert(value, types[name]) if name in types else value
        for name, value in raw.items()
        if name in kind.__struct_fields__
    }


# The columns of both SQL engines, in the order of `schedule.sql` and `firings.sql`.


def row_from_schedule(schedule: Schedule) -> dict[str, object]:
    state = {name: getattr(schedule, name) for name in Schedule.__struct_fields__ if name != "definition"}
    return {**state, "name": schedule.name, "definition": schedule_text(schedule.definition)}


def schedule_from_row(row: Sequence[Any]) -> Schedule | None:
    """None for a definition that cannot be read here, such as one in a zone that this machine does not know:
    it stops nobody else's."""
    try:
        definition = definition_from_text(row[0])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as exc:
        logger.warning("a schedule cannot be read here, and is passed over: %s", exc)
        return None
    state = dict(zip(Schedule.__struct_fields__[1:], row[1:], strict=True))
    return Schedule(definition=definition, **{**state, "is_paused": bool(state["is_paused"])})


def schedules_from_rows(rows: Iterable[Sequence[Any]]) -> list[Schedule]:
    return [schedule for schedule in map(schedule_from_row, rows) if schedule is not None]


def row_from_firing(name: str, firing: Firing) -> dict[str, object]:
    return {**msgspec.structs.asdict(firing), "name": name, "status": firing.status.value}


def firing_from_row(row: Sequence[Any]) -> Firing:
    at, status, recorded_at, job_id, reason, until_at, count = row
    return Firing(
        at=at,
        status=FiringStatus(status),
        recorded_at=recorded_at,
        job_id=job_id,
        reason=reason,
        until_at=until_at,
        count=count,
    )
