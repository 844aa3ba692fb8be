"""What operators do to schedules, workers and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from forebay.app.registry import Registry
from forebay.app.schedules import Schedules, all_schedules
from forebay.app.throttling import throttles
from forebay.domain.firing import next_runs
from forebay.domain.job import WorkerId
from forebay.domain.schedule import Definition
from forebay.domain.worker import CommandKind
from forebay.errors import ScheduleNotFound
from forebay.service.operations.converter import BODY_SIZE
from forebay.service.operations.desk import Desk
from forebay.service.operations.waiting import Waiting
from forebay.service.schema.producing import Accepted
from forebay.service.schema.shared import moment_of
from forebay.service.schema.steering import (
    Answered,
    CommandList,
    CommandRequest,
    FiringList,
    LimitList,
    LimitRequest,
    LimitShape,
    PreviewAnswer,
    ScheduleList,
    ScheduleRequest,
    ScheduleShape,
    WorkerList,
    command_shape,
    firing_shape,
    limit_shape,
    queue_name,
    schedule_shape,
    use_shape,
    worker_shape,
)
from forebay.stores.protocol import Reader, Store

T = TypeVar("T")


class Steering:
    """Schedules, workers and limits. A schedule may name any task: the service knows none."""

    def __init__(self, desk: Desk, waiting: Waiting, roll: Callable[[], float]) -> None:
        self._desk = desk
        self._waiting = waiting
        self._roll = roll

    # Schedules

    async def schedules(self) -> ScheduleList:
        """All schedules by name."""
        found = await self._desk.read(all_schedules)
        return ScheduleList(schedules=[schedule_shape(one) for one in found])

    async def schedule(self, name: str) -> ScheduleShape:
        """One schedule; raises ScheduleNotFound."""
        found = await self._desk.read(lambda reader: reader.schedules([name]))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {name!r:.60}")
        return schedule_shape(found[0])

    async def save_schedule(self, name: str, request: ScheduleRequest, actor: str = "") -> ScheduleShape:
        """Make a schedule, or give the one of this name another definition."""
        definition = await self._definition(name, request)
        return schedule_shape(await self._with_schedules(lambda kept: kept.keep(definition), actor))

    async def _definition(self, name: str, request: ScheduleRequest) -> Definition:
        known = await self._known(name)
        return await self._desk.converter.run(BODY_SIZE.get(), request.definition, name, known)

    async def preview_schedule(self, name: str, request: ScheduleRequest, runs: int) -> PreviewAnswer:
        """When a schedule of this kind would run next, with nothing saved."""
        definition = await self._definition(name, request)
        now = await self._desk.read(lambda reader: reader.now())
        found = await asyncio.to_thread(lambda: list(islice(next_runs(definition, now), runs)))
        return PreviewAnswer(when=definition.when(), runs=[moment_of(at) for at in found])

    async def pause_schedule(self, name: str, actor: str = "") -> ScheduleShape:
        """Enqueue nothing from now on."""
        await self._with_schedules(lambda kept: kept.pause(name), actor)
        return await self.schedule(name)

    async def resume_schedule(self, name: str, actor: str = "") -> ScheduleShape:
        """Go on with the next run from now."""
        await self._with_schedules(lambda kept: kept.resume(name), actor)
        return await self.schedule(name)

    async def fire_schedule(self, name: str, actor: str = "") -> Accepted:
        """Enqueue its job now, whatever its times are."""
        handle = await self._with_schedules(lambda kept: kept.fire(name), actor)
        [job] = await self._desk.jobs([handle.id], with_payload=False)
        self._waiting.poke()
        return Accepted(
            id=handle.id,
            queue="" if job is None else job.queue,
            state=None if job is None else job.state,
            is_duplicate=not handle.is_new,
        )

    async def remove_schedule(self, name: str, actor: str = "") -> Answered:
        """Forget a schedule with its history; raises ScheduleNotFound."""
        await self.schedule(name)
        return Answered(done=await self._with_schedules(lambda kept: kept.remove(name), actor))

    async def firings(self, name: str, limit: int) -> FiringList:
        """What became of the last runs; raises ScheduleNotFound."""
        await self.schedule(name)
        found = await self._desk.read(lambda reader: reader.firings(name, limit=limit))
        return FiringList(firings=[firing_shape(one) for one in found])

    async def _known(self, name: str) -> Definition | None:
        found = await self._desk.read(lambda reader: reader.schedules([name]))
        return found[0].definition if found else None

    async def _with_schedules(self, call: Callable[[Schedules], T], actor: str) -> T:
        return await self._desk.use(
            lambda client: call(Schedules(client, Registry(), self._roll, actor=actor))
        )

    # Workers

    async def workers(self, *, active_only: bool = True) -> WorkerList:
        """Workers by start; those that have died too, if asked."""

        def look(reader: Reader) -> WorkerList:
            now = reader.now()
            shapes = [worker_shape(one, now) for one in reader.workers()]
            return WorkerList(workers=[one for one in shapes if not active_only or one.pulse != "dead"])

        return await self._desk.read(look)

    async def command(self, request: CommandRequest, actor: str = "") -> CommandList:
        """Ask workers to pause, resume, stop or say what they do; raises WorkerNotFound."""
        named = None if request.workers is None else [WorkerId(one) for one in dict.fromkeys(request.workers)]

        def send(store: Store) -> CommandList:
            sent = store.send(CommandKind(request.kind), named, queue=queue_name(request.queue), actor=actor)
            return CommandList(commands=[command_shape(one) for one in sent])

        return await self._desk.write(send)

    async def commands(self, ids: list[str]) -> CommandList:
        """What came of commands; those that nobody knows any more are left out."""
        found = await self._desk.read(lambda reader: reader.commands(ids))
        return CommandList(commands=[command_shape(one) for one in found if one is not None])

    # Limits

    async def limits(self) -> LimitList:
        """All limits by scope, and how they stand."""
        found = await self._desk.read(throttles)
        return LimitList(limits=[use_shape(one) for one in found])

    async def set_limit(self, request: LimitRequest, actor: str = "") -> LimitShape:
        """Set the limit of a scope, in the place of another one."""
        limit = request.limit()
        await self._desk.write(lambda store: store.save_limit(limit, actor=actor))
        self._waiting.poke()
        return limit_shape(limit)

    async def remove_limit(self, scope: str, actor: str = "") -> Answered:
        """Remove the limit of a scope; whether there was one."""
        done = await self._desk.write(lambda store: store.drop_limit(scope, actor=actor))
        self._waiting.poke()
        return Answered(done=done)
