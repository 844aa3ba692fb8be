"""`app.schedules`: schedules that are saved, read, changed and removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from random import random
from typing import Any, Final, TypeVar, Unpack

from msgspec.structs import replace

from forebay.app.client import Client
from forebay.app.due_schedules import fire_due
from forebay.app.job_handle import JobHandle
from forebay.app.job_options import CallOptions
from forebay.app.registry import Registry
from forebay.app.schedule_options import ScheduleTimingOptions, make_definition, timing_fields
from forebay.app.task import Task
from forebay.domain.durations_and_instants import as_datetime
from forebay.domain.schedule import Schedule, ScheduleDefinition, ScheduleRun, ScheduleRunStatus, iso
from forebay.domain.schedule_runs import (
    ScheduleAdvance,
    manual_run,
    next_runs,
    plan_runs,
)
from forebay.errors import (
    ConfigError,
    ForebayError,
    InvalidJob,
    QueueClosed,
    ScheduleNotFound,
    StoreUnavailable,
)
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import FireResult
from forebay.stores.contract.store import Store

T = TypeVar("T")

# Each try has lost against another client's change of the schedule; more losses in a row are no accident.
MAX_TRIES: Final = 20
PAGE: Final = 500


class Schedules:
    """The schedules of a store. Every call goes to the store, so all programs see the same schedules."""

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
        """Create a schedule, or replace the definition of the one of this name.

            app.schedules.save("nightly", report, ["all"], cron="0 2 * * *", timezone="Europe/Berlin")
            app.schedules.save("tidy", "jobs.tidy", every=300, overlap="skip", options={"priority": 5})

        The store is not changed if the task is unknown here or its arguments do not fit. The same holds for a
        cron line that is wrong or never matches, an unknown time zone, and times in the past. A paused
        schedule stays paused. If the times are unchanged, the next run is unchanged too.
        """
        return self.save_definition(
            make_definition(self._registry, name, task, args, kwargs, options or {}, timing)
        )

    def save_definition(self, definition: ScheduleDefinition) -> Schedule:
        """Save a schedule by its definition, as `save` does."""
        return self._update_existing(
            definition.name, lambda now, known: _apply_definition(known, definition, now, self._roll())
        )

    def update(self, name: str, **changes: Unpack[ScheduleTimingOptions]) -> Schedule:
        """Change parts of a schedule's definition; changed times count from now. Raises ScheduleNotFound."""
        fields = timing_fields(changes)
        if fields.keys() & {"cron", "every_ms", "at"}:
            fields = {"cron": None, "every_ms": None, "at": None, **fields}

        def change(now: int, known: Schedule | None) -> Schedule:
            definition = replace(_require(name, known).definition, **fields)
            return _apply_definition(known, definition, now, self._roll())

        return self._update_existing(name, change)

    def pause(self, name: str) -> bool:
        """Pause a schedule: enqueue nothing from now on; return whether it exists."""
        return self._set_paused(name, lambda now, known: replace(known, is_paused=True, check_at=None))

    def resume(self, name: str) -> bool:
        """Resume a schedule with the next run from now: runs missed during the pause are not caught up."""
        return self._set_paused(name, lambda now, known: plan_runs(_unpause(known), now, self._roll()))

    def remove(self, name: str) -> bool:
        """Delete a schedule and its history; return whether it existed. Its jobs stay."""
        return self._client.write(lambda store: store.drop_schedule(name, actor=self._actor))

    def get(self, name: str) -> Schedule | None:
        """Return a schedule with its next run; None if there is none of this name."""
        return next(iter(self._client.read(lambda reader: reader.schedules([name]))), None)

    def list(self, *, enabled_only: bool = False, task: str | None = None) -> list[Schedule]:
        """Return all schedules by name; with options only those that are not paused, or those of one task."""
        schedules = self._client.read(all_schedules)
        return [
            schedule
            for schedule in schedules
            if not (enabled_only and schedule.is_paused) and task in (None, schedule.definition.job.task)
        ]

    def preview(self, name: str, runs: int = 10) -> Sequence[datetime]:
        """Return the next planned times as aware datetimes in UTC, also of a paused schedule."""
        now, known = self._load(name)
        return [
            at
            for at in map(as_datetime, islice(next_runs(_require(name, known).definition, now), runs))
            if at
        ]

    def history(self, name: str, limit: int = 100) -> Sequence[ScheduleRun]:
        """Return the last runs, newest first."""
        return self._client.read(lambda reader: reader.schedule_runs(name, limit=limit))

    def fire(self, name: str) -> JobHandle[Any]:
        """Enqueue the job of a schedule now, independent of its times; its next run stays unchanged.

        If runs may not overlap and the previous job is not final, the handle is that job's and `is_new` is
        false.
        """
        for _ in range(MAX_TRIES):
            now, known = self._load(name)
            result = self._fire_one(manual_run(_require(name, known), now))
            if result.applied:
                return self._build_handle(name, result.runs)
        raise _contention_error(name)

    def fire_due(self, limit: int = 100) -> int:
        """Enqueue the runs of up to `limit` due schedules, as workers do every second; return the number of
        new jobs."""
        return self._client.write(lambda store: fire_due(store, self._roll, limit)[0])

    def recompute(self) -> int:
        """Compute all next runs again, after new time zone rules were installed; return how many changed."""
        return sum(self._recompute_one(schedule) for schedule in self.list() if not schedule.is_paused)

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
        """`save_definition` for coroutines."""
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

    # Internals

    def _recompute_one(self, schedule: Schedule) -> bool:
        def replan(now: int, known: Schedule | None) -> Schedule | None:
            # A run that is due was computed by the rules of its time. It may still wait: for the run before
            # it, or for its jitter.
            if known is None or known.next_run_at is None or known.next_run_at <= now:
                return known
            return plan_runs(known, now, self._roll())

        after = self._update_with_retry(schedule.name, replan)
        return after is not None and after.next_run_at != schedule.next_run_at

    def _build_handle(self, name: str, runs: Sequence[ScheduleRun]) -> JobHandle[Any]:
        [run] = runs
        if run.job_id is None:
            raise QueueClosed(f"schedule {name} was not fired: {run.reason}")
        is_new = run.status is ScheduleRunStatus.ENQUEUED
        return JobHandle(self._client, InsertResult(id=run.job_id, is_new=is_new))

    def _fire_one(self, advance: ScheduleAdvance) -> FireResult:
        [result] = self._client.write(lambda store: store.fire_schedules([advance]))
        return result

    def _load(self, name: str) -> tuple[int, Schedule | None]:
        def load(reader: Reader) -> tuple[int, Schedule | None]:
            return reader.now(), next(iter(reader.schedules([name])), None)

        return self._client.read(load)

    def _set_paused(self, name: str, change: Callable[[int, Schedule], Schedule]) -> bool:
        def change_known(now: int, known: Schedule | None) -> Schedule | None:
            return None if known is None else change(now, known)

        return self._update_with_retry(name, change_known) is not None

    def _update_existing(self, name: str, change: Callable[[int, Schedule | None], Schedule]) -> Schedule:
        schedule = self._update_with_retry(name, change)
        return _require(name, schedule)

    def _update_with_retry(
        self, name: str, change: Callable[[int, Schedule | None], Schedule | None]
    ) -> Schedule | None:
        """Apply a change to the stored schedule; retry if another client has changed it in between. None if
        there is none."""
        for _ in range(MAX_TRIES):
            now, known = self._load(name)
            changed = change(now, known)
            if changed is None or changed == known:
                return changed
            if self._save(changed):
                return self.get(name) or changed  # as stored, with the store's time and revision
        raise _contention_error(name)

    def _save(self, schedule: Schedule) -> bool:
        return self._client.write(lambda store: store.save_schedule(schedule, actor=self._actor))


