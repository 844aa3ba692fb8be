"""Blocking tasks go to threads, coroutines to the event loop, which starts when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import QueueName
from forebay.worker.assigned_job import ExecutorKind
from forebay.worker.executors.executor_set import ExecutorSet
from forebay.worker.slots import Slots
from tests.worker.executors.isolated_worker import children
from tests.worker.support import Collected, no_thread_stays


@pytest.fixture
def app() -> Forebay:
    app = Forebay("memory://")

    @app.task(name="call", queue="calls")
    def call() -> None: ...

    @app.task(name="coroutine", queue="web")
    async def coroutine() -> None: ...

    @app.task(name="isolated", queue="heavy", isolated=True)
    def isolated() -> None: ...

    @app.task(name="isolated coroutine", queue="heavy", isolated=True)
    async def isolated_coroutine() -> None: ...

    @app.task(name="both", queue="both")
    def both() -> None: ...

    @app.task(name="both too", queue="both")
    async def both_too() -> None: ...

    return app


@pytest.fixture
def choosing(app: Forebay) -> Iterator[ExecutorSet]:
    choosing = ExecutorSet(app.registry, Slots(2, 5, 3), Collected(), SystemClock())
    with no_thread_stays():
        choosing.start()
        yield choosing
        choosing.close()


def test_a_task_goes_to_the_executor_for_its_sort(choosing: ExecutorSet) -> None:
    assert choosing.executor("call").kind is ExecutorKind.CALLS
    assert choosing.executor("coroutine").kind is ExecutorKind.COROUTINES
    assert choosing.executor("coroutine") is choosing.executor("both too")
    assert choosing.executor("isolated").kind is ExecutorKind.ISOLATED
    assert choosing.executor("isolated") is choosing.executor("isolated coroutine")


def test_an_unknown_task_goes_to_a_thread_which_holds_it(choosing: ExecutorSet) -> None:
    assert choosing.executor("not registered").kind is ExecutorKind.CALLS


def test_the_event_loop_starts_with_the_first_coroutine(choosing: ExecutorSet) -> None:
    before = [thread.name for thread in threading.enumerate()]
    choosing.executor("coroutine")

    assert "forebay-loop-0" not in before
    assert "forebay-loop-0" in [thread.name for thread in threading.enumerate()]


def test_threads_of_isolated_tasks_start_with_the_first_and_processes_with_its_first_job(
    choosing: ExecutorSet,
) -> None:
    before, family = [thread.name for thread in threading.enumerate()], children()
    choosing.executor("isolated")

    assert "forebay-isolated-0" not in before
    names = [thread.name for thread in threading.enumerate()]
    assert {f"forebay-isolated-{number}" for number in range(3)} <= set(names)
    assert children() == family


@pytest.mark.parametrize(
    ("queue", "sorts"),
    [
        ("calls", {ExecutorKind.CALLS}),
        ("web", {ExecutorKind.COROUTINES}),
        ("both", {ExecutorKind.CALLS, ExecutorKind.COROUTINES}),
        ("heavy", {ExecutorKind.ISOLATED}),
        ("of no task", {ExecutorKind.CALLS, ExecutorKind.COROUTINES, ExecutorKind.ISOLATED}),
    ],
)
def test_the_tasks_of_a_queue_say_what_it_holds(
    choosing: ExecutorSet, queue: str, sorts: set[ExecutorKind]
) -> None:
    assert choosing.queue_kinds(QueueName(queue)) == sorts


def test_a_program_without_tasks_needs_threads_only() -> None:
    nothing = ExecutorSet(Forebay("memory://").registry, Slots(1, 1), Collected(), SystemClock())

    assert nothing.queue_kinds(QueueName("default")) == {ExecutorKind.CALLS}


def test_a_program_serves_the_lanes_of_the_tasks_it_has_by_now() -> None:
    app = Forebay("memory://")
    nothing = ExecutorSet(app.registry, Slots(1, 1), Collected(), SystemClock())
    assert nothing.known_lanes() == {"payload:1"}

    @app.task(name="late")
    def late() -> None: ...

    assert nothing.known_lanes() == {"payload:1", "task:late"}
