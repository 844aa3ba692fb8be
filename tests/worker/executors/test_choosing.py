"""Blocking tasks go to threads, coroutines to the event loop, which starts when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import QueueName
from forebay.worker.executors.choosing import Choosing
from forebay.worker.slots import Slots
from tests.worker.support import Collected, no_thread_stays


@pytest.fixture
def app() -> Forebay:
    app = Forebay("memory://")

    @app.task(name="call", queue="calls")
    def call() -> None: ...

    @app.task(name="coroutine", queue="web")
    async def coroutine() -> None: ...

    @app.task(name="both", queue="both")
    def both() -> None: ...

    @app.task(name="both too", queue="both")
    async def both_too() -> None: ...

    return app


@pytest.fixture
def choosing(app: Forebay) -> Iterator[Choosing]:
    choosing = Choosing(app.registry, Slots(2, 5), Collected(), SystemClock())
    with no_thread_stays():
        choosing.start()
        yield choosing
        choosing.close()


def test_a_task_goes_to_the_executor_for_its_sort(choosing: Choosing) -> None:
    assert not choosing.executor("call").is_async
    assert choosing.executor("coroutine").is_async
    assert choosing.executor("coroutine") is choosing.executor("both too")


def test_an_unknown_task_goes_to_a_thread_which_holds_it(choosing: Choosing) -> None:
    assert not choosing.executor("nobody knows").is_async


def test_the_event_loop_starts_with_the_first_coroutine(choosing: Choosing) -> None:
    before = [thread.name for thread in threading.enumerate()]
    choosing.executor("coroutine")

    assert "forebay-loop" not in before
    assert "forebay-loop" in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("queue", "sorts"),
    [("calls", {False}), ("web", {True}), ("both", {False, True}), ("of no task", {False, True})],
)
def test_the_tasks_of_a_queue_say_what_it_holds(choosing: Choosing, queue: str, sorts: set[bool]) -> None:
    assert choosing.sorts(QueueName(queue)) == sorts


def test_a_program_without_tasks_needs_threads_only() -> None:
    nothing = Choosing(Forebay("memory://").registry, Slots(1, 1), Collected(), SystemClock())

    assert nothing.sorts(QueueName("default")) == {False}


def test_a_program_passes_the_gates_of_the_tasks_it_has_by_now() -> None:
    app = Forebay("memory://")
    nothing = Choosing(app.registry, Slots(1, 1), Collected(), SystemClock())
    assert nothing.gates() == {"payload:1"}

    @app.task(name="late")
    def late() -> None: ...

    assert nothing.gates() == {"payload:1", "task:late"}
