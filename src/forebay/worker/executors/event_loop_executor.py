"""Event loop executor: coroutine tasks on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from itertools import count
from threading import Event, Thread
from typing import Any, Final

from forebay.app.current_job import has_context_leak
from forebay.clock import Clock
from forebay.domain.outcome import Interrupted, Outcome
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.task_invoker import Invoker

BLOCKED_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 0.5  # a loop that has not answered for so long is blocked by a task
MAX_LOOPS: Final = 16

logger: logging.Logger = logging.getLogger(__name__)


class LoopThread:
    """One event loop on a thread of its own, with the assignments that wait for it.

    A coroutine that does not await blocks its loop, and cannot be stopped. Where one does so beyond its time
    limit the loop is retired: it gets no more jobs, and another loop starts. The coroutines on it go on when
    it does, and it ends with the last of them.
    """

    def __init__(
        self, consume: Callable[[LoopThread], Coroutine[Any, Any, None]], size: int, number: int
    ) -> None:
        self.waiting: deque[Assignment] = deque()
        self.is_closed: bool = False
        self.has_abandoned = False  # some coroutine on it was abandoned
        self._pinged_at: float | None = None
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._consume = consume
        self._size = size
        self._consumers: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop
        self._is_up = Event()
        self._thread = Thread(target=self._run, name=f"forebay-loop-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def call(self, callback: Callable[[], object]) -> None:
        """Call it on the loop's own thread, soon."""
        with suppress(RuntimeError):  # closed: all consumers have ended
            self.loop.call_soon_threadsafe(callback)

    def ping(self, callback: Callable[[], object], now: float) -> None:
        """`call`, and remember since when there was no answer."""

        def answer() -> None:
            self._pinged_at = None
            callback()

        if self._pinged_at is None:
            self._pinged_at = now
        self.call(answer)

    def is_blocked(self, now: float) -> bool:
        """Return whether the loop has not answered for a while."""
        pinged_at = self._pinged_at
        return pinged_at is not None and now - pinged_at >= SILENT_SECONDS

    async def sleep(self) -> None:
        wakeup = self.loop.create_future()
        self._sleeping.append(wakeup)
        await wakeup

    def wake(self) -> None:
        while self._sleeping:
            wakeup = self._sleeping.popleft()
            if not wakeup.done():
                wakeup.set_result(None)
                return

    def wake_all(self) -> None:
        while self._sleeping:
            self.wake()

    def close(self) -> None:
        """End the consumers, when no more jobs wait."""
        self.is_closed = True
        self.call(self.wake_all)

    def add_consumer(self) -> None:
        self._consumers.add(asyncio.create_task(self._consume(self)))

    async def _main(self) -> None:
        for _ in range(self._size):
            self.add_consumer()
        self._is_up.set()
        while self._consumers:
            ended, _ = await asyncio.wait(self._consumers, return_when=asyncio.FIRST_COMPLETED)
            self._consumers -= ended

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self.loop = runner.get_loop()
            main = self.loop.create_task(self._main())
            while not main.done():
                try:
                    self.loop.run_until_complete(main)
                except BaseException:
                    # A task that the job has started and that ends with SystemExit stops the loop; the job
                    # sees that when it awaits that task. Nothing else is hurt, so the loop goes on.
                    logger.exception("a coroutine has stopped the event loop; it goes on")


