"""Coroutines on one event loop: many at once, and whatever one does, the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import pytest

from forebay import Forebay, current_job
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.domain.outcome import Cancelled, Completed, Failed, Interrupted
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.event_loop_executor import EventLoopExecutor
from forebay.worker.task_invoker import Invoker, JobInterrupted, JobTimeout
from tests.worker.support import DEADLINE, Collected, an_assignment, eventually, no_thread_stays

Coroutine = Callable[..., Awaitable[Any]]


class Running:
    """A loop with coroutines of the test's own."""

    def __init__(self, executor: EventLoopExecutor, app: Forebay, ends: Collected) -> None:
        self.executor = executor
        self.ends = ends
        self._app = app
        self._count = 0

    def submit(self, func: Coroutine, *args: Any) -> Assignment:
        self._count += 1
        name = f"co-{self._count}"
        self._app.task(name=name)(func)
        one = an_assignment(name, *args, id=JobId(name))
        self.executor.submit(one)
        return one

    def serves(self) -> bool:
        """Whether every consumer still takes jobs."""
        jobs = [self.submit(seven) for _ in range(5)]
        return all(isinstance(self.ends.of(one), Completed) for one in jobs)


@contextmanager
def loop(consumers: int) -> Iterator[Running]:
    app, ends = Forebay("memory://"), Collected()
    executor = EventLoopExecutor(consumers, Invoker(app.registry), ends, SystemClock())
    with no_thread_stays():
        executor.start()
        try:
            yield Running(executor, app, ends)
        finally:
            executor.close()


async def seven() -> int:
    return 7


async def for_ever() -> None:
    await asyncio.Event().wait()


def started(one: Assignment) -> bool:
    return one.slot is not None


# ------------------------------------------------------------------ running


def test_many_coroutines_run_at_once() -> None:
    here = 0
    all_here = asyncio.Event()

    async def meet() -> None:
        nonlocal here
        here += 1
        if here == 100:
            all_here.set()
        await all_here.wait()

    with loop(100) as running:
        jobs = [running.submit(meet) for _ in range(100)]

        assert all(isinstance(running.ends.of(one), Completed) for one in jobs)


def test_no_more_coroutines_run_at_once_than_there_are_consumers() -> None:
    with loop(2) as running:
        jobs = [running.submit(for_ever) for _ in range(2)]
        eventually(lambda: all(map(started, jobs)))
        third = running.submit(seven)
        assert third.started_at is None
        running.executor.interrupt(jobs[0], JobInterrupted())

        assert isinstance(running.ends.of(third), Completed)
        running.executor.interrupt(jobs[1], JobInterrupted())
        running.ends.of(jobs[1])


def test_each_coroutine_knows_its_own_job() -> None:
    async def who() -> str:
        before = current_job().id
        await asyncio.sleep(0)
        assert current_job().id == before
        return before

    with loop(10) as running:
        jobs = [running.submit(who) for _ in range(50)]

        assert all(isinstance(running.ends.of(one), Completed) for one in jobs)


def test_a_coroutine_that_was_handed_back_is_not_run() -> None:
    with loop(1) as running:
        first = running.submit(for_ever)
        eventually(lambda: started(first))
        second = running.submit(seven)
        assert second.acquire()
        running.executor.interrupt(first, JobInterrupted())

        assert running.serves()
        assert second.started_at is None


def test_a_coroutine_with_too_little_left_of_its_lease_is_handed_back_instead_of_started() -> None:
    with loop(1) as running:
        first = running.submit(for_ever)
        eventually(lambda: started(first))
        late = running.submit(seven)
        late.start_by = 0.0
        running.executor.interrupt(first, JobInterrupted())

        assert running.ends.of(late) == Interrupted(started=False)


# ------------------------------------------------------------------ stopping


@pytest.mark.shows("R-WORK-18", "R-EDGE-59")
def test_a_timeout_cancels_a_coroutine_and_it_has_failed() -> None:
    with loop(1) as running:
        one = running.submit(for_ever)
        eventually(lambda: started(one))
        running.executor.interrupt(one, JobTimeout("ran longer than 1 s"))

        outcome = running.ends.of(one)
        assert isinstance(outcome, Failed)
        assert (outcome.error.type, outcome.error.message) == ("Timeout", "ran longer than 1 s")
        assert running.serves()


