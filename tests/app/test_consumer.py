"""The pull API: claim and settle from a loop of one's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob, JobFailed
from forebay.app.consumer import Consumer, arguments
from forebay.domain.job import Job
from forebay.domain.lifecycle import JobState
from forebay.testing.clock import ManualClock


def send(to: str, copies: int = 1) -> Any: ...


@pytest.fixture
def consumer(app: Forebay) -> Iterator[Consumer]:
    consumer = app.consumer()
    yield consumer
    consumer.close()
    consumer.close()


@pytest.fixture
def job(app: Forebay, consumer: Consumer) -> Job:
    """A job that the consumer has claimed."""
    app.task(name="send")(send).enqueue("ada", copies=2)
    [job] = consumer.claim()
    return job


@pytest.mark.shows("R-SDK-12")
def test_a_claimed_job_brings_its_arguments_and_is_completed_with_a_result(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    assert arguments(job) == (("ada",), {"copies": 2})
    assert consumer.complete(job, {"sent": 2}) is True

    assert app.job(job.id).result(timeout=0) == {"sent": 2}


def test_jobs_are_claimed_in_order_from_one_queue_up_to_the_number_asked(
    app: Forebay, consumer: Consumer
) -> None:
    task = app.task(name="send")(send)
    low, high, more = (task.using(queue="mail", priority=n).enqueue("ada") for n in (1, 9, 5))
    task.enqueue("elsewhere")

    jobs = consumer.claim(2, queue="mail")

    assert [job.id for job in jobs] == [high.id, more.id]
    assert low.refresh().state is JobState.PENDING


ENDINGS: list[Any] = [
    (lambda consumer, job: consumer.fail(job, ValueError("it broke")), JobState.RETRYING, 1),
    (lambda consumer, job: consumer.fail(job, "it broke", after=60), JobState.RETRYING, 1),
    (lambda consumer, job: consumer.discard(job, "useless"), JobState.DEAD, 1),
    (lambda consumer, job: consumer.snooze(job, 60), JobState.SCHEDULED, 0),
    (lambda consumer, job: consumer.release(job), JobState.PENDING, 0),
]


@pytest.mark.parametrize(("end", "state", "failures"), ENDINGS)
def test_a_job_may_end_otherwise(
    app: Forebay,
    consumer: Consumer,
    job: Job,
    end: Callable[[Consumer, Job], bool],
    state: JobState,
    failures: int,
) -> None:
    assert end(consumer, job) is True

    record = app.job(job.id).refresh()
    assert (record.state, record.failures) == (state, failures)


def test_an_attempt_that_failed_is_tried_again_after_a_time_of_ones_own(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    consumer.fail(job, "it broke", after=90)

    assert app.job(job.id).refresh().run_at == clock.now_ms() + 90_000


def test_a_discarded_job_has_no_result(app: Forebay, consumer: Consumer, job: Job) -> None:
    consumer.discard(job, LookupError("nobody there"))

    with pytest.raises(JobFailed, match="nobody there"):
        app.job(job.id).result(timeout=0)


@pytest.mark.shows("R-DONE-19")
def test_what_a_consumer_says_about_a_lost_job_is_refused(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    app.client.cancel([job.id], force=True)

    assert consumer.complete(job, 1) is False
    assert consumer.renew([job]) == [False]
    assert app.job(job.id).refresh().state is JobState.DEAD


def test_a_lease_can_be_asked_for_and_renewed(app: Forebay, consumer: Consumer, clock: ManualClock) -> None:
    app.task(name="send")(send).enqueue("ada")
    [job] = consumer.claim(lease=10)
    clock.advance(seconds=5)

    assert consumer.renew([job], lease=60) == [True]
    assert app.job(job.id).refresh().lease_expires_at == clock.now_ms() + 60_000


def test_a_length_of_time_that_is_none_is_refused(consumer: Consumer, job: Job) -> None:
    wrong: Any = "soon"

    with pytest.raises(InvalidJob, match="delay must be a timedelta"):
        consumer.snooze(job, wrong)


@pytest.mark.parametrize("most", [1, 5])
def test_without_any_worker_jobs_that_are_due_later_are_found(
    app: Forebay, consumer: Consumer, clock: ManualClock, most: int
) -> None:
    handle = app.task(name="send")(send).using(delay=60).enqueue("ada")

    before = consumer.claim(most)
    clock.advance(seconds=61)
    after = consumer.claim(most)

    assert (before, [job.id for job in after]) == ([], [handle.id])


# ------------------------------------------------------------------ in one's own transaction


def test_a_job_comes_true_with_the_callers_transaction_or_not_at_all(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with Forebay(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="send")(send)
        task.enqueue("first")

        with connection:
            connection.execute("create table orders (name text)")
            connection.execute("insert into orders values ('tea')")
            [kept] = app.enqueue_within(connection, [task.job("ada")])
        connection.execute("insert into orders values ('milk')")
        [dropped] = app.enqueue_within(connection, [task.job("grace")])
        connection.rollback()

        assert kept.refresh().state is JobState.PENDING
        assert app.client.job(dropped.id) is None
    connection.close()


def test_a_store_that_has_no_transactions_of_ones_own_says_so() -> None:
    app = Forebay("memory://")

    with pytest.raises(ConfigError):
        app.enqueue_within(object(), [app.task(name="send")(send).job("ada")])
