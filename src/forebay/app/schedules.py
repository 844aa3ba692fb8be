"""`app.schedules`: jobs by the clock, saved, looked at, changed and removed while everything runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from random import random
from typing import Any, Final, TypeVar, Unpack

from msgspec.structs import replace

from forebay.app.client import Client
from forebay.app.handle import JobHandle
from forebay.app.options import CallOptions
from forebay.app.registry import Registry
from forebay.app.schedule_options import ScheduleTimingOptions, make_definition, timing_fields
from forebay.app.task import Task
from forebay.domain.durations import as_datetime
from forebay.domain.schedule import Schedule, ScheduleDefinition, ScheduleRun, ScheduleRunStatus, iso
from forebay.domain.schedule_runs import (
    ScheduleAdvance,
    manual_run,
    next_runs,
    plan_advance,
    plan_runs,
    postpone,
)
from forebay.errors import (
    ConfigError,
    ForebayError,
    InvalidJob,
    PayloadError,
    QueueClosed,
    ScheduleNotFound,
    StoreBusy,
    StoreRefused,
    StoreUnavailable,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import InsertResult

T = TypeVar("T")

# Each time somebody else has changed the schedule in between; that is as often as anybody can be unlucky.
MAX_TRIES: Final = 20
PAGE: Final = 500


class Schedules:
    """The schedules of a store. All of it asks the store: what one program saves, every other one sees."""

    def __init__(
        self, client: Client, registry: Registry, roll: Callable[[], float] = random, *, actor: str = ""
    ) -> None:
        self._client = client
        self._registry = registry
        self._roll = roll
        self._actor = actor

    def save(
        self,
        name: str,
        task: str | Task[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        options: CallOptions | None = None,
        **timing: Unpack[ScheduleTimingOptions],
    ) -> Schedule:
        """Make a schedule, or give the one of this name another definition.

            app.schedules.save("nightly", report, ["all"], cron="0 2 * * *", timezone="Europe/Berlin")
            app.schedules.save("tidy", "jobs.tidy", every=300, overlap="skip", options={"priority": 5})

        Refused before anything is stored: a task that this program does not know, arguments that do not fit
        it, a cron line that is wrong or never matches, an unknown zone, times that are over. One that is
        paused stays paused; where the times are as before, the next run is too.
        """
        return self.save_definition(
            make_definition(self._registry, name, task, args, kwargs, options or {}, timing)
        )

    def save_definition(self, definition: ScheduleDefinition) -> Schedule:
        """`save` for a definition that is made."""
        return self._update_existing(
            definition.name, lambda now, known: _apply_definition(known, definition, now, self._roll())
        )

    def update(self, name: str, **changes: Unpack[ScheduleTimingOptions]) -> Schedule:
        """Change some of what a schedule was saved with; other times count from now. Raises
        ScheduleNotFound."""
        fields = timing_fields(changes)
        if fields.keys() & {"cron", "every_ms", "at"}:
            fields = {"cron": None, "every_ms": None, "at": None, **fields}

        def changed(now: int, known: Schedule | None) -> Schedule:
            definition = replace(_require(name, known).definition, **fields)
            return _apply_definition(known, definition, now, self._roll())

        return self._update_existing(name, changed)

    def pause(self, name: str) -> bool:
        """Enqueue nothing from now on; whether there is such a schedule."""
        return self._set_paused(name, lambda now, known: replace(known, is_paused=True, check_at=None))

    def resume(self, name: str) -> bool:
        """Go on with the next run from now: what fell into the pause is not caught up."""
        return self._set_paused(name, lambda now, known: plan_runs(_unpause(known), now, self._roll()))

    def remove(self, name: str) -> bool:
        """Forget a schedule with its history; whether there was one. Jobs that it made stay."""
        return self._client.write(lambda store: store.drop_schedule(name, actor=self._actor))

    def get(self, name: str) -> Schedule | None:
        """A schedule with its next run; None if there is none of this name."""
        return next(iter(self._client.read(lambda reader: reader.schedules([name]))), None)

    def list(self, *, enabled_only: bool = False, task: str | None = None) -> list[Schedule]:
        """All schedules by name; those that are not paused, or of one task."""
        found = self._client.read(all_schedules)
        return [
            one
            for one in found
            if not (enabled_only and one.is_paused) and task in (None, one.definition.job.task)
        ]

    def preview(self, name: str, runs: int = 10) -> Sequence[datetime]:
        """When it would run next, as aware datetimes in UTC, whether it is paused or not."""
        now, known = self._load(name)
        return [
            at
            for at in map(as_datetime, islice(next_runs(_require(name, known).definition, now), runs))
            if at
        ]

    def history(self, name: str, limit: int = 100) -> Sequence[ScheduleRun]:
        """What became of the last runs, newest first."""
        return self._client.read(lambda reader: reader.schedule_runs(name, limit=limit))

    def fire(self, name: str) -> JobHandle[Any]:
        """Enqueue its job now, whatever its times are; what comes next stays as it is.

        The handle is of the job before, with `is_new` false, where runs may not overlap and it has not ended.
        """
        for _ in range(MAX_TRIES):
            now, known = self._load(name)
            fired = self._fire_one(manual_run(_require(name, known), now))
            if fired.applied:
                return self._build_handle(name, fired.runs)
        raise _contention_error(name)

    def fire_due(self, limit: int = 100) -> int:
        """Enqueue the runs of up to `limit` schedules that are due, as workers do every second; how many jobs
        that made."""
        return self._client.write(lambda store: fire_due(store, self._roll, limit)[0])

    def recompute(self) -> int:
        """Work out all next runs again, after new rules for a time zone were installed; how many changed."""
        return sum(self._recompute_one(one) for one in self.list() if not one.is_paused)

    # The same for coroutines

    async def save_async(
        self,
        name: str,
        task: str | Task[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        options: CallOptions | None = None,
        **timing: Unpack[ScheduleTimingOptions],
    ) -> Schedule:
        """`save` for coroutines."""
        definition = make_definition(self._registry, name, task, args, kwargs, options or {}, timing)
        return await self.save_definition_async(definition)

    async def save_definition_async(self, definition: ScheduleDefinition) -> Schedule:
        """`keep` for coroutines."""
        return await self._client.run_in_thread(self.save_definition, definition)

    async def update_async(self, name: str, **changes: Unpack[ScheduleTimingOptions]) -> Schedule:
        """`update` for coroutines."""
        return await self._client.run_in_thread(self.update, name, **changes)

    async def pause_async(self, name: str) -> bool:
        """`pause` for coroutines."""
        return await self._client.run_in_thread(self.pause, name)

    async def resume_async(self, name: str) -> bool:
        """`resume` for coroutines."""
        return await self._client.run_in_thread(self.resume, name)

    async def remove_async(self, name: str) -> bool:
        """`remove` for coroutines."""
        return await self._client.run_in_thread(self.remove, name)

    async def get_async(self, name: str) -> Schedule | None:
        """`get` for coroutines."""
        return await self._client.run_in_thread(self.get, name)

    async def list_async(self, *, enabled_only: bool = False, task: str | None = None) -> Sequence[Schedule]:
        """`list` for coroutines."""
        return await self._client.run_in_thread(self.list, enabled_only=enabled_only, task=task)

    async def preview_async(self, name: str, runs: int = 10) -> Sequence[datetime]:
        """`preview` for coroutines."""
        return await self._client.run_in_thread(self.preview, name, runs)

    async def history_async(self, name: str, limit: int = 100) -> Sequence[ScheduleRun]:
        """`history` for coroutines."""
        return await self._client.run_in_thread(self.history, name, limit)

    async def fire_async(self, name: str) -> JobHandle[Any]:
        """`fire` for coroutines."""
        return await self._client.run_in_thread(self.fire, name)

    async def fire_due_async(self, limit: int = 100) -> int:
        """`fire_due` for coroutines."""
        return await self._client.run_in_thread(self.fire_due, limit)

    async def recompute_async(self) -> int:
        """`recompute` for coroutines."""
        return await self._client.run_in_thread(self.recompute)

    # How

    def _recompute_one(self, schedule: Schedule) -> bool:
        def again(now: int, known: Schedule | None) -> Schedule | None:
            # A run whose time has come was worked out by the rules of that time, though it may still wait:
            # for the run before, or by chance.
            if known is None or known.next_run_at is None or known.next_run_at <= now:
                return known
            return plan_runs(known, now, self._roll())

        after = self._update_with_retry(schedule.name, again)
        return after is not None and after.next_run_at != schedule.next_run_at

    def _build_handle(self, name: str, firings: Sequence[ScheduleRun]) -> JobHandle[Any]:
        [firing] = firings
        if firing.job_id is None:
            raise QueueClosed(f"schedule {name} was not fired: {firing.reason}")
        is_new = firing.status is ScheduleRunStatus.ENQUEUED
        return JobHandle(self._client, InsertResult(id=firing.job_id, is_new=is_new))

    def _fire_one(self, move: ScheduleAdvance) -> FireResult:
        [fired] = self._client.write(lambda store: store.fire_schedules([move]))
        return fired

    def _load(self, name: str) -> tuple[int, Schedule | None]:
        def look(reader: Reader) -> tuple[int, Schedule | None]:
            return reader.now(), next(iter(reader.schedules([name])), None)

        return self._client.read(look)

    def _set_paused(self, name: str, change: Callable[[int, Schedule], Schedule]) -> bool:
        def changed(now: int, known: Schedule | None) -> Schedule | None:
            return None if known is None else change(now, known)

        return self._update_with_retry(name, changed) is not None

    def _update_existing(self, name: str, change: Callable[[int, Schedule | None], Schedule]) -> Schedule:
        changed = self._update_with_retry(name, change)
        return _require(name, changed)

    def _update_with_retry(
        self, name: str, change: Callable[[int, Schedule | None], Schedule | None]
    ) -> Schedule | None:
        """Work a change out from what is stored, again while somebody else is faster. None if there is
        none."""
        for _ in range(MAX_TRIES):
            now, known = self._load(name)
            wanted = change(now, known)
            if wanted is None or wanted == known:
                return wanted
            if self._save(wanted):
                return self.get(name) or wanted  # as the store has it, with its time and its revision
        raise _contention_error(name)

    def _save(self, schedule: Schedule) -> bool:
        return self._client.write(lambda store: store.save_schedule(schedule, actor=self._actor))


def all_schedules(reader: Reader) -> list[Schedule]:
    """Every schedule of a store, by name."""
    found: list[Schedule] = []
    while page := reader.schedules(limit=PAGE, after=found[-1].name if found else None):
        found += page
    return found


def save_declared(
    store: Store,
    reader: Reader,
    definitions: Iterable[ScheduleDefinition],
    roll: Callable[[], float],
    *,
    actor: str = "",
) -> int:
    """Save what the code of a program declares, where it is not what is stored; how many were saved. The code
    decides what a schedule does; whether it is paused stays as it is."""
    wanted = {one.name: one for one in definitions}
    saved = 0
    for _ in range(MAX_TRIES):
        known = (
            {one.name: one for one in reader.schedules(sorted(wanted), limit=len(wanted))} if wanted else {}
        )
        wanted = {name: one for name, one in wanted.items() if not _is_unchanged(known.get(name), one)}
        for name, definition in wanted.items():
            # Somebody else may be faster; then the next look finds what they have saved.
            changed = _apply_definition(known.get(name), definition, reader.now(), roll())
            saved += store.save_schedule(changed, actor=actor)
        if not wanted:
            return saved
    raise _contention_error(next(iter(wanted)))


def _is_unchanged(known: Schedule | None, definition: ScheduleDefinition) -> bool:
    return known is not None and known.definition == definition


def _apply_definition(
    known: Schedule | None, definition: ScheduleDefinition, now: int, roll: float
) -> Schedule:
    """What is stored with another definition; its next run only where the times are others."""
    fresh = known or Schedule(definition=definition)
    wanted = replace(fresh, definition=definition)
    if known is not None and definition.has_timing_of(known.definition) and known.next_run_at is not None:
        return wanted
    wanted = plan_runs(wanted, now, roll)
    if wanted.next_run_at is None and not definition.is_declared:
        raise _never_runs_error(definition)
    return wanted


def _never_runs_error(definition: ScheduleDefinition) -> ForebayError:
    if definition.at is not None:
        return InvalidJob(f"at lies in the past: {iso(definition.at)}", field="at")
    return ConfigError(f"schedule {definition.name} would never run again: {definition.describe_times()}")


def _unpause(schedule: Schedule) -> Schedule:
    return replace(schedule, is_paused=False)


def _require(name: str, schedule: Schedule | None) -> Schedule:
    if schedule is None:
        raise ScheduleNotFound(f"there is no schedule {name!r:.60}; see the list with `forebay schedules`")
    return schedule


def _contention_error(name: str) -> ForebayError:
    return StoreUnavailable(f"schedule {name} is changed by others again and again; try again later")


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
