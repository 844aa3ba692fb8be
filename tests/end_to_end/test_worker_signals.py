"""A worker process and its signals: whatever it does when one comes, it ends in order and loses no job."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.cli.worker_runner import run
from forebay.domain.job_states import JobState
from forebay.worker.worker import Worker
from tests.end_to_end.worker_processes import DEADLINE, Place, Process, a_place
from tests.worker.support import eventually

PENDING, RUNNING, COMPLETED = JobState.PENDING, JobState.RUNNING, JobState.COMPLETED

either = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as place:
        yield place


@pytest.fixture
def locked(place: Place) -> Iterator[sqlite3.Connection]:
    """Another program's connection, which keeps all processes from writing while its transaction lasts."""
    with closing(sqlite3.connect(place.folder / "jobs.db", isolation_level=None)) as connection:
        yield connection


def is_stuck_in_the_store(worker: Process) -> None:
    """Wait until the stacks of the worker show its coordinator in a call of the store."""

    def look() -> bool:
        worker.send_signal(signal.SIGUSR1)
        stacks = worker.log.rpartition("Current thread")[0].split("Thread 0x")
        return any("stores/sqlite" in stack and "coordinator.py" in stack for stack in stacks[-12:])

    eventually(look, DEADLINE)


# ------------------------------------------------------------------ stopping in order


@pytest.mark.shows("R-EDGE-76", "R-WORK-28", "R-WORK-29")
@either
def test_an_idle_worker_ends_at_the_first_signal(place: Place, number: signal.Signals) -> None:
    worker = place.worker()
    assert len(place.workers()) == 1

    worker.send_signal(number)

    assert worker.ends() == 0
    assert "has stopped" in worker.log
    assert place.workers() == []


@pytest.mark.shows("R-EDGE-76", "R-WORK-28", "R-WORK-29", "R-NFR-06")
@either
def test_a_working_worker_claims_nothing_more_lets_its_jobs_end_and_leaves_the_rest(
    place: Place, number: signal.Signals
) -> None:
    worker = place.worker("--threads", "2")
    jobs = place.app.enqueue_many([place.hold.job(one) for one in range(6)])
    place.has_started(0)
    place.has_started(1)

    worker.send_signal(number)
    worker.wait_for_output("stops")
    jobs.append(place.note.enqueue(6))
    place.go_on()

    assert worker.ends() == 0
    assert place.states(jobs) == [COMPLETED] * 2 + [PENDING] * 5
    assert {(job.refresh().failures, job.refresh().crashes) for job in jobs} == {(0, 0)}
    other = place.worker()
    assert [job.result(DEADLINE) for job in jobs] == list(range(7))
    other.send_signal(number)
    assert other.ends() == 0
    assert Counter(job for _, job in place.ran()) == Counter(range(7))


@pytest.mark.shows("R-EDGE-76", "R-WORK-29", "R-NFR-06")
@either
def test_a_second_signal_during_the_stop_ends_it_at_once_and_hands_the_jobs_back(
    place: Place, number: signal.Signals
) -> None:
    worker = place.worker("--threads", "1")
    job = place.hold.enqueue(0)
    place.has_started(0)
    worker.send_signal(number)
    worker.wait_for_output("stops")

    worker.send_signal(number)

    assert worker.ends() == 0
    record = job.refresh()
    assert (record.state, record.failures, record.crashes) == (PENDING, 0, 0)
    place.go_on()
    place.worker()
    assert job.result(DEADLINE) == 0
    assert [number for _, number in place.ran()] == [0]


@pytest.mark.shows("R-WORK-31", "R-EDGE-77")
def test_a_job_that_outlasts_the_stop_goes_back_and_is_run_again_elsewhere(place: Place) -> None:
    worker = place.worker("--threads", "1", "--drain-timeout", "0.2")
    job = place.hold.enqueue(0)
    place.has_started(0)

    worker.send_signal(signal.SIGTERM)

    assert worker.ends() == 0
    assert (job.refresh().state, job.refresh().failures) == (PENDING, 0)
    place.go_on()
    place.worker()
    assert job.result(DEADLINE) == 0
    assert job.refresh().attempt == 2


# ------------------------------------------------------------------ a store that does not answer


@pytest.mark.shows("R-EDGE-76", "R-NFR-06")
def test_a_worker_that_is_stuck_in_the_store_ends_in_order_when_that_answers(
    place: Place, locked: sqlite3.Connection
) -> None:
    worker = place.worker()
    job = place.note.using(delay=0.5).enqueue(0)
    locked.execute("begin immediate")
    is_stuck_in_the_store(worker)

    worker.send_signal(signal.SIGTERM)
    worker.wait_for_output("stops")
    locked.execute("rollback")

    assert worker.ends() == 0
    assert place.workers() == []
    place.worker()
    assert job.result(DEADLINE) == 0
    assert [number for _, number in place.ran()] == [0]


