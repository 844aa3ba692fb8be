"""Debugging: contents of queues, traces and diagnosis of jobs, thread stacks of workers, a sweep on
request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import JobNotFound, QueueNotFound, StoreError, WorkerNotFound
from forebay.operations.job_diagnosis import diagnose
from forebay.operations.lease_sweep import sweep
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
from forebay.service.schema.workers_and_commands import command_view, worker_view
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_worker_id

POLL_SECONDS: Final = 0.1
_SIGNALS: Final = {
    "pause": CommandKind.PAUSE,
    "resume": CommandKind.RESUME,
    "shutdown": CommandKind.STOP,
}

logger: logging.Logger = logging.getLogger(__name__)


class DebugResource:
    """Debug operations for administrators."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll
        self._sweeping: asyncio.Task[None] | None = None

    # Jobs

    async def contents(
        self, queue: str, *, with_running: bool, with_retrying: bool, limit: int
    ) -> QueueContentsResponse:
        """Return jobs of a queue with their arguments; raises QueueNotFound."""
        name = QueueName(queue)

        def load(reader: Reader) -> QueueContentsResponse:
            if not reader.queues([name]):
                raise QueueNotFound(f"there is no queue {queue}")
            return QueueContentsResponse(
                queue=queue,
                pending=_load_views(reader, [job.id for job in reader.peek(name, limit)]),
                running=_load_in_state(reader, name, JobState.RUNNING, limit) if with_running else None,
                retrying=_load_in_state(reader, name, JobState.RETRYING, limit) if with_retrying else None,
            )

        return await self._pool.read(load)

    async def trace(self, job_id: str) -> TraceResponse:
        """Return a job with its timeline and result; raises JobNotFound."""

        def load(reader: Reader) -> TraceResponse:
            timeline, view = _load_timeline(reader, job_id)
            return trace_response(timeline, view)

        return await self._pool.read(load)

    async def inspect(self, job_id: str) -> InspectResponse:
        """Return a job with its diagnosis; raises JobNotFound."""

        def load(reader: Reader) -> InspectResponse:
            timeline, view = _load_timeline(reader, job_id)
            return InspectResponse(
                job=view, diagnosis=[diagnosis_view(item) for item in diagnose(reader, timeline.job)]
            )

        return await self._pool.read(load)

    def sweep(self) -> SweepResponse:
        """Start to settle attempts with expired leases, without waiting for the end."""
        if self._sweeping is not None and not self._sweeping.done():
            return SweepResponse(has_begun=False)
        self._sweeping = asyncio.create_task(self._sweep(), name="forebay-sweep")
        return SweepResponse(has_begun=True)

    async def _sweep(self) -> None:
        sweeper = WorkerId(new_worker_id())
        try:
            # In batches, so that other writes run in between and a stop waits for one batch only.
            while await self._pool.write(lambda store: sweep(store, sweeper, self._roll)):
                if not self._claim_waiters.is_running:
                    return
        except StoreError as exc:
            logger.warning("a sweep was aborted; maintenance continues it: %s", exc)
        self._claim_waiters.wake()

    async def stop(self) -> None:
        """End a running sweep after its batch. May be called twice."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])

    # Workers

    async def worker_state(self, worker: str, wait_seconds: float, actor: str = "") -> WorkerStateResponse:
        """Return the last heartbeat of a worker, and its thread stacks if it responds in time; raises
        WorkerNotFound."""
        info, now = await self._find_worker(worker)
        command = await self._send_command(info, CommandKind.STACKS, actor)
        waiting = self._wait_for_response(command.id, wait_seconds)
        stacks = await self._claim_waiters.run_unless_stopped(waiting)
        return WorkerStateResponse(worker=worker_view(info, now), stacks=stacks)

    async def signal(self, worker: str, request: SignalRequest, actor: str = "") -> SignalResponse:
        """Send a command to a worker; raises WorkerNotFound."""
        info, now = await self._find_worker(worker)
        kind = _SIGNALS.get(request.signal)
        command = None if kind is None else command_view(await self._send_command(info, kind, actor))
        return SignalResponse(worker=worker_view(info, now), command=command)

    async def _find_worker(self, worker: str) -> tuple[WorkerInfo, int]:
        workers, now = await self._pool.read(lambda reader: (reader.workers(), reader.now()))
        for info in workers:
            if info.id == worker:
                return info, now
        raise WorkerNotFound(f"there is no worker {worker!r:.100}")

    async def _send_command(self, worker: WorkerInfo, kind: CommandKind, actor: str) -> Command:
        def send(store: Store) -> Command:
            [command] = store.send_command(kind, [worker.id], actor=actor)
            return command

        return await self._pool.write(send)

    async def _wait_for_response(self, command_id: str, wait_seconds: float) -> str | None:
        ends_at = self._pool.clock.monotonic() + min(wait_seconds, self._claim_waiters.longest_wait)
        while True:
            [command] = await self._pool.read(lambda reader: reader.commands([command_id]))
            is_answered = command is not None and command.response is not None
            if command is None or is_answered or self._pool.clock.monotonic() >= ends_at:
                return None if command is None else command.response
            await asyncio.sleep(POLL_SECONDS)


def _load_timeline(reader: Reader, job_id: str) -> tuple[Timeline, JobView]:
    key = JobId(job_id)
    timeline = reader.history(key)
    if timeline is None:
        raise JobNotFound(f"there is no job {job_id}")
    parents, dependants = reader.parents([key]), reader.dependants([key], limit=DEPENDANTS_SHOWN)
    return timeline, job_view(timeline, parents, dependants)


def _load_in_state(reader: Reader, queue: QueueName, state: JobState, limit: int) -> list[QueuedJobView]:
    page = reader.search(JobQuery(queues=(queue,), states=(state,)), limit=limit)
    return _load_views(reader, [job.id for job in page.jobs])


def _load_views(reader: Reader, ids: list[JobId]) -> list[QueuedJobView]:
    return [queued_job_view(job) for job in reader.jobs(ids) if job is not None]
