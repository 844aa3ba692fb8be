"""Coroutine tasks on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from threading import Event, Thread
from typing import Any, Final

from forebay.app.current import is_touched
from forebay.clock import Clock
from forebay.domain.outcome import Interrupted, Outcome
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke
from forebay.worker.slots import Assignment, Kind

BLOCKED_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class LoopExecutor:
    """A fixed number of consumer coroutines on one deque; no task object per job.

    A task that blocks the loop delays the other coroutines, and nobody else: leases are renewed elsewhere.
    """

    kind = Kind.COROUTINES

    def __init__(self, consumers: int, invoke: Invoke, inbox: Inbox, clock: Clock) -> None:
        self._consumers = consumers
        self._invoke = invoke
        self._inbox = inbox
        self._now = clock.monotonic
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

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine that is no job on this loop, and wait for it; not from the loop's own thread.
        Raises RuntimeError if it cannot even begin, because a task that does not await holds the loop."""
        if self._loop is None:
            raise RuntimeError("the event loop was not started")
        begun = Event()

        async def begin() -> Any:
            begun.set()
            return await coroutine

        future = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        if not begun.wait(BLOCKED_SECONDS):
            future.cancel()
            coroutine.close()
            raise RuntimeError(f"the event loop is blocked by a task, so {coroutine!r:.60} cannot run")
        return future.result()

    def close(self) -> None:
        self._waiting.extend([None] * self._consumers)
        self._call(self._wake_all)

    def _call(self, what: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed: all consumers have ended
                self._loop.call_soon_threadsafe(what)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            main = self._loop.create_task(self._main())
            while not main.done():
                try:
                    self._loop.run_until_complete(main)
                except BaseException:
                    # A task of the job's own that ends with SystemExit stops the loop, and the job hears of
                    # it when it awaits that task. Nothing else is hurt, so the loop goes on.
                    logger.exception("a coroutine has stopped the event loop; it goes on")

    async def _main(self) -> None:
        consumers = [asyncio.create_task(self._consume()) for _ in range(self._consumers)]
        self._is_up.set()
        await asyncio.gather(*consumers)

    async def _consume(self) -> None:
        """One place: a consumer whose job has set context variables is followed by one that does not see
        them. A coroutine's context is that of its task, so it takes a new task, and only then."""
        while await asyncio.create_task(self._consume_until_touched(), context=Context()):
            pass

    async def _consume_until_touched(self) -> bool:
        """Run jobs until one leaves something behind in the context; false when there are no more."""
        while (assignment := await self._next()) is not None:
            if assignment.take():  # else it was handed back before it was started
                self._inbox.put(assignment, await self._outcome(assignment))
                if is_touched():
                    return True
        return False

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
        now = self._now()
        # With too little left of its lease somebody else may have the job already.
        if now > assignment.start_by or not assignment.began(now):
            return Interrupted(started=False)
        consumer = asyncio.current_task()
        assignment.seat = consumer
        try:
            return await self._invoke.awaited(assignment)
        except BaseException:
            return self._invoke.stopped(assignment)  # not even its error could be written down
        finally:
            assignment.seat = None
            assignment.ended_at = self._now()
            await _forgive(consumer)


async def _forgive(consumer: asyncio.Task[Any] | None) -> None:
    """Only the job was to be cancelled; the consumer goes on with the next one.

    A job that cancels its own task and returns at once leaves a cancellation behind that would hit whatever
    is awaited next: that is nothing, here.
    """
    while consumer is not None and consumer.cancelling():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        consumer.uncancel()


def _cancel(assignment: Assignment, reason: BaseException) -> None:
    """On the loop's own thread, so the seat cannot change hands in between."""
    if isinstance(assignment.seat, asyncio.Task):
        if assignment.stopped_by is None:
            assignment.stopped_by = reason
        assignment.seat.cancel()
