"""Blocking tasks on threads: as many at once as there are threads, and each can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass
from threading import Barrier, Event
from typing import Any

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.domain.outcome import Completed, Failed, Interrupted
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.task_invoker import Invoker, JobInterrupted, JobTimeout
from tests.worker.support import DEADLINE, Collected, an_assignment, no_thread_stays, waiting_in_c


class Running:
    """An executor with tasks of the test's own."""

    def __init__(self, executor: ThreadExecutor, app: Forebay, ends: Collected) -> None:
        self.executor = executor
        self.ends = ends
        self._app = app
        self._count = 0

    def submit(self, func: Callable[..., Any], *args: Any) -> Assignment:
        self._count += 1
        name = f"task-{self._count}"
        self._app.task(name=name)(func)
        one = an_assignment(name, *args, id=JobId(name))
        self.executor.submit(one)
        return one


@contextmanager
def threads(count: int) -> Iterator[Running]:
    app, ends = Forebay("memory://"), Collected()
    executor = ThreadExecutor(count, Invoker(app.registry), ends, SystemClock())
    with no_thread_stays():
        executor.start()
        try:
            yield Running(executor, app, ends)
        finally:
            executor.close()


begun = Event()


@dataclass
class Endless:
    """A record that cannot be made from what was stored."""

    number: int
    is_made_here: InitVar[bool] = False

    def __post_init__(self, is_made_here: bool) -> None:
        if not is_made_here:
            spin(begun)


def spin(started: Event) -> None:
    started.set()
    while True:
        pass


@pytest.mark.shows("R-WORK-10")
def test_as_many_jobs_run_at_once_as_there_are_threads() -> None:
    barrier = Barrier(6)

    with threads(6) as running:
        jobs = [running.submit(lambda: barrier.wait(DEADLINE) is not None) for _ in range(6)]

        assert [type(running.ends.of(one)) for one in jobs] == [Completed] * 6


def test_no_more_jobs_run_at_once_than_there_are_threads() -> None:
    release, begun = Event(), Barrier(3)

    def hold() -> None:
        begun.wait(DEADLINE)
        release.wait(DEADLINE)

    with threads(2) as running:
        first = [running.submit(hold) for _ in range(2)]
        begun.wait(DEADLINE)
        third = running.submit(lambda: None)
        assert third.started_at is None
        release.set()

        assert isinstance(running.ends.of(third), Completed)
        assert all(isinstance(running.ends.of(one), Completed) for one in first)


def test_a_job_that_was_handed_back_is_not_run() -> None:
    with threads(1) as running:
        release = Event()
        running.submit(lambda: release.wait(DEADLINE))
        handed_back = running.submit(lambda: None)
        assert handed_back.acquire()
        last = running.submit(lambda: None)
        release.set()

        running.ends.of(last)
        assert handed_back.started_at is None
        assert running.ends.puts == 2


def test_a_job_with_too_little_left_of_its_lease_is_handed_back_instead_of_started() -> None:
    with threads(1) as running:
        release = Event()
        running.submit(lambda: release.wait(DEADLINE))
        late = running.submit(lambda: None)
        late.start_by = 0.0
        release.set()

        assert running.ends.of(late) == Interrupted(started=False)
        assert late.started_at is None


@pytest.mark.shows("R-WORK-18", "R-WORK-19")
def test_a_timeout_interrupts_a_task_that_never_ends_and_frees_its_thread() -> None:
    started = Event()

    with threads(1) as running:
        endless = running.submit(lambda: spin(started))
        assert started.wait(DEADLINE)
        running.executor.interrupt(endless, JobTimeout("ran longer than 1 s"))

        outcome = running.ends.of(endless)
        assert isinstance(outcome, Failed)
        assert (outcome.error.type, outcome.error.message) == ("Timeout", "ran longer than 1 s")
        assert isinstance(running.ends.of(running.submit(lambda: 7)), Completed)


def test_an_interrupt_passes_through_except_exception() -> None:
    started = Event()

    def stubborn() -> None:
        while True:
            with suppress(Exception):
                spin(started)

    with threads(1) as running:
        one = running.submit(stubborn)
        assert started.wait(DEADLINE)
        running.executor.interrupt(one, JobInterrupted())

        assert running.ends.of(one) == Interrupted()


