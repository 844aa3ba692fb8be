"""What somebody asks who looks for a fault: what is in a queue, what became of a job, what keeps it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from forebay.domain.history import Timeline
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.domain.worker import Command, CommandKind, WorkerInfo
from forebay.errors import JobNotFound, QueueNotFound, StoreError, WorkerNotFound
from forebay.operations.bulk import sweep
from forebay.operations.diagnosis import diagnose
from forebay.service.resources.job_reads import DEPENDANTS_SHOWN
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.debug import (
    InspectResponse,
    QueueContentsResponse,
    QueuedJobView,
    SignalRequest,
    SignalResponse,
    SweepResponse,
    TraceResponse,
    WorkerStateResponse,
    diagnosis_view,
    queued_job_view,
    trace_response,
)
from forebay.service.schema.job_views import JobView, job_view
from forebay.service.schema.workers import command_view, worker_view
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.ids import new_worker_id

POLL_SECONDS: Final = 0.1
_SIGNALS: Final = {
    "pause": CommandKind.PAUSE,
    "resume": CommandKind.RESUME,
    "shutdown": CommandKind.STOP,
}

logger: logging.Logger = logging.getLogger(__name__)


class DebugResource:
    """Looks and deeds that no program needs from day to day."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll
        self._sweeping: asyncio.Task[None] | None = None

    # Jobs

    async def contents(
        self, queue: str, *, with_running: bool, with_retrying: bool, limit: int
    ) -> QueueContentsResponse:
        """The jobs of a queue with their arguments; raises QueueNotFound."""
        name = QueueName(queue)

        def look(reader: Reader) -> QueueContentsResponse:
            if not reader.queues([name]):
                raise QueueNotFound(f"there is no queue {queue}")
            return QueueContentsResponse(
                queue=queue,
                pending=_load_views(reader, [one.id for one in reader.peek(name, limit)]),
                running=_load_in_state(reader, name, JobState.RUNNING, limit) if with_running else None,
                retrying=_load_in_state(reader, name, JobState.RETRYING, limit) if with_retrying else None,
            )

        return await self._pool.read(look)

    async def trace(self, job_id: str) -> TraceResponse:
        """All that happened to a job, and its result; raises JobNotFound."""

        def look(reader: Reader) -> TraceResponse:
            timeline, shape = _load_timeline(reader, job_id)
            return trace_response(timeline, shape)

        return await self._pool.read(look)

    async def inspect(self, job_id: str) -> InspectResponse:
        """A job, and what keeps it; raises JobNotFound."""

        def look(reader: Reader) -> InspectResponse:
            timeline, shape = _load_timeline(reader, job_id)
            return InspectResponse(
                job=shape, diagnosis=[diagnosis_view(one) for one in diagnose(reader, timeline.job)]
            )

        return await self._pool.read(look)

    def sweep(self) -> SweepResponse:
        """Begin to settle attempts whose lease has ended; nobody waits for the end of it."""
        if self._sweeping is not None and not self._sweeping.done():
            return SweepResponse(has_begun=False)
        self._sweeping = asyncio.create_task(self._sweep(), name="forebay-sweep")
        return SweepResponse(has_begun=True)

    async def _sweep(self) -> None:
        sweeper = WorkerId(new_worker_id())
        try:
            # Batch by batch: others who write have their turn in between, and a stop need not wait for all.
            while await self._pool.write(lambda store: sweep(store, sweeper, self._roll)):
                if not self._claim_waiters.is_running:
                    return
        except StoreError as exc:
            logger.warning("a sweep was broken off; the duty goes on with it: %s", exc)
        self._claim_waiters.wake()

    async def stop(self) -> None:
        """Let a sweep end with its batch. Stopping twice is fine."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])

    # Workers

    async def worker_state(self, worker: str, wait_seconds: float, actor: str = "") -> WorkerStateResponse:
        """What a worker says about itself, and what its threads do, if it answers in time; raises
        WorkerNotFound."""
        found, now = await self._find_worker(worker)
        command = await self._send_command(found, CommandKind.STACKS, actor)
        answer = await self._claim_waiters.run_unless_stopped(self._wait_for_answer(command.id, wait_seconds))
        return WorkerStateResponse(worker=worker_view(found, now), stacks=answer)

    async def signal(self, worker: str, request: SignalRequest, actor: str = "") -> SignalResponse:
        """Ask a worker for something; raises WorkerNotFound."""
        found, now = await self._find_worker(worker)
        kind = _SIGNALS.get(request.signal)
        sent = None if kind is None else command_view(await self._send_command(found, kind, actor))
        return SignalResponse(worker=worker_view(found, now), command=sent)

    async def _find_worker(self, worker: str) -> tuple[WorkerInfo, int]:
        found, now = await self._pool.read(lambda reader: (reader.workers(), reader.now()))
        for one in found:
            if one.id == worker:
                return one, now
        raise WorkerNotFound(f"there is no worker {worker!r:.100}")

    async def _send_command(self, worker: WorkerInfo, kind: CommandKind, actor: str) -> Command:
        def send(store: Store) -> Command:
            [command] = store.send_command(kind, [worker.id], actor=actor)
            return command

        return await self._pool.write(send)

    async def _wait_for_answer(self, command_id: str, wait_seconds: float) -> str | None:
        ends = self._pool.clock.monotonic() + min(wait_seconds, self._claim_waiters.longest_wait)
        while True:
            [command] = await self._pool.read(lambda reader: reader.commands([command_id]))
            is_answered = command is not None and command.response is not None
            if command is None or is_answered or self._pool.clock.monotonic() >= ends:
                return None if command is None else command.response
            await asyncio.sleep(POLL_SECONDS)


def _load_timeline(reader: Reader, job_id: str) -> tuple[Timeline, JobView]:
    wanted = JobId(job_id)
    timeline = reader.history(wanted)
    if timeline is None:
        raise JobNotFound(f"there is no job {job_id}")
    parents, dependants = reader.parents([wanted]), reader.dependants([wanted], limit=DEPENDANTS_SHOWN)
    return timeline, job_view(timeline, parents, dependants)


def _load_in_state(reader: Reader, queue: QueueName, state: JobState, limit: int) -> list[QueuedJobView]:
    page = reader.search(JobQuery(queues=(queue,), states=(state,)), limit=limit)
    return _load_views(reader, [one.id for one in page.jobs])


def _load_views(reader: Reader, ids: list[JobId]) -> list[QueuedJobView]:
    return [queued_job_view(job) for job in reader.jobs(ids) if job is not None]
