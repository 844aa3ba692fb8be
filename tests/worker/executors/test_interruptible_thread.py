"""Regions in which a task thread is not interrupted: the interrupt waits, and comes at their end."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from threading import Condition, Event, RLock

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.deferred_interrupts import check_between_calls, set_interruptible, uninterrupted, wait_for
from forebay.domain.outcome import Completed, Interrupted
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.child_main import MainThread
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.task_invoker import Invoker, JobInterrupted
from tests.worker.support import DEADLINE, Collected, an_assignment, no_thread_stays


class Rig:
    """One task thread that runs `work`, and what interrupts it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.app, self.inbox = Forebay("memory://"), Collected()
        self.app.task(name="work")(work)
        self.app.task(name="next")(lambda: 1)
        self.executor = ThreadExecutor(1, Invoker(self.app.registry), self.inbox, SystemClock())

    def start(self, task: str = "work") -> Assignment:
        assignment = an_assignment(task)
        self.executor.submit(assignment)
        return assignment

    def interrupt(self, assignment: Assignment) -> None:
        self.executor.interrupt(assignment, JobInterrupted("enough"))

    def __enter__(self) -> Rig:
        self.executor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()


@pytest.fixture
def events() -> tuple[Event, Event]:
    return Event(), Event()


def _turn(rounds: int = 1_000) -> None:
    """Let an interrupt be heard, if one is on its way."""
    for _ in range(rounds):
        pass


def test_an_interrupt_waits_for_the_end_of_the_outermost_region(events: tuple[Event, Event]) -> None:
    inside, go = events
    seen: list[str] = []

    def work() -> None:
        with uninterrupted:
            with uninterrupted:
                inside.set()
                go.wait(DEADLINE)
                _turn()
                seen.append("inner")
            _turn()
            seen.append("outer")
        _turn()
        seen.append("after")

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        assert isinstance(rig.inbox.of(assignment), Interrupted)

    assert seen == ["inner", "outer"]


def test_an_interrupt_outside_of_a_region_is_heard_at_once(events: tuple[Event, Event]) -> None:
    inside, _ = events

    def work() -> None:
        with uninterrupted:
            pass
        inside.set()
        while True:
            pass

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        assert isinstance(rig.inbox.of(assignment), Interrupted)


def test_an_error_in_a_region_does_not_swallow_its_interrupt(events: tuple[Event, Event]) -> None:
    inside, go = events
    caught: list[BaseException] = []

    @uninterrupted
    def fails() -> None:
        inside.set()
        go.wait(DEADLINE)
        raise ValueError("no")

    def work() -> None:
        try:
            fails()
        except BaseException as exc:
            caught.append(exc)
            raise

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        assert isinstance(rig.inbox.of(assignment), Interrupted)

    assert isinstance(caught[0], JobInterrupted)
    assert isinstance(caught[0].__context__, ValueError)


def test_an_interrupt_that_was_deferred_and_not_raised_does_not_hit_the_next_job(
    events: tuple[Event, Event],
) -> None:
    inside, go = events

    def work() -> None:
        uninterrupted.__enter__()
        inside.set()
        go.wait(DEADLINE)

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        rig.inbox.of(assignment)
        after = an_assignment("next", attempt=2)
        rig.executor.submit(after)
        assert isinstance(rig.inbox.of(after), Completed)


def test_a_long_wait_under_a_condition_is_interrupted() -> None:
    change, inside = Condition(), Event()

    def work() -> None:
        inside.set()
        wait_for(change, lambda: False, None)

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        assert isinstance(rig.inbox.of(assignment), Interrupted)
    assert change.acquire(blocking=False)


def test_a_wait_under_a_condition_ends_when_it_is_so_and_when_the_time_is_up() -> None:
    wait_for(Condition(), lambda: True, None)
    wait_for(Condition(), lambda: False, 0.0)


def test_a_region_of_many_calls_hears_an_interrupt_between_two_of_them(events: tuple[Event, Event]) -> None:
    inside, go = events
    closed: list[bool] = []

    class Handle:
        calls = 0

        def call(self) -> None:
            self.calls += 1
            inside.set()
            go.wait(DEADLINE)
            _turn()

    handle = Handle()

    def work() -> None:
        with uninterrupted:
            try:
                check_between_calls(handle).call()
                check_between_calls(handle).call()
            finally:
                _turn()
                closed.append(True)

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        assert isinstance(rig.inbox.of(assignment), Interrupted)

    assert (handle.calls, closed) == (1, [True])


