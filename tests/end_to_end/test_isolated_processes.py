"""Isolated tasks of real programs: found again in other processes, and none of those is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.job_states import JobState
from tests.end_to_end.isolated_programs import Programs, programs
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.urls import SHARED, url_of
from tests.worker.executors.isolated_worker import children

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def place(tmp_path: Path, url: str) -> Iterator[Programs]:
    with programs(tmp_path, url) as parts:
        yield parts


@pytest.mark.shows("R-WORK-14", "R-WORK-27")
def test_the_worker_program_loads_its_app_again_in_other_processes(place: Programs) -> None:
    worker = place.worker("--isolated", "2")

    name, pid, module = place.enqueue("where", "me").result(timeout=DEADLINE)

    assert (name, module) == ("me", "jobs")
    assert pid not in (worker.popen.pid, os.getpid())


def test_what_an_isolated_task_logs_is_seen_in_the_log_of_the_worker(place: Programs) -> None:
    worker = place.worker()

    job = place.enqueue("log")
    job.wait(timeout=DEADLINE)

    worker.wait_for_output(f"INFO jobs [log {job.id} #1] this is logged by an isolated task")


@pytest.mark.parametrize("task", ["hold", "hold deaf"])
def test_no_process_outlives_a_worker_that_is_killed(place: Programs, task: str) -> None:
    worker = place.worker("--isolated", "1")
    place.enqueue(task, "pid")
    pid = place.pid()

    worker.send_signal(signal.SIGKILL)

    place.is_gone(pid)


def test_no_process_outlives_a_supervisor_that_is_killed(place: Programs) -> None:
    supervisor = place.worker("--processes", "1", "--isolated", "1")
    place.enqueue("hold deaf", "pid")
    pid = place.pid()
    [worker] = children(supervisor.popen.pid)

    supervisor.send_signal(signal.SIGKILL)

    place.is_gone(worker)
    place.is_gone(pid)


@pytest.mark.parametrize("task", ["hold", "hold deaf"])
def test_no_process_outlives_a_worker_that_stops_and_the_job_goes_back(place: Programs, task: str) -> None:
    worker = place.worker("--isolated", "1", "--drain-timeout", "0")
    job = place.enqueue(task, "pid")
    pid = place.pid()

    worker.send_signal(signal.SIGTERM)

    assert worker.ends() == 0, worker.log
    place.is_gone(pid)
    found = job.refresh()
    assert (found.state, found.failures, found.crashes) == (JobState.PENDING, 0, 0)


def test_signals_to_the_whole_family_do_not_end_isolated_jobs(place: Programs) -> None:
    worker = place.worker("--isolated", "1")
    job = place.enqueue("hold", "pid")
    pid = place.pid()

    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGUSR1)
    os.kill(pid, signal.SIGUSR2)  # shows its stacks, whatever it is doing
    worker.wait_for_output("Current thread")

    assert job.refresh().state is JobState.RUNNING
    job.cancel("enough")
    assert job.wait(timeout=DEADLINE).reason == "enough"


@pytest.mark.shows("R-WORK-27")
def test_a_module_that_is_run_as_a_program_is_loaded_under_its_real_name(place: Programs) -> None:
    done = place.run("finish")

    assert done.returncode == 0, done.stderr
    name, pid, module, parent = done.stdout.split()
    assert (name, module) == ("me", "jobs")
    assert pid != parent


def test_a_worker_that_nothing_guards_is_not_started_again_in_each_process(place: Programs) -> None:
    """It would start processes that start processes, without end."""
    (place.folder / "jobs.py").write_text(UNGUARDED.format(url=place.url))

    done = place.run("")

    assert "a worker must not be started in an isolated process" in done.stdout
    assert (place.folder / "loaded").read_text().splitlines() == ["jobs"] * 2, done.stderr


UNGUARDED = """
from pathlib import Path

from forebay import Forebay

app = Forebay("{url}")
with Path("loaded").open("a") as file:
    file.write("jobs\\n")


@app.task(name="run", isolated=True, retries=0)
def run() -> None: ...


with app.run_worker(isolated=1):
    print(run.enqueue().wait(timeout=100).reason)
"""


def test_a_process_starts_in_the_folder_that_its_worker_was_started_in(place: Programs) -> None:
    (place.folder / "elsewhere").mkdir()
    place.worker("--isolated", "1", "--threads", "1")
    place.enqueue("go elsewhere").wait(timeout=DEADLINE)

    assert place.enqueue("folder").result(timeout=DEADLINE) == str(place.folder)


def test_a_copy_that_a_task_forks_off_on_a_thread_ends_with_its_call(place: Programs) -> None:
    place.worker()

    copy = place.enqueue("fork").result(timeout=DEADLINE)

    (place.folder / "pid of the copy").write_text(str(copy))  # so that it is killed if this fails
    place.is_gone(copy)


def test_no_process_outlives_a_program_that_leaves_without_a_word(place: Programs) -> None:
    assert place.run("leave").returncode == 5

    place.is_gone(place.pid())


@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_worker_without_room_for_isolated_tasks_is_refused(place: Programs, number: str) -> None:
    process = Process(place.folder, "--isolated", number)

    assert process.ends() != 0
    assert "at least one isolated process" in process.log
