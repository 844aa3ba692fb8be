"""What a task may know about its own attempt."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from forebay import Forebay, current_job
from forebay.app.context import JobContext, Token, enter
from forebay.stores.protocol import Store
from tests.stores.support import WORKER, claim, new_job


@pytest.fixture
def context(store: Store) -> JobContext:
    store.insert([new_job(correlation_id="req-1")])
    [job] = claim(store)
    return JobContext(job)


@pytest.mark.shows("R-JOB-33", "R-IDEM-07")
def test_a_context_tells_job_attempt_and_token(context: JobContext) -> None:
    assert (context.id, context.attempt, context.token) == (context.job.id, 1, Token(1, WORKER))


def test_of_two_tokens_of_a_job_the_later_attempt_is_greater() -> None:
    assert Token(2, WORKER) > Token(1, WORKER)


def test_a_context_hears_of_cancelling_and_of_a_lost_lease(context: JobContext) -> None:
    before = (context.is_cancelled, context.cancel_reason, context.is_lost)

    context.tell_cancelled("not needed")
    context.tell_lost()

    assert before == (False, None, False)
    assert (context.is_cancelled, context.cancel_reason, context.is_lost) == (True, "not needed", True)


def test_lines_of_the_jobs_logger_carry_its_fields(
    context: JobContext, caplog: pytest.LogCaptureFixture
) -> None:
    context.logger.warning("half way")

    [line] = caplog.records
    fields = ("job_id", "task", "queue", "attempt", "correlation_id")
    assert [getattr(line, name) for name in fields] == [context.id, "t", "default", 1, "req-1"]


def test_outside_of_a_task_there_is_no_current_job() -> None:
    with pytest.raises(LookupError, match=r"no job is running here; current_job\(\) works inside a task"):
        copy_context().run(current_job)


def test_the_current_job_is_the_one_that_was_entered(context: JobContext) -> None:
    def run() -> JobContext:
        enter(context)
        return current_job()

    assert copy_context().run(run) is context


@pytest.mark.shows("R-JOB-33")
def test_a_running_task_sees_its_own_job(live_app: Forebay) -> None:
    def who() -> list[object]:
        job = current_job()
        return [job.id, job.attempt, job.is_cancelled, job.is_lost]

    async def who_async() -> list[object]:
        return who()

    tasks = [live_app.task(name="who")(who), live_app.task(name="who_async")(who_async)]
    with live_app.working(threads=1):
        handles = [task.enqueue() for task in tasks]
        answers = [handle.result(timeout=30) for handle in handles]

    assert answers == [[handle.id, 1, False, False] for handle in handles]