def test_a_task_that_is_stopped_while_it_logs_gives_back_the_lock_of_the_handler(
    events: tuple[Event, Event],
) -> None:
    inside, go = events
    logger = logging.getLogger("tests.hiding")

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            inside.set()
            go.wait(DEADLINE)
            _turn()
            output.append(record.getMessage())

    output: list[str] = []
    handler = Slow()
    logger.addHandler(handler)
    try:
        with no_thread_stays(), Rig(lambda: logger.error("a line")) as rig:
            assignment = rig.start()
            inside.wait(DEADLINE)
            rig.interrupt(assignment)
            go.set()
            assert isinstance(rig.inbox.of(assignment), Interrupted)
    finally:
        logger.removeHandler(handler)

    assert output == ["a line"]
    assert isinstance(handler.lock, type(RLock()))
    assert handler.lock.acquire(blocking=False)


def test_a_fork_keeps_an_interrupt_for_the_next_region(events: tuple[Event, Event]) -> None:
    inside, go = events
    seen: list[str] = []

    def work() -> None:
        uninterrupted.__enter__()
        inside.set()
        go.wait(DEADLINE)
        uninterrupted.leave_quietly()
        _turn()
        seen.append("forked")
        with uninterrupted:
            seen.append("in the next")
        seen.append("after it")

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        assert isinstance(rig.inbox.of(assignment), Interrupted)

    assert seen == ["forked", "in the next"]


def test_a_task_that_has_forked_can_be_interrupted_as_before(events: tuple[Event, Event]) -> None:
    inside, _ = events

    def work() -> None:
        rig.app.client.counts()
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        inside.set()
        while True:
            pass

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        assert inside.wait(DEADLINE)
        rig.interrupt(assignment)
        assert isinstance(rig.inbox.of(assignment), Interrupted)


def test_an_interrupt_that_hits_a_finalizer_is_raised_again(events: tuple[Event, Event]) -> None:
    inside, go = events

    class Finalized:
        def __del__(self) -> None:
            inside.set()
            go.wait(DEADLINE)

    def work() -> None:
        Finalized()
        while True:
            pass

    with no_thread_stays(), Rig(work) as rig:
        assignment = rig.start()
        assert inside.wait(DEADLINE)
        rig.interrupt(assignment)
        go.set()
        assert isinstance(rig.inbox.of(assignment), Interrupted)


@pytest.fixture
def interrupts() -> Iterator[list[BaseException]]:
    """This thread as that of an isolated process, and what the next look for an interrupt raises."""
    wanted: list[BaseException] = []

    def catch_up() -> None:
        if not thread.is_hidden and wanted:
            raise wanted.pop()

    thread = MainThread(catch_up)
    set_interruptible(thread)
    yield wanted
    set_interruptible(None)


def test_an_isolated_process_raises_at_the_end_of_a_region(interrupts: list[BaseException]) -> None:
    @uninterrupted
    def region() -> None:
        interrupts.append(JobInterrupted("enough"))
        with uninterrupted:
            uninterrupted.check()
        seen.append(len(interrupts))

    seen: list[int] = []
    with pytest.raises(JobInterrupted):
        region()
    assert (seen, interrupts) == ([1], [])


def test_an_isolated_process_raises_between_two_calls_of_a_region(interrupts: list[BaseException]) -> None:
    calls: list[int] = []

    class Handle:
        def call(self) -> None:
            calls.append(1)

    @uninterrupted
    def region() -> None:
        check_between_calls(Handle()).call()
        interrupts.append(JobInterrupted("enough"))
        check_between_calls(Handle()).call()
        calls.append(2)

    with pytest.raises(JobInterrupted):
        region()
    assert calls == [1, 1]


def test_an_isolated_process_keeps_an_interrupt_at_a_fork(interrupts: list[BaseException]) -> None:
    uninterrupted.__enter__()
    interrupts.append(JobInterrupted("enough"))
    uninterrupted.leave_quietly()
    with pytest.raises(JobInterrupted), uninterrupted:
        pass


# Longest last: a region that is entered and left as often as can be, with interrupts at random moments.
ROUNDS = 150


def test_no_interrupt_is_heard_within_a_region_however_it_is_aimed() -> None:
    usual = sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(0.000_001)
    heard_inside: list[str] = []
    lock, began = RLock(), []

    def work() -> None:
        began.append(1)
        while True:
            is_inside = False
            try:
                with uninterrupted:
                    is_inside = True
                    lock.acquire()
                    lock.release()
                    is_inside = False
            except JobInterrupted:
                if is_inside:
                    heard_inside.append("inside")
                raise

    try:
        with no_thread_stays(), Rig(work) as rig:
            for number in range(1, ROUNDS + 1):
                assignment = an_assignment("work", attempt=number)
                rig.executor.submit(assignment)
                while len(began) < number:
                    pass
                rig.interrupt(assignment)
                assert isinstance(rig.inbox.of(assignment), Interrupted)
    finally:
        sys.setswitchinterval(usual)
        gc.enable()

    assert not heard_inside
    assert lock.acquire(blocking=False)
