"""Isolated tasks: in warm processes of their own, with arguments, results, words and steps as everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.domain.job import DEFAULT_QUEUE
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from tests.stores.support import WORKER
from tests.worker.executors.isolated_worker import Isolating, children, isolating
from tests.worker.support import DEADLINE, eventually


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    with Forebay(urls[request.param]) as app:
        yield app


# One worker for all tests that only ask for a job: its processes take a while to start.
@pytest.fixture(params=["memory", "sqlite"], scope="module")
def isolated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Isolating]:
    folder = tmp_path_factory.mktemp("isolated")
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db"}
    with Forebay(urls[request.param]) as app, isolating(app) as parts:
        yield parts


@pytest.mark.shows("R-WORK-14")
def test_a_task_is_run_in_another_process_with_its_arguments(isolated: Isolating) -> None:
    assert isolated.result("add", 40, 2) == 42
    assert isolated.result("pid") != os.getpid()


def test_a_coroutine_task_can_be_isolated(isolated: Isolating) -> None:
    assert isolated.result("add soon", 40, 2) == 42


def test_it_runs_on_the_main_thread_in_a_group_of_its_own_after_the_start_hooks(isolated: Isolating) -> None:
    assert isolated.result("about") == {
        "hooks": True,
        "main": True,
        "attempt": 1,
        "group": True,
        "main module": True,
    }


def test_an_isolated_task_knows_its_run_number(app: Forebay) -> None:
    job = app.enqueue("numbers")
    store = app.engine.store()
    [claimed] = store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1).jobs
    store.settle_and_claim(WORKER, [decide(claimed, Interrupted(started=False), 0.0)])
    store.close()

    with isolating(app, isolated=1):
        assert job.result(timeout=DEADLINE) == [2, 1]


def test_large_arguments_and_results_pass(isolated: Isolating) -> None:
    words = "x" * 900_000

    assert isolated.result("echo", words) == words


def test_processes_start_with_the_first_job_and_are_used_again(app: Forebay) -> None:
    with isolating(app, isolated=1) as isolated:
        before = children()
        first = isolated.result("pid")
        again = [isolated.result("pid") for _ in range(20)]

    assert first not in before
    assert set(again) == {first}


def test_no_more_processes_run_than_there_are_slots(app: Forebay) -> None:
    with isolating(app, isolated=2) as isolated:
        jobs = [isolated.enqueue("pid") for _ in range(100)]
        pids = {job.result(timeout=DEADLINE) for job in jobs}

    assert 1 <= len(pids) <= 2


def test_what_a_task_raises_is_recorded_with_its_traceback(isolated: Isolating) -> None:
    job = isolated.enqueue("fail", "no such page", retries=0).wait(timeout=DEADLINE)

    assert job.reason == "ValueError: no such page"
    assert "raise ValueError(words)" in job.errors[-1].traceback


def test_a_task_can_snooze_and_cancel_itself(isolated: Isolating) -> None:
    snoozed, cancelled = isolated.enqueue("snooze"), isolated.enqueue("cancel itself")

    assert cancelled.wait(timeout=DEADLINE).reason == "not needed"
    eventually(lambda: snoozed.refresh().state is JobState.SCHEDULED)


def test_a_call_that_does_not_fit_is_refused_as_elsewhere(isolated: Isolating) -> None:
    assert "missing a required argument" in (isolated.reason("add", 1) or "")


def test_log_lines_and_progress_are_kept_with_the_job(isolated: Isolating) -> None:
    job = isolated.enqueue("speak", 50)
    job.wait(timeout=DEADLINE)

    notes = isolated.app.client.read(lambda reader: reader.progress(job.id))
    assert [line.text for line in notes.lines] == [f"line {number}" for number in range(50)]
    assert notes.progress is not None
    assert (notes.progress.done, notes.progress.total, notes.progress.message) == (50, 50, "reading")


def test_a_step_that_was_done_before_its_process_died_is_not_done_again(
    isolated: Isolating, tmp_path: Path
) -> None:
    file = tmp_path / "steps.txt"

    job = isolated.enqueue("walk", str(file))

    assert job.result(timeout=DEADLINE) == [1, 2]
    assert job.refresh().attempt == 2


def test_jobs_that_a_task_hands_back_are_enqueued_with_its_end(isolated: Isolating) -> None:
    job = isolated.enqueue("hand on", 21)
    job.wait(timeout=DEADLINE)

    def followers() -> list[str]:
        return [one.id for one in isolated.app.search().jobs if one.task == "handed on"]

    [follower] = eventually(followers)
    assert isolated.app.job(follower).result(timeout=DEADLINE) == 42


def test_a_soft_limit_is_told_to_the_process(isolated: Isolating, tmp_path: Path) -> None:
    assert isolated.result("look around", str(tmp_path / "pid")) == "overdue"


def test_stop_hooks_run_when_the_worker_stops(
    app: Forebay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER_OF_THE_TEST", str(tmp_path))
    with isolating(app) as isolated:
        pid = isolated.result("pid")

    assert (tmp_path / f"stopped-{pid}").exists()


@pytest.mark.parametrize("limit", ["MAX_JOBS", "MAX_AGE_SECONDS", "MAX_GROWTH"])
def test_a_process_that_is_old_or_large_is_replaced_between_two_jobs(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    values = {"MAX_JOBS": 2, "MAX_AGE_SECONDS": 0.0, "MAX_GROWTH": -(2**40)}
    monkeypatch.setattr(f"forebay.worker.executors.isolated_executor.{limit}", values[limit])
    with Forebay("memory://") as app, isolating(app, isolated=1) as isolated:
        pids = [isolated.result("pid") for _ in range(4)]

    assert len(set(pids)) == (2 if limit == "MAX_JOBS" else 4)