def test_the_cancel_of_one_coroutine_hurts_neither_its_consumer_nor_the_others() -> None:
    with loop(3) as running:
        jobs = [running.submit(for_ever) for _ in range(3)]
        eventually(lambda: all(map(started, jobs)))
        jobs[1].context.mark_cancelled("no need")
        running.executor.interrupt(jobs[1], JobInterrupted("no need"))

        assert running.ends.of(jobs[1]) == Cancelled("no need")
        assert running.serves()
        assert running.ends.puts == 6
        for one in (jobs[0], jobs[2]):
            running.executor.interrupt(one, JobInterrupted())
            assert running.ends.of(one) == Interrupted()


@pytest.mark.parametrize(
    ("reason", "kind"), [(JobTimeout("too long"), Failed), (JobInterrupted("no need"), Completed)]
)
def test_a_coroutine_that_swallows_its_cancellation_goes_on_and_has_one_outcome(
    reason: BaseException, kind: type
) -> None:
    go_on = Event()

    async def swallow() -> int:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, DEADLINE)
        return 7

    with loop(1) as running:
        one = running.submit(swallow)
        eventually(lambda: started(one))
        running.executor.interrupt(one, reason)
        eventually(lambda: one.stopped_by is not None)
        go_on.set()

        assert isinstance(running.ends.of(one), kind)
        assert running.serves()


def test_several_interrupts_of_one_coroutine_do_not_reach_the_next() -> None:
    with loop(1) as running:
        one = running.submit(for_ever)
        behind = [running.submit(seven) for _ in range(20)]
        eventually(lambda: started(one))
        for _ in range(10):
            running.executor.interrupt(one, JobInterrupted())

        assert running.ends.of(one) == Interrupted()
        assert all(isinstance(running.ends.of(job), Completed) for job in behind)


def test_an_interrupt_before_the_start_or_after_the_end_does_nothing() -> None:
    with loop(1) as running:
        first = running.submit(for_ever)
        eventually(lambda: started(first))
        one = running.submit(seven)
        running.executor.interrupt(one, JobTimeout())
        running.executor.interrupt(first, JobInterrupted())
        assert isinstance(running.ends.of(one), Completed)
        running.executor.interrupt(one, JobTimeout())

        assert running.serves()
        assert one.stopped_by is None


# ------------------------------------------------------------------ what a consumer survives


async def exit_here() -> None:
    raise SystemExit(3)


async def exit_in_a_task() -> None:
    await asyncio.create_task(exit_here())


async def cancel_itself_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_itself_and_wait() -> None:
    await cancel_itself_and_return()
    await asyncio.sleep(0)


async def interrupt_the_keyboard() -> None:
    raise KeyboardInterrupt


async def leave_a_task_behind() -> None:
    asyncio.get_running_loop().spare_task = asyncio.create_task(for_ever())  # type: ignore[attr-defined]


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@pytest.mark.shows("R-WORK-15")
@pytest.mark.parametrize(
    "wild",
    [
        exit_here,
        exit_in_a_task,
        cancel_itself_and_return,
        cancel_itself_and_wait,
        interrupt_the_keyboard,
        leave_a_task_behind,
        stop_the_loop,
    ],
)
def test_a_consumer_survives_everything(wild: Coroutine) -> None:
    with loop(1) as running:
        one = running.submit(wild)
        behind = [running.submit(seven) for _ in range(3)]

        assert isinstance(running.ends.of(one), (Completed, Failed))
        assert all(isinstance(running.ends.of(job), Completed) for job in behind)
        assert running.serves()


def test_a_closed_loop_takes_requests_without_complaint() -> None:
    with loop(1) as running:
        one = running.submit(seven)
        running.ends.of(one)
    eventually(lambda: running.executor._current_loop.is_over)

    running.executor.interrupt(one, JobInterrupted())
    running.executor.close()
