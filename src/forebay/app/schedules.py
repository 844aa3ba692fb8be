"""`app.schedules`: jobs by the clock, saved, looked at, changed and removed while everything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from random import random
from typing import Any, Final, TypeVar, Unpack

from msgspec.structs import replace

from forebay.app.client import Client
from forebay.app.firing import fire_due
from forebay.app.handle import JobHandle
from forebay.app.options import CallOptions
from forebay.app.planning import WhenOptions, define, times
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.app.times import as_datetime
from forebay.domain.firing import Move, by_hand, next_runs, planned
from forebay.domain.schedule import Definition, Firing, FiringStatus, Schedule, iso
from forebay.errors import (
    ConfigError,
    ForebayError,
    InvalidJob,
    QueueClosed,
    ScheduleNotFound,
    StoreUnavailable,
)
from forebay.stores.protocol import Reader, Receipt, Store
from forebay.stores.scheduling import Fired

T = TypeVar("T")

# Each time somebody else has changed the schedule in between; that is as often as anybody can be unlucky.
TRIES: Final = 20
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
        **when: Unpack[WhenOptions],
    ) -> Schedule:
        """Make a schedule, or give the one of this name another definition.

            app.schedules.save("nightly", report, ["all"], cron="0 2 * * *", timezone="Europe/Berlin")
            app.schedules.save("tidy", "jobs.tidy", every=300, overlap="skip", options={"priority": 5})

        Refused before anything is stored: a task that this program does not know, arguments that do not fit
        it, a cron line that is wrong or never matches, an unknown zone, times that are over. One that is
        paused stays paused; where the times are as before, the next run is too.
        """
        return self.keep(define(self._registry, name, task, args, kwargs, options or {}, when))

    def keep(self, definition: Definition) -> Schedule:
        """`save` for a definition that is made."""
        return self._changed(
            definition.name, lambda now, known: _redefined(known, definition, now, self._roll())
        )

    def update(self, name: str, **changes: Unpack[WhenOptions]) -> Schedule:
        """Change some of what a schedule was saved with; other times count from now. Raises
        ScheduleNotFound."""
        fields = times(changes)
        if fields.keys() & {"cron", "every_ms", "at"}:
            fields = {"cron": None, "every_ms": None, "at": None, **fields}

        def changed(now: int, known: Schedule | None) -> Schedule:
            definition = replace(_found(name, known).definition, **fields)
            return _redefined(known, definition, now, self._roll())

        return self._changed(name, changed)

    def pause(self, name: str) -> bool:
        """Enqueue nothing from now on; whether there is such a schedule."""
        return self._paused(name, lambda now, known: replace(known, is_paused=True, due_at=None))

    def resume(self, name: str) -> bool:
        """Go on with the next run from now: what fell into the pause is not caught up."""
        return self._paused(name, lambda now, known: planned(_going(known), now, self._roll()))

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
        now, known = self._looked(name)
        return [
            at for at in map(as_datetime, islice(next_runs(_found(name, known).definition, now), runs)) if at
        ]

    def history(self, name: str, limit: int = 100) -> Sequence[Firing]:
        """What became of the last runs, newest first."""
        return self._client.read(lambda reader: reader.firings(name, limit=limit))

    def fire(self, name: str) -> JobHandle[Any]:
        """Enqueue its job now, whatever its times are; what comes next stays as it is.

        The handle is of the job before, with `is_new` false, where runs may not overlap and it has not ended.
        """
        for _ in range(TRIES):
            now, known = self._looked(name)
            fired = self._moved(by_hand(_found(name, known), now))
            if fired.done:
                return self._handle(name, fired.firings)
        raise _too_busy(name)

    def fire_due(self, most: int = 100) -> int:
        """Enqueue the runs of up to `most` schedules that are due, as workers do every second; how many jobs
        that made."""
        return self._client.write(lambda store: fire_due(store, self._roll, most)[0])

    def recompute(self) -> int:
        """Work out all next runs again, after new rules for a time zone were installed; how many changed."""
        return sum(self._recomputed(one) for one in self.list() if not one.is_paused)

    # The same for coroutines

    async def save_async(
        self,
        name: str,
        task: str | Task[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        options: CallOptions | None = None,
        **when: Unpack[WhenOptions],
    ) -> Schedule:
        """`save` for coroutines."""
        definition = define(self._registry, name, task, args, kwargs, options or {}, when)
        return await self.keep_async(definition)

    async def keep_async(self, definition: Definition) -> Schedule:
        """`keep` for coroutines."""
        return await self._client.offloaded(self.keep, definition)

    async def update_async(self, name: str, **changes: Unpack[WhenOptions]) -> Schedule:
        """`update` for coroutines."""
        return await self._client.offloaded(self.update, name, **changes)

    async def pause_async(self, name: str) -> bool:
        """`pause` for coroutines."""
        return await self._client.offloaded(self.pause, name)

    async def resume_async(self, name: str) -> bool:
        """`resume` for coroutines."""
        return await self._client.offloaded(self.resume, name)

    async def remove_async(self, name: str) -> bool:
        """`remove` for coroutines."""
        return await self._client.offloaded(self.remove, name)

    async def get_async(self, name: str) -> Schedule | None:
        """`get` for coroutines."""
        return await self._client.offloaded(self.get, name)

    async def list_async(self, *, enabled_only: bool = False, task: str | None = None) -> Sequence[Schedule]:
        """`list` for coroutines."""
        return await self._client.offloaded(self.list, enabled_only=enabled_only, task=task)

    async def preview_async(self, name: str, runs: int = 10) -> Sequence[datetime]:
        """`preview` for coroutines."""
        return await self._client.offloaded(self.preview, name, runs)

    async def history_async(self, name: str, limit: int = 100) -> Sequence[Firing]:
        """`history` for coroutines."""
        return await self._client.offloaded(self.history, name, limit)

    async def fire_async(self, name: str) -> JobHandle[Any]:
        """`fire` for coroutines."""
        return await self._client.offloaded(self.fire, name)

    async def fire_due_async(self, most: int = 100) -> int:
        """`fire_due` for coroutines."""
        return await self._client.offloaded(self.fire_due, most)

    async def recompute_async(self) -> int:
        """`recompute` for coroutines."""
        return await self._client.offloaded(self.recompute)

    # How

    def _recomputed(self, schedule: Schedule) -> bool:
        def again(now: int, known: Schedule | None) -> Schedule | None:
            # A run whose time has come was worked out by the rules of that time, though it may still wait:
            # for the run before, or by chance.
            if known is None or known.next_at is None or known.next_at <= now:
                return known
            return planned(known, now, self._roll())

        after = self._tried(schedule.name, again)
        return after is not None and after.next_at != schedule.next_at

    def _handle(self, name: str, firings: Sequence[Firing]) -> JobHandle[Any]:
        [firing] = firings
        if firing.job_id is None:
            raise QueueClosed(f"schedule {name} was not fired: {firing.reason}")
        is_new = firing.status is FiringStatus.ENQUEUED
        return JobHandle(self._client, Receipt(id=firing.job_id, is_new=is_new))

    def _moved(self, move: Move) -> Fired:
        [fired] = self._client.write(lambda store: store.fire([move]))
        return fired

    def _looked(self, name: str) -> tuple[int, Schedule | None]:
        def look(reader: Reader) -> tuple[int, Schedule | None]:
            return reader.now(), next(iter(reader.schedules([name])), None)

        return self._client.read(look)

    def _paused(self, name: str, change: Callable[[int, Schedule], Schedule]) -> bool:
        def changed(now: int, known: Schedule | None) -> Schedule | None:
            return None if known is None else change(now, known)

        return self._tried(name, changed) is not None

    def _changed(self, name: str, change: Callable[[int, Schedule | None], Schedule]) -> Schedule:
        changed = self._tried(name, change)
        return _found(name, changed)

    def _tried(self, name: str, change: Callable[[int, Schedule | None], Schedule | None]) -> Schedule | None:
        """Work a change out from what is stored, again while somebody else is faster. None if there is
        none."""
        for _ in range(TRIES):
            now, known = self._looked(name)
            wanted = change(now, known)
            if wanted is None or wanted == known:
                return wanted
            if self._saved(wanted):
                return self.get(name) or wanted  # as the store has it, with its time and its revision
        raise _too_busy(name)

    def _saved(self, schedule: Schedule) -> bool:
        return self._client.write(lambda store: store.save_schedule(schedule, actor=self._actor))


def all_schedules(reader: Reader) -> list[Schedule]:
    """Every schedule of a store, by name."""
    found: list[Schedule] = []
    while page := reader.schedules(limit=PAGE, after=found[-1].name if found else None):
        found += page
    return found


def declare(
    store: Store,
    reader: Reader,
    definitions: Iterable[Definition],
    roll: Callable[[], float],
    *,
    actor: str = "",
) -> int:
    """Save what the code of a program declares, where it is not what is stored; how many were saved. The code
    decides what a schedule does; whether it is paused stays as it is."""
    wanted = {one.name: one for one in definitions}
    saved = 0
    for _ in range(TRIES):
        known = (
            {one.name: one for one in reader.schedules(sorted(wanted), limit=len(wanted))} if wanted else {}
        )
        wanted = {name: one for name, one in wanted.items() if not _is_kept(known.get(name), one)}
        for name, definition in wanted.items():
            # Somebody else may be faster; then the next look finds what they have saved.
            changed = _redefined(known.get(name), definition, reader.now(), roll())
            saved += store.save_schedule(changed, actor=actor)
        if not wanted:
            return saved
    raise _too_busy(next(iter(wanted)))


def _is_kept(known: Schedule | None, definition: Definition) -> bool:
    return known is not None and known.definition == definition


def _redefined(known: Schedule | None, definition: Definition, now: int, roll: float) -> Schedule:
    """What is stored with another definition; its next run only where the times are others."""
    fresh = known or Schedule(definition=definition)
    wanted = replace(fresh, definition=definition)
    if known is not None and definition.has_timing_of(known.definition) and known.next_at is not None:
        return wanted
    wanted = planned(wanted, now, roll)
    if wanted.next_at is None and not definition.is_declared:
        raise _never(definition)
    return wanted


def _never(definition: Definition) -> ForebayError:
    if definition.at is not None:
        return InvalidJob(f"at lies in the past: {iso(definition.at)}", field="at")
    return ConfigError(f"schedule {definition.name} would never run again: {definition.when()}")


def _going(schedule: Schedule) -> Schedule:
    return replace(schedule, is_paused=False)


def _found(name: str, schedule: Schedule | None) -> Schedule:
    if schedule is None:
        raise ScheduleNotFound(f"there is no schedule {name!r:.60}; see the list with `forebay schedules`")
    return schedule


def _too_busy(name: str) -> ForebayError:
    return StoreUnavailable(f"schedule {name} is changed by others again and again; try again later")
