"""Wrappers around task calls, and what is made with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import pytest

from forebay import ConfigError, Discard, Forebay, current_job
from forebay.app.current_job import set_current_job
from forebay.app.job_context import JobContext
from forebay.app.logging_integration import JobLogFilter, capture_logs
from forebay.app.middleware import wrap_call
from forebay.stores.contract.store import Store
from tests.stores.support import claim, new_job


@pytest.fixture
def context(store: Store) -> JobContext:
    store.insert([new_job()])
    [job] = claim(store)
    return JobContext(job)


def layer(name: str, order: list[str]) -> Callable[[JobContext], Any]:
    @contextmanager
    def around(context: JobContext) -> Iterator[None]:
        order.append(f"{name} in")
        try:
            yield
        except BaseException as exc:
            order.append(f"{name} saw {type(exc).__name__}")
            raise
        order.append(f"{name} out")

    return around


def test_the_first_layer_is_the_outermost(context: JobContext) -> None:
    order: list[str] = []
    call = wrap_call(
        lambda: order.append("task"), [layer("a", order), layer("b", order)], context, is_async=False
    )

    call()

    assert order == ["a in", "b in", "task", "b out", "a out"]


@pytest.fixture(params=["thread", "loop"])
def run(request: pytest.FixtureRequest, live_app: Forebay) -> Callable[[Callable[[], Any]], Any]:
    """Runs a function as a blocking task or as a coroutine task, and gives its job's final record."""

    def run(func: Callable[[], Any]) -> Any:
        async def func_async() -> Any:
            return func()

        task = live_app.task(name="t", retries=0)(func_async if request.param == "loop" else func)
        with live_app.run_worker(threads=1):
            return task.enqueue().wait(timeout=120)

    return run


Run = Callable[[Callable[[], Any]], Any]


def test_a_layer_sees_the_job_and_what_its_task_raises(live_app: Forebay, run: Run) -> None:
    order: list[str] = []
    live_app.middleware(layer("a", order))

    def fail() -> None:
        order.append(current_job().job.task)
        raise KeyError("gone")

    job = run(fail)

    assert order == ["a in", "t", "a saw KeyError"]
    assert job.reason == "KeyError: 'gone'"


def test_a_layer_may_replace_an_error(live_app: Forebay, run: Run) -> None:
    @live_app.middleware
    @contextmanager
    def translate(_: JobContext) -> Iterator[None]:
        try:
            yield
        except KeyError as exc:
            raise OSError("nothing there") from exc

    def fail() -> None:
        raise KeyError("gone")

    assert run(fail).reason == "OSError: nothing there"


def test_a_layer_may_end_a_job_before_its_task_is_called(live_app: Forebay, run: Run) -> None:
    called: list[int] = []

    @live_app.middleware
    @contextmanager
    def refuse(context: JobContext) -> Iterator[None]:
        if context.job.task == "t":
            raise Discard("no t today")
        yield

    job = run(lambda: called.append(1))

    assert (job.state, job.reason, called) == ("dead", "Discard: no t today", [])


def test_without_layers_a_task_is_called_as_it_is(live_app: Forebay, run: Run) -> None:
    assert run(lambda: None).state == "completed"


def test_what_a_task_logs_is_kept_with_its_job(live_app: Forebay, run: Run) -> None:
    logger = logging.getLogger("tests.kept")
    live_app.middleware(capture_logs("warning"))

    def speak() -> None:
        logger.warning("%s is low", "oil")
        logger.info("all else is well")

    job = run(speak)
    logger.warning("logged outside of jobs")

    lines = live_app.job(job.id).log_lines()
    assert [(line.level, line.text, line.attempt) for line in lines] == [("WARNING", "oil is low", 1)]


@pytest.mark.parametrize("level", ["loud", None, True, 1.5])
def test_a_level_that_logging_does_not_know_is_refused(level: Any) -> None:
    with pytest.raises(ConfigError, match="level must be one of logging's, by name or number, not "):
        capture_logs(level)


def test_lines_that_are_logged_in_a_job_say_in_which(context: JobContext) -> None:
    def fields() -> list[object]:
        record = logging.makeLogRecord({"msg": "hi"})
        assert JobLogFilter().filter(record)
        return [getattr(record, name) for name in ("job_id", "task", "queue", "attempt", "in_job")]

    def in_job() -> list[object]:
        set_current_job(context)
        return fields()

    assert copy_context().run(fields) == [None, None, None, None, ""]
    assert copy_context().run(in_job) == [context.id, "t", "default", 1, f" [t {context.id} #1]"]


def test_fields_that_a_line_has_already_are_left_alone() -> None:
    record = logging.makeLogRecord({"msg": "hi", "task": "mine"})

    JobLogFilter().filter(record)

    assert record.__dict__["task"] == "mine"
