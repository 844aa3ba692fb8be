"""Coroutine tasks on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Event, Thread
from time import monotonic

from forebay.domain.outcome import Outcome
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke, stopped
from forebay.worker.slots import Assignment


class LoopExecutor:
    """A fixed number of consumer coroutines on one deque; no task object per job.

    A task that blocks the loop delays the other coroutines, and nobody else: leases are renewed elsewhere.
    """

    def __init__(self, consumers: int, invoke: Invoke, inbox: Inbox) -> None:
        self._consumers = consumers
        self._invoke = invoke
        self._inbox = inbox
        self._waiting: deque[Assignment | None] = deque()
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = Event()
        self._thread = Thread(target=self._run, name="forebay-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    def submit(self, assignment: Assignment) -> None:
        self._waiting.append(assignment)
        self._call(self._wake)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        self._call(lambda: _cancel(assignment, reason))

    def close(self) -> None:
        self._waiting.extend([None] * self._consumers)
        self._call(self._wake_all)

    def _call(self, what: object) -> None:
        if self._loop is not None and callable(what):
            self._loop.call_soon_threadsafe(what)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        consumers = [asyncio.create_task(self._consume()) for _ in range(self._consumers)]
        self._is_up.set()
        await asyncio.gather(*consumers)

    async def _consume(self) -> None:
        while (assignment := await self._next()) is not None:
            if assignment.take():  # else it was handed back before it was started
                self._inbox.put(assignment, await self._outcome(assignment))

    async def _next(self) -> Assignment | None:
        while not self._waiting:
            bell = asyncio.get_running_loop().create_future()
            self._sleeping.append(bell)
            await bell
        return self._waiting.popleft()

    def _wake(self) -> None:
        while self._sleeping:
            bell = self._sleeping.popleft()
            if not bell.done():
                bell.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._sleeping:
            self._wake()

    async def _outcome(self, assignment: Assignment) -> Outcome:
        consumer = asyncio.current_task()
        assignment.seat = consumer
        assignment.started_at = monotonic()
        try:
            return await self._invoke.awaited(assignment)
        except asyncio.CancelledError:
            return stopped(assignment)  # it came when the call was already over
        finally:
            assignment.seat = None
            assignment.ended_at = monotonic()
            # Only the job was to be cancelled; the consumer goes on with the next one.
            while consumer is not None and consumer.cancelling():
                consumer.uncancel()


def _cancel(assignment: Assignment, reason: BaseException) -> None:
    """On the loop's own thread, so the seat cannot change hands in between."""
    if isinstance(assignment.seat, asyncio.Task):
        assignment.stopped_by = reason
        assignment.seat.cancel()
