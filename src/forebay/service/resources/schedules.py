"""What operators do to schedules, workers and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from forebay.app.registry import Registry
from forebay.app.schedules import Schedules, all_schedules
from forebay.domain.job import WorkerId
from forebay.domain.schedule import ScheduleDefinition
from forebay.domain.schedule_runs import next_runs
from forebay.domain.worker import CommandKind
from forebay.errors import ScheduleNotFound
from forebay.operations.limit_status import limit_statuses
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.converter import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import moment_of
from forebay.service.schema.jobs import EnqueueResponse
from forebay.service.schema.schedules import (
    ChangeResponse,
    CommandList,
    CommandRequest,
    LimitList,
    LimitRequest,
    LimitView,
    PreviewResponse,
    ScheduleList,
    ScheduleRequest,
    ScheduleRunList,
    ScheduleView,
    WorkerList,
    command_view,
    limit_usage_view,
    limit_view,
    queue_name,
    schedule_run_view,
    schedule_view,
    worker_view,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

T = TypeVar("T")


class Steering:
    """Schedules, workers and limits. A schedule may name any task: the service knows none."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll

    # Schedules

    async def schedules(self) -> ScheduleList:
        """All schedules by name."""
        found = await self._pool.read(all_schedules)
        return ScheduleList(schedules=[schedule_view(one) for one in found])

    async def schedule(self, name: str) -> ScheduleView:
        """One schedule; raises ScheduleNotFound."""
        found = await self._pool.read(lambda reader: reader.schedules([name]))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {name!r:.60}")
        return schedule_view(found[0])

    async def save_schedule(self, name: str, request: ScheduleRequest, actor: str = "") -> ScheduleView:
        """Make a schedule, or give the one of this name another definition."""
        definition = await self._build_definition(name, request)
        return schedule_view(await self._with_schedules(lambda kept: kept.save_definition(definition), actor))

    async def _build_definition(self, name: str, request: ScheduleRequest) -> ScheduleDefinition:
        known = await self._find_definition(name)
        return await self._pool.converter.run(BODY_SIZE.get(), request.definition, name, known)

    async def preview_schedule(self, name: str, request: ScheduleRequest, runs: int) -> PreviewResponse:
        """When a schedule of this kind would run next, with nothing saved."""
        definition = await self._build_definition(name, request)
        now = await self._pool.read(lambda reader: reader.now())
        found = await asyncio.to_thread(lambda: list(islice(next_runs(definition, now), runs)))
        return PreviewResponse(when=definition.describe_times(), runs=[moment_of(at) for at in found])

    async def pause_schedule(self, name: str, actor: str = "") -> ScheduleView:
        """Enqueue nothing from now on."""
        await self._with_schedules(lambda kept: kept.pause(name), actor)
        return await self.schedule(name)

    async def resume_schedule(self, name: str, actor: str = "") -> ScheduleView:
        """Go on with the next run from now."""
        await self._with_schedules(lambda kept: kept.resume(name), actor)
        return await self.schedule(name)

    async def fire_schedule(self, name: str, actor: str = "") -> EnqueueResponse:
        """Enqueue its job now, whatever its times are."""
        handle = await self._with_schedules(lambda kept: kept.fire(name), actor)
        [job] = await self._pool.jobs([handle.id], with_payload=False)
        self._claim_waiters.wake()
        return EnqueueResponse(
            id=handle.id,
            queue="" if job is None else job.queue,
            state=None if job is None else job.state,
            is_duplicate=not handle.is_new,
        )

    async def remove_schedule(self, name: str, actor: str = "") -> ChangeResponse:
        """Forget a schedule with its history; raises ScheduleNotFound."""
        await self.schedule(name)
        return ChangeResponse(applied=await self._with_schedules(lambda kept: kept.remove(name), actor))

    async def schedule_runs(self, name: str, limit: int) -> ScheduleRunList:
        """What became of the last runs; raises ScheduleNotFound."""
        await self.schedule(name)
        found = await self._pool.read(lambda reader: reader.schedule_runs(name, limit=limit))
        return ScheduleRunList(runs=[schedule_run_view(one) for one in found])

    async def _find_definition(self, name: str) -> ScheduleDefinition | None:
        found = await self._pool.read(lambda reader: reader.schedules([name]))
        return found[0].definition if found else None

    async def _with_schedules(self, call: Callable[[Schedules], T], actor: str) -> T:
        return await self._pool.use(
            lambda client: call(Schedules(client, Registry(), self._roll, actor=actor))
        )

    # Workers

    async def workers(self, *, active_only: bool = True) -> WorkerList:
        """Workers by start; those that have died too, if asked."""

        def look(reader: Reader) -> WorkerList:
            now = reader.now()
            shapes = [worker_view(one, now) for one in reader.workers()]
            return WorkerList(
                workers=[one for one in shapes if not active_only or one.heartbeat_status != "dead"]
            )

        return await self._pool.read(look)

    async def command(self, request: CommandRequest, actor: str = "") -> CommandList:
        """Ask workers to pause, resume, stop or say what they do; raises WorkerNotFound."""
        named = None if request.workers is None else [WorkerId(one) for one in dict.fromkeys(request.workers)]

        def send(store: Store) -> CommandList:
            sent = store.send_command(
                CommandKind(request.kind), named, queue=queue_name(request.queue), actor=actor
            )
            return CommandList(commands=[command_view(one) for one in sent])

        return await self._pool.write(send)

    async def commands(self, ids: list[str]) -> CommandList:
        """What came of commands; those that nobody knows any more are left out."""
        found = await self._pool.read(lambda reader: reader.commands(ids))
        return CommandList(commands=[command_view(one) for one in found if one is not None])

    # Limits

    async def limits(self) -> LimitList:
        """All limits by scope, and how they stand."""
        found = await self._pool.read(limit_statuses)
        return LimitList(limits=[limit_usage_view(one) for one in found])

    async def set_limit(self, request: LimitRequest, actor: str = "") -> LimitView:
        """Set the limit of a scope, in the place of another one."""
        limit = request.limit()
        await self._pool.write(lambda store: store.save_limit(limit, actor=actor))
        self._claim_waiters.wake()
        return limit_view(limit)

    async def remove_limit(self, scope: str, actor: str = "") -> ChangeResponse:
        """Remove the limit of a scope; whether there was one."""
        done = await self._pool.write(lambda store: store.drop_limit(scope, actor=actor))
        self._claim_waiters.wake()
        return ChangeResponse(applied=done)
