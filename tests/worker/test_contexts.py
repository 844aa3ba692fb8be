"""What a job sets in context variables is not seen by the next one on the same thread or loop."""

from __future__ import annotations

import asyncio
import decimal
import logging
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from forebay import Forebay, current_job
from tests.worker.support import DEADLINE

tenant: ContextVar[str] = ContextVar("tenant", default="absent")

JOBS = 30


def run_on(app: Forebay, kind: str, func: Callable[[int], Any]) -> list[Any]:
    """The results of jobs that run one after the other in one place."""

    async def func_async(number: int) -> Any:
        await asyncio.sleep(0)
        return func(number)

    task = app.task(name="task")(func_async if kind == "loop" else func)
    with app.run_worker(threads=1, coroutines=1):
        jobs = app.enqueue_many([task.job(number) for number in range(JOBS)])
        return [job.result(DEADLINE) for job in jobs]


@pytest.fixture(params=["thread", "loop"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_a_variable_that_one_job_sets_is_not_seen_by_the_next(app: Forebay, kind: str) -> None:
    def look(number: int) -> str:
        seen = tenant.get()
        if number % 3 == 0:
            tenant.set(f"customer {number}")
        return seen

    assert set(run_on(app, kind, look)) == {"absent"}


def test_a_precision_that_one_job_sets_is_not_that_of_the_next(app: Forebay, kind: str) -> None:
    usual = decimal.getcontext().prec

    def look(number: int) -> int:
        seen = decimal.getcontext().prec
        decimal.getcontext().prec = 5
        return seen

    assert set(run_on(app, kind, look)) == {usual}


def test_fields_that_one_job_gives_its_loggers_are_not_in_the_lines_of_the_next(
    app: Forebay, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    class WithTenant(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            record.tenant = tenant.get()
            return True

    logger = logging.getLogger("tests.tenants")
    logger.addFilter(WithTenant())

    def look(number: int) -> None:
        logger.warning("before")
        tenant.set(f"customer {number}")
        logger.warning("after")

    run_on(app, kind, look)

    lines = [record for record in caplog.records if record.name == "tests.tenants"]
    assert {line.__dict__["tenant"] for line in lines if line.message == "before"} == {"absent"}
    assert len({line.__dict__["tenant"] for line in lines if line.message == "after"}) == JOBS


def test_every_job_has_itself_for_its_current_job(app: Forebay, kind: str) -> None:
    def look(number: int) -> bool:
        tenant.set("another")
        return current_job().job.payload.endswith(b"}") and copy_context()[tenant] == "another"

    assert set(run_on(app, kind, look)) == {True}


def spoil(fails: bool) -> None:
    tenant.set("spoiled")
    if fails:
        raise ValueError
    while True:
        pass


async def spoil_async(fails: bool) -> None:
    tenant.set("spoiled")
    if fails:
        raise ValueError
    await asyncio.Event().wait()


def look_here() -> str:
    return tenant.get()


async def look_async() -> str:
    return tenant.get()


@pytest.mark.parametrize("fails", [True, False])
def test_the_next_job_sees_nothing_also_when_the_one_before_failed_or_ran_too_long(
    app: Forebay, kind: str, fails: bool
) -> None:
    spoiler = app.task(name="spoil", retries=0, timeout=0.1)(spoil_async if kind == "loop" else spoil)
    look = app.task(name="look")(look_async if kind == "loop" else look_here)

    with app.run_worker(threads=1, coroutines=1):
        spoiler.enqueue(fails).wait(DEADLINE)

        assert look.enqueue().result(DEADLINE) == "absent"


def test_tasks_that_a_coroutine_starts_inherit_its_variables_and_its_job(app: Forebay) -> None:
    async def child() -> list[str]:
        return [tenant.get(), current_job().id]

    @app.task(name="parent")
    async def parent() -> list[str]:
        tenant.set("mine")
        return await asyncio.create_task(child())

    with app.run_worker():
        job = parent.enqueue()
        assert job.result(DEADLINE) == ["mine", job.id]


def test_what_the_program_has_set_around_its_worker_is_not_seen_by_jobs(app: Forebay, kind: str) -> None:
    def run() -> list[Any]:
        tenant.set("the program")
        return run_on(app, kind, lambda number: tenant.get())

    assert set(copy_context().run(run)) == {"absent"}


def test_coroutines_that_set_variables_go_on_running_side_by_side(app: Forebay) -> None:
    here = 0

    @app.task(name="meet")
    async def meet(number: int) -> str:
        nonlocal here
        tenant.set(f"customer {number}")
        here += 1
        while here < 10 * (number // 10 + 1):  # ten at a time
            await asyncio.sleep(0.001)
        return tenant.get()

    with app.run_worker(coroutines=10):
        jobs = app.enqueue_many([meet.job(number) for number in range(30)])

        assert [job.result(DEADLINE) for job in jobs] == [f"customer {number}" for number in range(30)]
