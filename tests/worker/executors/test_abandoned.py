"""Threads and coroutines that do not come back: others take their places, and their ends are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Barrier, Event
from time import monotonic
from typing import Any

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.domain.outcome import Completed, Discarded, Failed, Outcome
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.event_loop_executor import EventLoopExecutor
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.task_invoker import Invoker, JobTimeout
from tests.threads import started_threads
from tests.worker.support import DEADLINE, Collected, an_assignment, eventually, no_thread_stays, waiting_in_c

LIMIT = JobTimeout("ran longer than 1 s")


class Running:
    """An executor with tasks of the test's own."""

    def __init__(self, executor: ThreadExecutor | EventLoopExecutor, app: Forebay, ends: Collected) -> None:
        self.executor = executor
        self.ends = ends
        self._app = app
        self._count = 0

    def submit(self, func: Callable[..., Any], *args: Any, **options: Any) -> Assignment:
        self._count += 1
        name = f"task-{self._count}"
        self._app.task(name=name, **options)(func)
        one = an_assignment(name, *args, id=JobId(name))
        self.executor.submit(one)
        return one

    def abandon(self, one: Assignment) -> Outcome | None:
        """As a coordinator does it: ask, wait for half a second, give up."""
        self.executor.interrupt(one, LIMIT)
        ends = monotonic() + 0.5
        eventually(lambda: monotonic() >= ends)
        return self.executor.abandon(one, LIMIT)


@contextmanager
def executor(kind: type[ThreadExecutor | EventLoopExecutor], size: int) -> Iterator[Running]:
    app, ends = Forebay("memory://"), Collected()
    made = kind(size, Invoker(app.registry), ends, SystemClock())
    made.start()
    try:
        yield Running(made, app, ends)
    finally:
        made.close()


def names(prefix: str) -> list[str]:
    return [one.name for one in started_threads(prefix)]


# ------------------------------------------------------------------ threads


@pytest.mark.shows("R-EDGE-78")
def test_another_thread_takes_the_place_of_one_that_waits_in_c_and_that_one_ends_when_it_comes_back() -> None:
    started = Event()

    with no_thread_stays(), waiting_in_c() as (wait, end), executor(ThreadExecutor, 1) as running:

        def wait_in_c() -> int:
            started.set()
            wait()
            return 7

        one = running.submit(wait_in_c)
        assert started.wait(DEADLINE)
        outcome = running.abandon(one)
        assert isinstance(outcome, Failed)
        assert (outcome.error.type, outcome.error.message) == ("Timeout", "ran longer than 1 s")
        assert running.executor.replace(one)
        assert isinstance(running.ends.of(running.submit(lambda: 8)), Completed)
        assert len(names("forebay-task-")) == 2

        end()
        eventually(lambda: len(names("forebay-task-")) == 1)

        assert one.ended_at is not None
        assert one.lease not in running.ends.outcomes  # it told nothing
        assert isinstance(running.ends.of(running.submit(lambda: 9)), Completed)


def test_a_thread_that_was_abandoned_and_not_replaced_goes_on_with_other_jobs_when_it_comes_back() -> None:
    started = Event()

    with no_thread_stays(), waiting_in_c() as (wait, end), executor(ThreadExecutor, 1) as running:

        def wait_in_c() -> None:
            started.set()
            wait()

        one = running.submit(wait_in_c)
        assert started.wait(DEADLINE)
        assert running.abandon(one) is not None
        behind = running.submit(lambda: 8)
        end()

        assert isinstance(running.ends.of(behind), Completed)
        assert running.executor.replace(one)  # too late: the thread is back
        assert len(names("forebay-task-")) == 1
        assert one.lease not in running.ends.outcomes


def test_an_attempt_that_ends_as_it_is_given_up_has_one_outcome_and_its_place_one_thread() -> None:
    rounds = 200

    with no_thread_stays(), executor(ThreadExecutor, 2) as running:
        given_up = 0
        for _ in range(rounds):
            barrier = Barrier(2)
            one = running.submit(lambda barrier=barrier: barrier.wait(DEADLINE))
            eventually(lambda one=one: one.slot is not None)  # type: ignore[misc]
            barrier.wait(DEADLINE)
            if running.executor.abandon(one, LIMIT) is None:
                assert isinstance(running.ends.of(one), Completed)
                continue
            given_up += 1
            assert running.executor.replace(one)
            eventually(lambda one=one: one.ended_at is not None)  # type: ignore[misc]
        eventually(lambda: len(names("forebay-task-")) == 2)

        assert running.ends.puts == rounds - given_up


