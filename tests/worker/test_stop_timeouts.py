"""A worker stops in order, whatever runs."""

from __future__ import annotations

import asyncio
import logging
from threading import Event, Thread
from typing import Any

import pytest

from forebay import Forebay, current_job
from forebay.domain.job_states import JobState
from forebay.worker.worker import Worker
from tests.worker.support import DEADLINE, eventually, no_thread_stays, waiting_in_c


def worker_of(app: Forebay, **options: Any) -> Worker:
    return Worker(app.engine, app.registry, **options)


@pytest.mark.shows("R-WORK-34")
def test_stopping_twice_or_before_the_start_is_fine(app: Forebay) -> None:
    with no_thread_stays():
        worker = worker_of(app)
        worker.stop()
        worker.start()
        worker.stop()
        worker.stop()


def test_a_stop_from_two_threads_at_once_is_fine(app: Forebay) -> None:
    worker = worker_of(app)
    worker.start()
    stops = [Thread(target=worker.stop, daemon=True) for _ in range(2)]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join(DEADLINE)

    assert not any(stop.is_alive() for stop in stops)


@pytest.mark.shows("R-WORK-36")
def test_a_stop_lets_running_jobs_end_and_hands_back_what_was_not_started(app: Forebay) -> None:
    started, go_on = Event(), Event()

    @app.task(name="hold")
    def hold() -> int:
        started.set()
        go_on.wait(DEADLINE)
        return 7

    worker = worker_of(app, threads=1)
    worker.start()
    jobs = app.enqueue_many([hold.job() for _ in range(5)])
    assert started.wait(DEADLINE)
    stop = Thread(target=worker.stop, daemon=True)
    stop.start()
    eventually(worker._stopping.is_set)
    go_on.set()
    stop.join(DEADLINE)

    records = [job.refresh() for job in jobs]
    assert [job.state for job in records] == [JobState.COMPLETED] + [JobState.PENDING] * 4
    assert {(job.failures, job.crashes) for job in records} == {(0, 0)}


def test_a_stop_hands_back_what_waits_for_a_thread(app: Forebay) -> None:
    started, go_on = Event(), Event()

    @app.task(name="hold")
    def hold() -> None:
        started.set()
        go_on.wait(DEADLINE)

    worker = worker_of(app, threads=2)
    worker._executors._threads._missing -= 1  # two slots, one thread: the second job waits in the executor
    worker.start()
    jobs = app.enqueue_many([hold.job() for _ in range(2)])
    assert started.wait(DEADLINE)
    eventually(lambda: jobs[1].refresh().attempt == 1)
    stop = Thread(target=worker.stop, daemon=True)
    stop.start()
    eventually(lambda: jobs[1].refresh().state is JobState.PENDING)
    go_on.set()
    stop.join(DEADLINE)

    assert jobs[0].refresh().state is JobState.COMPLETED
    assert (jobs[1].refresh().failures, jobs[1].refresh().crashes) == (0, 0)


def test_a_job_that_was_handed_back_unstarted_has_run_number_one_in_its_first_run(app: Forebay) -> None:
    started, go_on = Event(), Event()

    @app.task(name="hold")
    def hold() -> list[int]:
        started.set()
        go_on.wait(DEADLINE)
        return [current_job().attempt, current_job().run_number]

    worker = worker_of(app, threads=2)
    worker._executors._threads._missing -= 1  # two slots, one thread: the second job waits in the executor
    worker.start()
    jobs = app.enqueue_many([hold.job() for _ in range(2)])
    assert started.wait(DEADLINE)
    eventually(lambda: jobs[1].refresh().attempt == 1)
    stop = Thread(target=worker.stop, daemon=True)
    stop.start()
    eventually(lambda: jobs[1].refresh().state is JobState.PENDING)
    go_on.set()
    stop.join(DEADLINE)
    with app.run_worker(threads=1):
        assert [job.result(timeout=DEADLINE) for job in jobs] == [[1, 1], [2, 1]]


@pytest.mark.shows("R-WORK-31", "R-EDGE-77")
def test_a_job_that_does_not_end_in_time_is_interrupted_and_handed_back(app: Forebay) -> None:
    started = Event()

    @app.task(name="endless")
    def endless() -> None:
        started.set()
        while True:
            pass

    with no_thread_stays():
        worker = worker_of(app, threads=1)
        worker.start()
        job = endless.enqueue()
        assert started.wait(DEADLINE)
        worker.stop(drain=0.1)

    record = job.refresh()
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)


def test_a_coroutine_that_does_not_end_in_time_is_cancelled_and_handed_back(app: Forebay) -> None:
    started = Event()

    @app.task(name="endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    with no_thread_stays():
        worker = worker_of(app)
        worker.start()
        job = endless.enqueue()
        assert started.wait(DEADLINE)
        worker.stop(drain=0.1)

    assert (job.refresh().state, job.refresh().failures) == (JobState.PENDING, 0)


def test_a_job_that_cannot_be_stopped_is_reported_and_left_to_the_sweep(
    app: Forebay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.worker.worker.INTERRUPT_SECONDS", 0.1)
    started = Event()

    with no_thread_stays(), waiting_in_c() as (wait, end), caplog.at_level(logging.ERROR):

        @app.task(name="deaf")
        def deaf() -> None:
            started.set()
            wait()

        worker = worker_of(app, threads=1)
        worker.start()
        job = deaf.enqueue()
        assert started.wait(DEADLINE)
        worker.stop(drain=0.0)
        state = job.refresh().state
        end()

    assert state is JobState.RUNNING
    assert "did not stop" in caplog.text