@pytest.mark.shows("R-EDGE-76", "R-NFR-06")
def test_a_worker_whose_store_never_answers_leaves_when_its_time_is_over_and_its_job_is_run_again(
    place: Place, locked: sqlite3.Connection
) -> None:
    worker = place.worker("--drain-timeout", "0.1")
    job = place.hold.enqueue(0)
    place.has_started(0)
    locked.execute("begin immediate")
    is_stuck_in_the_store(worker)

    worker.send_signal(signal.SIGTERM)

    assert worker.ends() == 3
    assert "the store does not answer" in worker.log
    locked.execute("rollback")
    place.go_on()
    place.worker()
    assert job.result(DEADLINE) == 0
    assert (job.refresh().attempt, job.refresh().failures) == (2, 0)


# ------------------------------------------------------------------ looking inside


@pytest.mark.shows("R-WORK-30")
def test_a_signal_shows_the_stacks_of_all_threads_and_the_worker_goes_on(place: Place) -> None:
    worker = place.worker("--threads", "1")
    job = place.hold.enqueue(7)
    place.has_started(7)

    worker.send_signal(signal.SIGUSR1)

    worker.wait_for_output(" in hold")
    worker.wait_for_output(" in _run")
    worker.wait_for_output(" in _watch")
    place.go_on()
    assert job.result(DEADLINE) == 7
    worker.send_signal(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_busy_worker_that_is_asked_for_its_stacks_again_and_again_goes_on(place: Place) -> None:
    worker = place.worker()
    jobs = [place.note.enqueue(number) for number in range(200)]

    while not all(job.refresh().is_final for job in jobs[-10:]):
        worker.send_signal(signal.SIGUSR1)

    assert all(job.wait(DEADLINE).state is JobState.COMPLETED for job in jobs)
    worker.send_signal(signal.SIGTERM)
    assert worker.ends() == 0


# ------------------------------------------------------------------ signals of the program around it


@pytest.mark.shows("R-WORK-38")
def test_an_embedded_worker_leaves_the_signal_handlers_of_its_program_alone(tmp_path: Path) -> None:
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTSTP]
    before = [signal.getsignal(number) for number in numbers]

    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.task(name="seven")(lambda: 7)
        with app.run_worker(threads=1):
            during = [signal.getsignal(number) for number in numbers]

    assert during == before
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.shows("R-WORK-38")
def test_a_worker_that_takes_the_signals_gives_them_back_at_its_end(tmp_path: Path) -> None:
    heard: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        mine = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        app = Forebay(f"sqlite:///{tmp_path}/jobs.db")

        @app.task(name="end")
        def end() -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        job = end.enqueue()
        run(app, Worker(app.engine, app.registry), drain=DEADLINE)

        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == mine
        with Forebay(f"sqlite:///{tmp_path}/jobs.db") as again:
            assert again.job(job.id).refresh().state is COMPLETED
        assert heard == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, usual)


# ------------------------------------------------------------------ an app that is none


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("jobs", "does not name an app; write package.module:app"),
        ("jobs:folder", "not a Forebay app"),
        ("jobs:missing", "there is no 'missing' in jobs"),
        ("broken:app", "broken could not be imported: ZeroDivisionError"),
        ("needy:app", "No module named 'not_installed'"),
    ],
)
def test_an_app_that_cannot_be_found_is_a_clear_error_and_status_2(
    place: Place, target: str, words: str
) -> None:
    (place.folder / "broken.py").write_text("1 / 0\n")
    (place.folder / "needy.py").write_text("import not_installed\n")

    worker = place.start(app=target)

    assert worker.ends() == 2, worker.log
    assert words in worker.log
    assert place.workers() == []


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("--threads", "0", "at least one thread"),
        ("--drain-timeout", "nan", "drain_timeout must be a number of seconds from 0"),
        ("--drain-timeout", "-1", "drain_timeout must be a number of seconds from 0"),
        ("--queues", "no such name!", "queue"),
    ],
)
def test_a_setting_that_makes_no_sense_is_a_clear_error_and_status_2(
    place: Place, setting: str, value: str, words: str
) -> None:
    worker = place.start(setting, value)

    assert worker.ends() == 2, worker.log
    assert words in worker.log


def test_a_store_that_cannot_be_used_is_a_clear_error_and_status_3(place: Place) -> None:
    (place.folder / "jobs.db").write_bytes(b"this is not a database, whatever its name says" * 100)

    worker = place.start()

    assert worker.ends() == 3, worker.log
    assert "is not a SQLite database" in worker.log


# ------------------------------------------------------------------ several of them


def test_two_worker_processes_share_the_work_and_do_none_of_it_twice(place: Place) -> None:
    first, second = place.worker("--threads", "1"), place.worker("--threads", "1")
    held = place.app.enqueue_many([place.hold.job(number) for number in range(2)])
    place.has_started(0)
    place.has_started(1)
    place.go_on()
    jobs = held + place.app.enqueue_many([place.note.job(number) for number in range(2, 200)])

    assert [job.result(DEADLINE) for job in jobs] == list(range(200))
    for worker in (first, second):
        worker.send_signal(signal.SIGTERM)
        assert worker.ends() == 0
    assert Counter(number for _, number in place.ran()) == Counter(range(200))
    assert {process for process, _ in place.ran()} == {first.popen.pid, second.popen.pid}