def test_a_task_that_swallows_its_timeout_is_given_up_too() -> None:
    started, stop = Event(), Event()

    with no_thread_stays(), executor(ThreadExecutor, 1) as running:

        def swallow() -> None:
            while not stop.is_set():
                with suppress(BaseException):
                    started.set()
                    stop.wait(0.01)

        one = running.submit(swallow, retry_on_timeout=False)
        assert started.wait(DEADLINE)
        assert isinstance(running.abandon(one), Discarded)
        assert running.executor.replace(one)

        assert isinstance(running.ends.of(running.submit(lambda: 8)), Completed)
        stop.set()


def test_what_has_not_taken_its_slot_cannot_be_abandoned() -> None:
    with no_thread_stays(), executor(ThreadExecutor, 1) as running:
        assert running.executor.abandon(an_assignment(), LIMIT) is None


# ------------------------------------------------------------------ coroutines


def test_a_blocked_event_loop_is_replaced_and_its_other_coroutines_go_on_when_it_does() -> None:
    started, waits, go_on = Event(), Event(), Event()

    with no_thread_stays(), waiting_in_c() as (wait, end), executor(EventLoopExecutor, 2) as running:

        async def other() -> int:
            waits.set()
            while not go_on.is_set():
                await asyncio.sleep(0.001)
            return 1

        async def block() -> int:
            started.set()
            wait()
            return 7

        next_to_it = running.submit(other)
        assert waits.wait(DEADLINE)
        one = running.submit(block)
        assert started.wait(DEADLINE)
        outcome = running.abandon(one)
        assert isinstance(outcome, Failed)
        assert outcome.error.type == "Timeout"
        assert running.executor.replace(one)

        async def quick() -> int:
            return 8

        assert isinstance(running.ends.of(running.submit(quick)), Completed)
        assert len(names("forebay-loop-")) == 2
        assert next_to_it.ended_at is None
        end()
        go_on.set()

        assert isinstance(running.ends.of(next_to_it), Completed)
        eventually(lambda: len(names("forebay-loop-")) == 1)
        assert one.lease not in running.ends.outcomes
        assert isinstance(running.ends.of(running.submit(quick)), Completed)


def test_loops_together_run_no_more_coroutines_than_there_are_places() -> None:
    started, waits, go_on = Event(), Event(), Event()
    at_once: list[int] = []
    most: list[int] = []

    async def hold() -> None:
        at_once.append(1)
        most.append(len(at_once))
        while not go_on.is_set():
            await asyncio.sleep(0.001)
        at_once.pop()

    with no_thread_stays(), waiting_in_c() as (wait, end), executor(EventLoopExecutor, 2) as running:

        async def other() -> None:
            waits.set()
            while not go_on.is_set():
                await asyncio.sleep(0.001)

        async def block() -> None:
            started.set()
            wait()

        next_to_it = running.submit(other)
        assert waits.wait(DEADLINE)
        one = running.submit(block)
        assert started.wait(DEADLINE)
        assert running.abandon(one) is not None
        assert running.executor.replace(one)
        jobs = [running.submit(hold) for _ in range(3)]
        eventually(lambda: most)
        end()
        go_on.set()

        assert all(isinstance(running.ends.of(job), Completed) for job in [next_to_it, *jobs])
        assert max(most) <= 2


def test_a_coroutine_that_swallows_its_cancellation_is_given_up_and_its_loop_goes_on() -> None:
    started, stop = Event(), Event()

    async def swallow() -> None:
        started.set()
        while not stop.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)

    async def quick() -> int:
        return 8

    with no_thread_stays(), executor(EventLoopExecutor, 1) as running:
        one = running.submit(swallow)
        assert started.wait(DEADLINE)
        assert running.abandon(one) is not None
        assert running.executor.replace(one)

        assert isinstance(running.ends.of(running.submit(quick)), Completed)
        assert len(names("forebay-loop-")) == 1
        stop.set()
        eventually(lambda: one.ended_at is not None)
        assert one.lease not in running.ends.outcomes


def test_a_loop_on_which_hooks_have_run_is_not_replaced_because_what_they_opened_belongs_to_it() -> None:
    started = Event()

    async def hook() -> int:
        return 5

    async def quick() -> int:
        return 8

    with no_thread_stays(), waiting_in_c() as (wait, end), executor(EventLoopExecutor, 1) as running:

        async def block() -> None:
            started.set()
            wait()

        assert isinstance(running.executor, EventLoopExecutor)
        assert running.executor.run(hook()) == 5
        one = running.submit(block)
        assert started.wait(DEADLINE)
        assert isinstance(running.abandon(one), Failed)
        assert not running.executor.replace(one)
        end()

        assert isinstance(running.ends.of(running.submit(quick)), Completed)
        assert len(names("forebay-loop-")) == 1
