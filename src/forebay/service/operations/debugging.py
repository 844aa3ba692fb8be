"""What somebody asks who looks for a fault: what is in a queue, what became of a job, what keeps it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from forebay.app.advice import advice_on
from forebay.app.bulk import sweep
from forebay.app.consumer import new_worker
from forebay.domain.history import Timeline
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.domain.worker import Command, CommandKind, WorkerInfo
from forebay.errors import JobNotFound, QueueNotFound, StoreError, WorkerNotFound
from forebay.service.operations.desk import Desk
from forebay.service.operations.looking import DEPENDANTS_SHOWN
from forebay.service.operations.waiting import Waiting
from forebay.service.schema.debugging import (
    ContentsAnswer,
    ContentShape,
    InspectAnswer,
    SignalAnswer,
    SignalRequest,
    SweepAnswer,
    TraceAnswer,
    WorkerStateAnswer,
    advice_shape,
    content_shape,
    trace_answer,
)
from forebay.service.schema.looking import JobShape, job_shape
from forebay.service.schema.steering import command_shape, worker_shape
from forebay.stores.protocol import Reader, Store

LOOK_SECONDS: Final = 0.1
_SIGNALS: Final = {
    "pause": CommandKind.PAUSE,
    "resume": CommandKind.RESUME,
    "shutdown": CommandKind.STOP,
}

logger: logging.Logger = logging.getLogger(__name__)


class Debugging:
    """Looks and deeds that no program needs from day to day."""

    def __init__(self, desk: Desk, waiting: Waiting, roll: Callable[[], float]) -> None:
        self._desk = desk
        self._waiting = waiting
        self._roll = roll
        self._sweeping: asyncio.Task[None] | None = None

    # Jobs

    async def contents(
        self, queue: str, *, with_running: bool, with_retrying: bool, limit: int
    ) -> ContentsAnswer:
        """The jobs of a queue with their arguments; raises QueueNotFound."""
        name = QueueName(queue)

        def look(reader: Reader) -> ContentsAnswer:
            if not reader.queues([name]):
                raise QueueNotFound(f"there is no queue {queue}")
            return ContentsAnswer(
                queue=queue,
                pending=_records(reader, [one.id for one in reader.peek(name, limit)]),
                running=_in_state(reader, name, JobState.RUNNING, limit) if with_running else None,
                retrying=_in_state(reader, name, JobState.RETRYING, limit) if with_retrying else None,
            )

        return await self._desk.read(look)

    async def trace(self, job_id: str) -> TraceAnswer:
        """All that happened to a job, and its result; raises JobNotFound."""

        def look(reader: Reader) -> TraceAnswer:
            timeline, shape = _timeline(reader, job_id)
            return trace_answer(timeline, shape)

        return await self._desk.read(look)

    async def inspect(self, job_id: str) -> InspectAnswer:
        """A job, and what keeps it; raises JobNotFound."""

        def look(reader: Reader) -> InspectAnswer:
            timeline, shape = _timeline(reader, job_id)
            return InspectAnswer(
                job=shape, advice=[advice_shape(one) for one in advice_on(reader, timeline.job)]
            )

        return await self._desk.read(look)

    def sweep(self) -> SweepAnswer:
        """Begin to settle attempts whose lease has ended; nobody waits for the end of it."""
        if self._sweeping is not None and not self._sweeping.done():
            return SweepAnswer(has_begun=False)
        self._sweeping = asyncio.create_task(self._sweep(), name="forebay-sweep")
        return SweepAnswer(has_begun=True)

    async def _sweep(self) -> None:
        sweeper = WorkerId(new_worker())
        try:
            # Batch by batch: others who write have their turn in between, and a stop need not wait for all.
            while await self._desk.write(lambda store: sweep(store, sweeper, self._roll)):
                if not self._waiting.is_running:
                    return
        except StoreError as exc:
            logger.warning("a sweep was broken off; the duty goes on with it: %s", exc)
        self._waiting.poke()

    async def stop(self) -> None:
        """Let a sweep end with its batch. Stopping twice is fine."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])

    # Workers

    async def worker_state(self, worker: str, wait_seconds: float, actor: str = "") -> WorkerStateAnswer:
        """What a worker says about itself, and what its threads do, if it answers in time; raises
        WorkerNotFound."""
        found, now = await self._worker(worker)
        command = await self._sent(found, CommandKind.STACKS, actor)
        answer = await self._waiting.unless_over(self._answered(command.id, wait_seconds))
        return WorkerStateAnswer(worker=worker_shape(found, now), stacks=answer)

    async def signal(self, worker: str, request: SignalRequest, actor: str = "") -> SignalAnswer:
        """Ask a worker for something; raises WorkerNotFound."""
        found, now = await self._worker(worker)
        kind = _SIGNALS.get(request.signal)
        sent = None if kind is None else command_shape(await self._sent(found, kind, actor))
        return SignalAnswer(worker=worker_shape(found, now), command=sent)

    async def _worker(self, worker: str) -> tuple[WorkerInfo, int]:
        found, now = await self._desk.read(lambda reader: (reader.workers(), reader.now()))
        for one in found:
            if one.id == worker:
                return one, now
        raise WorkerNotFound(f"there is no worker {worker!r:.100}")

    async def _sent(self, worker: WorkerInfo, kind: CommandKind, actor: str) -> Command:
        def send(store: Store) -> Command:
            [command] = store.send(kind, [worker.id], actor=actor)
            return command

        return await self._desk.write(send)

    async def _answered(self, command_id: str, wait_seconds: float) -> str | None:
        ends = self._desk.clock.monotonic() + min(wait_seconds, self._waiting.longest)
        while True:
            [command] = await self._desk.read(lambda reader: reader.commands([command_id]))
            is_answered = command is not None and command.answer is not None
            if command is None or is_answered or self._desk.clock.monotonic() >= ends:
                return None if command is None else command.answer
            await asyncio.sleep(LOOK_SECONDS)


def _timeline(reader: Reader, job_id: str) -> tuple[Timeline, JobShape]:
    wanted = JobId(job_id)
    timeline = reader.history(wanted)
    if timeline is None:
        raise JobNotFound(f"there is no job {job_id}")
    parents, dependants = reader.parents([wanted]), reader.dependants([wanted], limit=DEPENDANTS_SHOWN)
    return timeline, job_shape(timeline, parents, dependants)


def _in_state(reader: Reader, queue: QueueName, state: JobState, limit: int) -> list[ContentShape]:
    page = reader.search(JobQuery(queues=(queue,), states=(state,)), limit=limit)
    return _records(reader, [one.id for one in page.jobs])


def _records(reader: Reader, ids: list[JobId]) -> list[ContentShape]:
    return [content_shape(job) for job in reader.jobs(ids) if job is not None]