class EventLoopExecutor:
    """A fixed number of consumer coroutines on one deque; no task object per job.

    A task that blocks the loop delays the other coroutines, and nothing else: leases are renewed elsewhere.

    A consumer needs a slot to run a job. There are as many slots as consumers, so no consumer waits for one,
    unless coroutines still run on a retired loop: all loops together share these slots.
    """

    kind = ExecutorKind.COROUTINES

    def __init__(self, consumers: int, invoke: Invoker, inbox: Inbox, clock: Clock) -> None:
        self._consumers = consumers
        self._invoke = invoke
        self._inbox = inbox
        self._now = clock.monotonic
        self._free_slots: list[None] = [None] * consumers
        self._has_guests = False
        self._loops: list[LoopThread] = []  # the current one is the last
        self._numbers = count()

    def start(self) -> None:
        self._start_loop()

    @property
    def _current_loop(self) -> LoopThread:
        return self._loops[-1]

    def _start_loop(self) -> LoopThread:
        loop = LoopThread(self._consume, self._consumers, next(self._numbers))
        loop.start()
        self._loops = [*self._loops, loop]
        return loop

    def _find_loop(self, slot: object) -> LoopThread | None:
        """Return the loop on which this consumer runs; None if none does."""
        if not isinstance(slot, asyncio.Task):
            return None
        loop = slot.get_loop()
        return next((loop_thread for loop_thread in self._loops if loop_thread.loop is loop), None)

    def submit(self, assignment: Assignment) -> None:
        loop = self._current_loop
        if loop.has_abandoned and loop.is_blocked(self._now()):
            self._retire(loop)
            loop = self._current_loop
        loop.waiting.append(assignment)
        loop.call(loop.wake)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        loop = self._find_loop(assignment.slot)
        if loop is not None:
            loop.ping(lambda: _cancel(assignment, reason), self._now())

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        """Return the outcome of an attempt that is settled without its coroutine; None if the coroutine has
        one itself."""
        loop = self._find_loop(assignment.slot)
        if loop is None or not assignment.give_up(reason):
            return None
        loop.has_abandoned = True
        return self._invoke.stopped_outcome(assignment)

    def replace(self, assignment: Assignment) -> bool:
        """Replace an abandoned consumer: on the same loop if that answers, else on a new one. False if there
        cannot be a new one."""
        loop = self._current_loop
        if loop.has_abandoned and loop.is_blocked(self._now()) and not self._retire(loop):
            return False
        if assignment.acquire_slot():
            self._free_slots.append(None)
            self._current_loop.ping(self._current_loop.add_consumer, self._now())
        return True

    def _retire(self, loop: LoopThread) -> bool:
        """Start a new loop. Not where hooks of the program have run on the current one: objects that they
        have opened belong to it, and its tasks would fail on another."""
        self._loops = [running for running in self._loops if not running.is_over]
        if self._has_guests or len(self._loops) >= MAX_LOOPS:
            return False
        try:
            new = self._start_loop()
        except RuntimeError as exc:
            logger.error("no other event loop can be started now: %s", exc)
            return False
        logger.error("an event loop is blocked by a task beyond its time limit; another one starts")
        with suppress(IndexError):  # it may wake up at this moment and take some itself
            while True:
                new.waiting.append(loop.waiting.popleft())
        loop.close()
        new.call(new.wake_all)
        return True

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine that is no job on this loop, and wait for it; not from the loop's own thread.
        Raises RuntimeError if it cannot even begin, because a task that does not await blocks the loop."""
        if not self._loops:
            raise RuntimeError("the event loop was not started")
        self._has_guests = True
        has_begun = Event()

        async def begin() -> Any:
            has_begun.set()
            return await coroutine

        future = asyncio.run_coroutine_threadsafe(begin(), self._current_loop.loop)
        if not has_begun.wait(BLOCKED_SECONDS):
            future.cancel()
            coroutine.close()
            raise RuntimeError(f"the event loop is blocked by a task, so {coroutine!r:.60} cannot run")
        return future.result()

    def close(self) -> None:
        for loop in self._loops:
            loop.close()

    async def _consume(self, loop: LoopThread) -> None:
        """Run jobs. After a job that has set context variables another task goes on that does not see them: a
        coroutine's context is that of its task."""
        while await asyncio.create_task(self._consume_until_touched(loop), context=Context()):
            pass

    async def _consume_until_touched(self, loop: LoopThread) -> bool:
        """Run jobs until one leaves something behind in the context; false when there are no more."""
        while (assignment := await self._next(loop)) is not None:
            is_over = assignment.acquire() and not await self._run_job(assignment)
            if is_over:
                return False
            self._free_slots.append(None)
            if loop is not self._current_loop:  # the current loop may wait for this slot
                self._current_loop.call(self._current_loop.wake)
            if has_context_leak():
                return True
        return False

    async def _run_job(self, assignment: Assignment) -> bool:
        """Run a job; false if this consumer was abandoned with it and another one has its slot."""
        outcome = await self._outcome(assignment)
        if assignment.conclude():
            self._inbox.put(assignment, outcome)
            return True
        has_slot = assignment.acquire_slot()
        self._inbox.notify()  # the coordinator counts abandoned attempts
        return has_slot

    async def _next(self, loop: LoopThread) -> Assignment | None:
        while True:
            if not loop.waiting:
                if loop.is_closed:
                    return None
            elif self._acquire_slot():
                try:
                    return loop.waiting.popleft()
                except IndexError:  # this loop was just retired, and its jobs have moved
                    self._free_slots.append(None)
                    continue
            await loop.sleep()

    def _acquire_slot(self) -> bool:
        """Acquire a slot. One bytecode, since retired loops acquire and release slots on threads of their
        own."""
        try:
            self._free_slots.pop()
        except IndexError:
            return False
        return True

    async def _outcome(self, assignment: Assignment) -> Outcome:
        now = self._now()
        # With too little left of its lease another worker may have the job already.
        if now > assignment.start_by or not assignment.mark_started(now):
            return Interrupted(started=False)
        consumer = asyncio.current_task()
        assignment.slot = consumer
        try:
            return await self._invoke.run_coroutine(assignment)
        except BaseException:
            return self._invoke.stopped_outcome(assignment)  # not even its error could be recorded
        finally:
            assignment.slot = None
            assignment.ended_at = self._now()
            await _clear_cancellation(consumer)


async def _clear_cancellation(consumer: asyncio.Task[Any] | None) -> None:
    """Clear the job's cancellation; the consumer goes on with the next job.

    A job that cancels its own task and returns at once leaves a cancellation behind. It would hit whatever is
    awaited next; here that is nothing.
    """
    while consumer is not None and consumer.cancelling():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        consumer.uncancel()


def _cancel(assignment: Assignment, reason: BaseException) -> None:
    """Cancel the coroutine. On the loop's own thread, so the slot cannot change in between."""
    if isinstance(assignment.slot, asyncio.Task):
        if assignment.stopped_by is None:
            assignment.stopped_by = reason
        assignment.slot.cancel()