def all_schedules(reader: Reader) -> list[Schedule]:
    """Return all schedules of a store, by name."""
    schedules: list[Schedule] = []
    while page := reader.schedules(limit=PAGE, after=schedules[-1].name if schedules else None):
        schedules += page
    return schedules


def save_declared(
    store: Store,
    reader: Reader,
    definitions: Iterable[ScheduleDefinition],
    roll: Callable[[], float],
    *,
    actor: str = "",
) -> int:
    """Save the declared schedules that differ from the stored ones; return how many were saved.

    The code of a program decides what a schedule does. A paused schedule stays paused.
    """
    unsaved = {definition.name: definition for definition in definitions}
    saved = 0
    for _ in range(MAX_TRIES):
        stored = reader.schedules(sorted(unsaved), limit=len(unsaved)) if unsaved else []
        known = {schedule.name: schedule for schedule in stored}
        unsaved = {
            name: definition
            for name, definition in unsaved.items()
            if not _is_unchanged(known.get(name), definition)
        }
        for name, definition in unsaved.items():
            # Another worker may be faster; then the next iteration reads its schedule.
            changed = _apply_definition(known.get(name), definition, reader.now(), roll())
            saved += store.save_schedule(changed, actor=actor)
        if not unsaved:
            return saved
    raise _contention_error(next(iter(unsaved)))


def _is_unchanged(known: Schedule | None, definition: ScheduleDefinition) -> bool:
    return known is not None and known.definition == definition


def _apply_definition(
    known: Schedule | None, definition: ScheduleDefinition, now: int, roll: float
) -> Schedule:
    """Return the schedule with a new definition. Its next run changes only if the times have changed."""
    schedule = replace(known or Schedule(definition=definition), definition=definition)
    if known is not None and definition.has_timing_of(known.definition) and known.next_run_at is not None:
        return schedule
    schedule = plan_runs(schedule, now, roll)
    if schedule.next_run_at is None and not definition.is_declared:
        raise _never_runs_error(definition)
    return schedule


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
    return StoreUnavailable(f"schedule {name} is changed by other clients again and again; try again later")
