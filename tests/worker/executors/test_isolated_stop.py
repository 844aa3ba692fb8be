"""Isolated jobs are killed at their time limit; cancelled ones, and those of a worker that stops, are asked
first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Cancelled, Completed, Failed, Interrupted
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.executors.isolated_executor import IsolatedExecutor
from forebay.worker.executors.task_module_origin import origin_of_this_program
from forebay.worker.task_invoker import Invoker, JobInterrupted, WorkerStopping
from tests.worker.executors import isolated_tasks
from tests.worker.executors.isolated_worker import Isolating, is_gone, isolating, no_process_stays, pid_in
from tests.worker.support import DEADLINE, Collected, an_assignment, eventually, no_thread_stays

HOLDING = ["hold", "hold soon", "hold deaf"]


# One worker for several tests: its process takes a while to start.
@pytest.fixture(params=["memory", "sqlite"], scope="module")
def isolated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Isolating]:
    folder = tmp_path_factory.mktemp("isolated")
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db"}
    with Forebay(urls[request.param]) as app, isolating(app, isolated=1) as parts:
        yield parts


@pytest.mark.shows("R-WORK-20", "R-EDGE-78", "R-SWEEP-16", "R-EXT-07")
@pytest.mark.parametrize("task", HOLDING)
def test_a_job_that_runs_too_long_is_killed_whatever_it_does(
    isolated: Isolating, tmp_path: Path, task: str
) -> None:
    reason = isolated.reason(task, str(tmp_path / "pid"), timeout=1)

    assert reason == "Timeout: ran longer than 1 s"
    all_are_gone(tmp_path)
    assert isolated.result("add", 1, 2) == 3


@pytest.mark.shows("R-WORK-20")
def test_what_a_killed_job_has_started_dies_with_it(isolated: Isolating, tmp_path: Path) -> None:
    isolated.reason("hold with family", str(tmp_path / "pid"), timeout=2)

    all_are_gone(tmp_path)


def all_are_gone(folder: Path) -> None:
    """The processes that have said that they are there. On a busy machine one may have been killed before its
    first line."""
    for file in folder.glob("pid*"):
        if file.suffix != ".part":
            is_gone(pid_in(file))


@pytest.mark.shows("R-CANCEL-09")
@pytest.mark.parametrize("task", ["hold", "hold soon"])
def test_a_cancelled_job_is_asked_to_stop_and_its_process_goes_on(
    isolated: Isolating, tmp_path: Path, task: str
) -> None:
    job = isolated.enqueue(task, str(tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")

    job.cancel("not needed any more")

    assert job.wait(timeout=DEADLINE).reason == "not needed any more"
    assert job.refresh().state is JobState.CANCELLED
    assert isolated.result("pid") == pid


@pytest.mark.shows("R-CANCEL-09")
def test_a_cancelled_job_that_does_not_listen_is_killed_after_its_grace(
    isolated: Isolating, tmp_path: Path
) -> None:
    job = isolated.enqueue("hold deaf", str(tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")

    job.cancel("not needed any more")

    assert job.wait(timeout=DEADLINE).reason == "not needed any more"
    is_gone(pid)


@pytest.mark.parametrize("task", HOLDING)
def test_jobs_of_a_worker_that_stops_are_handed_back(app_file: Forebay, tmp_path: Path, task: str) -> None:
    with isolating(app_file, isolated=1) as isolated:
        job = isolated.enqueue(task, str(tmp_path / "pid"))
        pid = pid_in(tmp_path / "pid")
        isolated.worker.stop(drain=0)

    found = job.refresh()
    assert (found.state, found.failures, found.crashes) == (JobState.PENDING, 0, 0)
    is_gone(pid)


@pytest.fixture
def app_file(tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


# The executor alone


class Alone:
    """An executor with one slot."""

    def __init__(self) -> None:
        self.inbox = Collected()
        self._given = 0
        registry = isolated_tasks.app.registry
        self.executor = IsolatedExecutor(
            1,
            registry,
            Invoker(registry),
            self.inbox,
            SystemClock(),
            origin=origin_of_this_program(None, None),
        )

    def begun(self, task: str, file: Path, **changes: object) -> Assignment:
        one = self.given(task, str(file), **changes)
        pid_in(file)
        return one

    def given(self, task: str, *args: object, **changes: object) -> Assignment:
        self._given += 1
        one = an_assignment(task, *args, id=f"job {self._given}", **changes)
        self.executor.submit(one)
        return one


@pytest.fixture
def alone() -> Iterator[Alone]:
    with no_thread_stays(), no_process_stays():
        parts = Alone()
        parts.executor.start()
        yield parts
        parts.executor.close()


def test_it_uses_the_slots_of_isolated_tasks(alone: Alone) -> None:
    assert alone.executor.kind is ExecutorKind.ISOLATED


def test_an_attempt_that_was_asked_ends_as_interrupted_or_cancelled(alone: Alone, tmp_path: Path) -> None:
    stopped = alone.begun("hold", tmp_path / "1")
    alone.executor.interrupt(stopped, WorkerStopping("the worker stops"))
    assert alone.inbox.of(stopped) == Interrupted()
    assert (tmp_path / "1.asked").exists()

    cancelled = alone.begun("hold", tmp_path / "2")
    cancelled.context.mark_cancelled("enough")
    alone.executor.interrupt(cancelled, JobInterrupted("enough"))
    assert alone.inbox.of(cancelled) == Cancelled("enough")


def test_one_that_is_asked_twice_is_interrupted_once(alone: Alone, tmp_path: Path) -> None:
    one = alone.begun("hold", tmp_path / "pid")

    alone.executor.interrupt(one, JobInterrupted("enough"))
    alone.executor.interrupt(one, WorkerStopping("the worker stops"))

    assert alone.inbox.of(one) == Interrupted()
    assert alone.inbox.puts == 1


def test_one_that_does_not_listen_is_killed_after_the_grace(alone: Alone, tmp_path: Path) -> None:
    one = alone.begun("hold deaf", tmp_path / "pid")

    alone.executor.interrupt(one, JobInterrupted("enough"))

    assert alone.inbox.of(one) == Interrupted()
    is_gone(pid_in(tmp_path / "pid"))


def test_a_grace_that_is_longer_than_a_stop_may_take_is_cut_and_a_shorter_one_is_not(
    alone: Alone, tmp_path: Path
) -> None:
    patient = alone.begun("hold patiently", tmp_path / "1")
    alone.executor.interrupt(patient, WorkerStopping("the worker stops"))
    assert alone.inbox.of(patient) == Interrupted()

    hasty = alone.begun("hold not at all", tmp_path / "2")
    alone.executor.interrupt(hasty, WorkerStopping("the worker stops"))
    assert alone.inbox.of(hasty) == Interrupted()


@pytest.mark.parametrize("task", ["hold", "hold soon"])
def test_a_request_that_comes_as_the_job_begins_is_not_lost(tmp_path: Path, task: str) -> None:
    with no_thread_stays(), no_process_stays():
        alone = Alone()
        alone.executor.start()
        before = alone.inbox.of(alone.given("pid"))
        for number in range(30):
            one = alone.given(task, str(tmp_path / f"{number}"))
            eventually(lambda one=one: one.started_at is not None)  # type: ignore[misc]  # bound here and now
            one.context.mark_cancelled("enough")
            alone.executor.interrupt(one, JobInterrupted("enough"))
            assert alone.inbox.of(one) == Cancelled("enough")
        after = alone.inbox.of(alone.given("pid"))
        alone.executor.close()

    assert before == after  # no process had to be killed


def test_a_request_for_an_attempt_that_has_ended_hits_no_other_job(alone: Alone) -> None:
    over = alone.given("add", 1, 2)
    assert isinstance(alone.inbox.of(over), Completed)
    next_one = alone.given("spin", 200)
    eventually(lambda: next_one.started_at is not None)

    alone.executor.interrupt(over, JobInterrupted("too late"))

    assert isinstance(alone.inbox.of(next_one), Completed)
    assert over.stopped_by is None


def test_an_attempt_whose_lease_is_nearly_over_is_not_begun(alone: Alone) -> None:
    late = an_assignment("add", 1, 2)
    late.mark_lost()

    alone.executor.submit(late)

    assert alone.inbox.of(late) == Interrupted(started=False)
    assert late.started_at is None


def test_an_attempt_that_was_cancelled_while_its_process_started_is_not_begun(alone: Alone) -> None:
    one = an_assignment("add", 1, 2)
    one.stop_reason = JobInterrupted("enough")

    alone.executor.submit(one)

    assert alone.inbox.of(one) == Interrupted(started=False)


def test_closing_kills_what_still_runs(tmp_path: Path) -> None:
    with no_thread_stays(), no_process_stays():
        alone = Alone()
        alone.executor.start()
        one = alone.begun("hold deaf", tmp_path / "pid")
        alone.executor.close()
        alone.executor.close()

    assert alone.inbox.of(one) == Interrupted()


def test_a_process_that_does_not_read_delays_no_other(alone: Alone, tmp_path: Path) -> None:
    """It holds the interpreter, so its reading thread sleeps; it is told more than a connection takes."""
    one = alone.begun("hold deaf", tmp_path / "pid", timeout_ms=60_000)
    for number in range(20):
        one.context.mark_cancelled(f"{number} " + "x" * 100_000)
        alone.executor.interrupt(one, JobInterrupted("y" * 100_000))

    assert isinstance(alone.inbox.of(one), Cancelled)


def test_a_fault_of_our_own_costs_one_attempt_and_no_slot(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("forebay.worker.executors.isolated_executor.ProcessAttempt", None)
        failed = alone.given("add", 1, 2)
        outcome = alone.inbox.of(failed)
    assert isinstance(outcome, Failed)
    assert outcome.error.type == "TypeError"

    assert isinstance(alone.inbox.of(alone.given("add", 1, 2)), Completed)
