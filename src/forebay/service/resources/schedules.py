"""Schedules: definitions, pause, manual runs, preview and history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from forebay.app.registry import Registry
from forebay.app.schedules import Schedules, all_schedules
from forebay.domain.schedule import ScheduleDefinition
from forebay.domain.schedule_runs import next_runs
from forebay.errors import ScheduleNotFound
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.codec_threads import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import ChangeResponse, moment_of
from forebay.service.schema.producer_jobs import EnqueueResponse
from forebay.service.schema.schedules import (
    PreviewResponse,
    ScheduleList,
    ScheduleRequest,
    ScheduleRunList,
    ScheduleView,
    schedule_run_view,
    schedule_view,
)

T = TypeVar("T")


class ScheduleResource:
    """Schedules of the store. A schedule may name any task, because the service knows none."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll

    async def schedules(self) -> ScheduleList:
        """Return all schedules by name."""
        found = await self._pool.read(all_schedules)
        return ScheduleList(schedules=[schedule_view(schedule) for schedule in found])

    async def schedule(self, name: str) -> ScheduleView:
        """Return one schedule; raises ScheduleNotFound."""
        found = await self._pool.read(lambda reader: reader.schedules([name]))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {name!r:.60}")
        return schedule_view(found[0])

    async def save_schedule(self, name: str, request: ScheduleRequest, actor: str = "") -> ScheduleView:
        """Create a schedule, or replace the definition of the one of this name."""
        definition = await self._build_definition(name, request)
        saved = await self._with_schedules(lambda schedules: schedules.save_definition(definition), actor)
        return schedule_view(saved)

    async def preview_schedule(self, name: str, request: ScheduleRequest, runs: int) -> PreviewResponse:
        """Return the next runs of such a schedule; nothing is saved."""
        definition = await self._build_definition(name, request)
        now = await self._pool.read(lambda reader: reader.now())
        found = await asyncio.to_thread(lambda: list(islice(next_runs(definition, now), runs)))
        return PreviewResponse(when=definition.describe_times(), runs=[moment_of(at) for at in found])

    async def pause_schedule(self, name: str, actor: str = "") -> ScheduleView:
        """Enqueue no further runs."""
        await self._with_schedules(lambda schedules: schedules.pause(name), actor)
        return await self.schedule(name)

    async def resume_schedule(self, name: str, actor: str = "") -> ScheduleView:
        """Resume with the next run from now."""
        await self._with_schedules(lambda schedules: schedules.resume(name), actor)
        return await self.schedule(name)

    async def fire_schedule(self, name: str, actor: str = "") -> EnqueueResponse:
        """Enqueue the job of a schedule now, whatever its times are."""
        handle = await self._with_schedules(lambda schedules: schedules.fire(name), actor)
        [job] = await self._pool.jobs([handle.id], with_payload=False)
        self._claim_waiters.wake()
        return EnqueueResponse(
            id=handle.id,
            queue="" if job is None else job.queue,
            state=None if job is None else job.state,
            is_duplicate=not handle.is_new,
        )

    async def remove_schedule(self, name: str, actor: str = "") -> ChangeResponse:
        """Remove a schedule with its history; raises ScheduleNotFound."""
        await self.schedule(name)
        applied = await self._with_schedules(lambda schedules: schedules.remove(name), actor)
        return ChangeResponse(applied=applied)

    async def schedule_runs(self, name: str, limit: int) -> ScheduleRunList:
        """Return the last runs with their outcome; raises ScheduleNotFound."""
        await self.schedule(name)
        found = await self._pool.read(lambda reader: reader.schedule_runs(name, limit=limit))
        return ScheduleRunList(runs=[schedule_run_view(run) for run in found])

    async def _build_definition(self, name: str, request: ScheduleRequest) -> ScheduleDefinition:
        known = await self._find_definition(name)
        return await self._pool.converter.run(BODY_SIZE.get(), request.definition, name, known)

    async def _find_definition(self, name: str) -> ScheduleDefinition | None:
        found = await self._pool.read(lambda reader: reader.schedules([name]))
        return found[0].definition if found else None

    async def _with_schedules(self, call: Callable[[Schedules], T], actor: str) -> T:
        return await self._pool.use(
            lambda client: call(Schedules(client, Registry(), self._roll, actor=actor))
        )
