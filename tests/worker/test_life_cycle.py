"""A worker's life when all goes well, and when things go wrong: nothing stays behind."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, InvalidJob, StoreError, StoreUnavailable
from forebay.stores.contract.store import Store
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.worker.support import DEADLINE, eventually, no_thread_stays


def worker_of(app: Forebay, **options: Any) -> Worker:
    return Worker(app.engine, app.registry, **options)


class Away:
    """Trouble with some calls, while it lasts."""

    def __init__(self, *calls: str, error: Exception | None = None) -> None:
        self.calls = calls
        self.error = error or StoreUnavailable("the store is away")
        self.lasts = True

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if self.lasts and name in self.calls:
            raise self.error


class OneHandle(WatchedEngine):
    """An engine that opens one handle and no more."""

    def store(self) -> Store:
        if self.stores:
            raise StoreUnavailable("the store is away")
        return super().store()


# ------------------------------------------------------------------ starting


@pytest.mark.shows("R-WORK-11")
def test_a_worker_starts_once(app: Forebay) -> None:
    worker = worker_of(app)
    worker.start()
    try:
        with pytest.raises(ConfigError, match="started before"):
            worker.start()
    finally:
        worker.stop()
    with pytest.raises(ConfigError, match="started before"):
        worker.start()


@pytest.mark.shows("R-WORK-08", "R-EDGE-13", "R-LEASE-37")
def test_workers_are_listed_while_they_run_under_ids_of_their_own(app: Forebay) -> None:
    def listed() -> set[str]:
        return {info.id for info in app.client.read(lambda reader: reader.workers())}

    first, second = worker_of(app), worker_of(app)
    first.start()
    second.start()
    running = listed()
    first.stop()
    second.stop()

    assert running == {first.id, second.id}
    assert listed() == set()


@pytest.mark.parametrize("bad", [{"queues": []}, {"queues": "default"}, {"threads": 0}, {"coroutines": 0}])
def test_settings_that_make_no_sense_are_refused(app: Forebay, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        worker_of(app, **bad)


def test_a_queue_that_cannot_exist_is_refused(app: Forebay) -> None:
    with pytest.raises(InvalidJob):
        worker_of(app, queues=["not a queue!"])


def test_a_start_without_a_store_leaves_nothing_behind(app: Forebay) -> None:
    worker = Worker(WatchedEngine(app.engine, Away("heartbeat")).contract, app.registry)

    with no_thread_stays():
        with pytest.raises(StoreUnavailable):
            worker.start()
        worker.stop()

    assert app.client.read(lambda reader: reader.workers()) == []


def test_a_start_that_fails_half_way_leaves_nothing_behind(app: Forebay) -> None:
    worker = Worker(OneHandle(app.engine).contract, app.registry)

    with no_thread_stays():
        with pytest.raises(StoreUnavailable):
            worker.start()
        worker.stop()

    assert app.client.read(lambda reader: reader.workers()) == []


# ------------------------------------------------------------------ when things go wrong


def test_a_stop_while_the_store_is_away_comes_to_an_end(
    app: Forebay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.worker.worker.INTERRUPT_SECONDS", 0.1)
    away = Away("settle_and_claim", "renew", "heartbeat", "remove_worker", "acquire_maintenance")
    away.lasts = False
    worker = Worker(WatchedEngine(app.engine, away).contract, app.registry)

    with no_thread_stays(), caplog.at_level(logging.WARNING):
        worker.start()
        away.lasts = True
        worker._inbox.wake()
        eventually(lambda: "not available" in caplog.text)
        worker.stop(drain=0.1)

    assert "stays registered" in caplog.text


@pytest.mark.shows("R-EDGE-66", "R-RATE-19")
def test_an_outage_in_the_middle_of_the_work_costs_no_job(app: Forebay) -> None:
    away = Away("settle_and_claim", "renew", "acquire_maintenance")
    away.lasts = False
    ran: list[int] = []

    @app.task(name="note")
    def note(number: int) -> int:
        ran.append(number)
        return number

    worker = Worker(WatchedEngine(app.engine, away).contract, app.registry)
    worker.start()
    try:
        jobs = app.enqueue_many([note.job(number) for number in range(300)])
        eventually(lambda: ran)
        away.lasts = True
        jobs += app.enqueue_many([note.job(number) for number in range(300, 400)])
        eventually(lambda: worker._coordinator._is_in_doubt)
        away.lasts = False

        assert [job.result(DEADLINE) for job in jobs] == list(range(400))
    finally:
        worker.stop()
    assert sorted(ran) == list(range(400))


def test_a_crash_of_the_coordinator_is_reported_by_stop(
    app: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Away("settle_and_claim", error=StoreError("this file is not a database any more"))
    worker = Worker(WatchedEngine(app.engine, broken).contract, app.registry)

    with no_thread_stays(), caplog.at_level(logging.ERROR):
        worker.start()
        with pytest.raises(StoreError, match="not a database"):
            worker.stop()
        worker.stop()

    assert "the coordinator has crashed" in caplog.text


def test_an_error_in_the_block_stops_the_worker_and_is_passed_on(app: Forebay) -> None:
    with no_thread_stays(), pytest.raises(ZeroDivisionError), app.run_worker(threads=1):
        raise ZeroDivisionError


FORGETFUL = """
import sys, time
from threading import Event
from forebay import Forebay
from forebay.worker.worker import Worker

app = Forebay(sys.argv[1])
started = Event()

@app.task
def slow() -> int:
    started.set()
    time.sleep(0.5)
    return 7

worker = Worker(app.engine, app.registry)
worker.start()
job = slow.enqueue()
started.wait()
print(job.id)
"""


@pytest.mark.shows("R-WORK-37")
def test_a_program_that_forgets_to_stop_its_worker_lets_running_jobs_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, url], capture_output=True, text=True, timeout=120, check=True
    )

    with Forebay(url) as app:
        assert app.job(done.stdout.strip()).refresh().state is JobState.COMPLETED
        assert app.client.read(lambda reader: reader.workers()) == []
