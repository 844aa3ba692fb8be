"""Calls of tasks without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.outcome import Outcome
from forebay.worker.task_invoker import Invoker
from tests.worker.support import an_assignment, called

Run = Callable[..., Outcome]
Runner = Callable[[Invoker, Any], Outcome]


def on_a_loop(invoke: Invoker, assignment: Any) -> Outcome:
    return asyncio.run(invoke.run_coroutine(assignment))


@pytest.fixture(params=[called, on_a_loop], ids=["thread", "loop"])
def runner(request: pytest.FixtureRequest) -> Runner:
    found: Runner = request.param
    return found


@pytest.fixture
def raising(runner: Runner) -> Run:
    """Runs a task that raises this, and tells what becomes of it."""

    def run(error: BaseException, **options: Any) -> Outcome:
        app = Forebay("memory://")

        def fail() -> None:
            raise error

        async def fail_async() -> None:
            raise error

        app.task(name="fail", **options)(fail_async if runner is on_a_loop else fail)
        return runner(Invoker(app.registry), an_assignment("fail"))

    return run


def run_here(func: Callable[..., Any], *args: Any, payload: bytes | None = None) -> Outcome:
    app = Forebay("memory://")
    app.task(name="task")(func)
    changes = {} if payload is None else {"payload": payload}
    return called(Invoker(app.registry), an_assignment("task", *args, **changes))