@pytest.mark.shows("R-WORK-19")
def test_a_job_that_waits_in_c_is_reported_when_it_comes_back_and_its_thread_not_used_before() -> None:
    started = Event()

    with waiting_in_c() as (wait, end), threads(1) as running:

        def wait_in_c() -> None:
            started.set()
            wait()

        one = running.submit(wait_in_c)
        assert started.wait(DEADLINE)
        running.executor.interrupt(one, JobTimeout("ran longer than 0.1 s"))
        behind = running.submit(lambda: None)
        came_back_at = SystemClock().monotonic()
        end()

        outcome = running.ends.of(one)
        running.ends.of(behind)

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "Timeout"
    assert (behind.started_at or 0) >= came_back_at


def test_a_task_that_swallows_an_interrupt_can_be_interrupted_again_and_keeps_the_first_reason() -> None:
    started, again = Event(), Event()

    def swallow() -> None:
        try:
            spin(started)
        except JobTimeout:
            spin(again)

    with threads(1) as running:
        one = running.submit(swallow)
        assert started.wait(DEADLINE)
        running.executor.interrupt(one, JobTimeout("too long"))
        assert again.wait(DEADLINE)
        running.executor.interrupt(one, JobInterrupted("the worker stops"))

        outcome = running.ends.of(one)
        assert isinstance(outcome, Failed)
        assert outcome.error.message == "too long"


@pytest.mark.shows("R-WORK-19")
@pytest.mark.parametrize(
    ("reason", "kind"), [(JobTimeout("too long"), Failed), (JobInterrupted("no need"), Completed)]
)
def test_what_a_task_returns_after_its_time_was_over_is_dropped(reason: BaseException, kind: type) -> None:
    started = Event()

    def swallow() -> int:
        with suppress(JobTimeout, JobInterrupted):
            spin(started)
        return 7

    with threads(1) as running:
        one = running.submit(swallow)
        assert started.wait(DEADLINE)
        running.executor.interrupt(one, reason)

        assert isinstance(running.ends.of(one), kind)


@pytest.mark.parametrize(
    ("reason", "kind"), [(JobTimeout("too long"), Failed), (JobInterrupted(), Interrupted)]
)
def test_code_that_makes_the_arguments_is_interrupted_like_the_task(
    reason: BaseException, kind: type
) -> None:
    begun.clear()
    is_called = Event()

    def take(order: Endless) -> None:
        is_called.set()

    with threads(1) as running:
        one = running.submit(take, Endless(1, is_made_here=True))
        assert begun.wait(DEADLINE)
        assert one.started_at is not None
        running.executor.interrupt(one, reason)

        outcome = running.ends.of(one)
        assert isinstance(outcome, kind)
        assert not isinstance(outcome, Failed) or outcome.error.type == "Timeout"
        assert not is_called.is_set()
        assert isinstance(running.ends.of(running.submit(lambda: 7)), Completed)


def test_an_interrupt_before_the_start_or_after_the_end_does_nothing() -> None:
    with threads(1) as running:
        release = Event()
        running.submit(lambda: release.wait(DEADLINE))
        one = running.submit(lambda: 7)
        running.executor.interrupt(one, JobTimeout())
        release.set()
        assert isinstance(running.ends.of(one), Completed)
        running.executor.interrupt(one, JobTimeout())

        assert isinstance(running.ends.of(running.submit(lambda: 7)), Completed)
        assert one.stopped_by is None


def test_an_interrupt_after_the_call_does_not_cut_short_the_writing_of_its_outcome() -> None:
    ended, go_on = Event(), Event()

    class Slow(Exception):
        def __str__(self) -> str:
            ended.set()
            go_on.wait(DEADLINE)
            return "slowly"

    def fail() -> None:
        raise Slow

    with threads(1) as running:
        one = running.submit(fail)
        assert ended.wait(DEADLINE)
        running.executor.interrupt(one, JobTimeout("too long"))
        go_on.set()

        outcome = running.ends.of(one)
        assert isinstance(outcome, Failed)
        assert outcome.error.message == "slowly"
        assert isinstance(running.ends.of(running.submit(lambda: 7)), Completed)


def test_times_are_taken_from_the_clock_that_the_worker_was_given() -> None:
    with threads(1) as running:
        one = running.submit(lambda: None)
        running.ends.of(one)

    assert one.started_at is not None
    assert one.ended_at is not None
    assert one.claimed_at <= one.started_at <= one.ended_at
