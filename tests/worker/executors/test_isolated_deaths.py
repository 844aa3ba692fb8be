"""Whatever a process dies of is the failure of the job that ran in it, and the next job has another one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, StoreUnusable
from forebay.worker.executors.child_process import ChildProcess
from forebay.worker.executors.process_memory import resident_bytes
from forebay.worker.executors.task_module_origin import check_loadable
from tests.worker.executors.isolated_worker import Isolating, children, isolating
from tests.worker.support import DEADLINE, eventually


# One worker for nearly all tests: its process takes a while to start.
@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolating]:
    with Forebay("memory://") as app, isolating(app, isolated=1) as parts:
        yield parts


@pytest.mark.parametrize(
    ("task", "argument", "reason"),
    [
        ("leave", 3, "ProcessDied: the isolated process ended with exit code 3"),
        ("leave", 0, "ProcessDied: the isolated process ended with exit code 0"),
        ("kill itself", signal.SIGSEGV.value, "ProcessDied: the isolated process was killed by SIGSEGV"),
        (
            "kill itself",
            signal.SIGKILL.value,
            "ProcessDied: the isolated process was killed by SIGKILL, "
            "perhaps because the machine ran out of memory",
        ),
    ],
)
def test_the_death_of_a_process_is_the_failure_of_its_job(
    isolated: Isolating, task: str, argument: int, reason: str
) -> None:
    assert isolated.reason(task, argument) == reason
    assert isolated.result("add", 1, 2) == 3


def test_a_job_whose_process_died_is_tried_again(isolated: Isolating) -> None:
    job = isolated.enqueue("leave", 3, retries=1).wait(timeout=DEADLINE)

    assert job.state is JobState.DEAD
    assert (job.attempt, job.failures, job.crashes) == (2, 2, 0)


def test_a_task_that_closes_what_is_not_its_own_loses_its_process(isolated: Isolating) -> None:
    assert isolated.reason("close everything") == "ProcessDied: the isolated process ended with exit code 1"


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("stop the loop", "RuntimeError: Event loop stopped before Future completed."),
        ("leave by a task of its own", "SystemExit: 3"),
    ],
)
def test_a_coroutine_that_breaks_its_event_loop_fails_with_the_reason(
    isolated: Isolating, task: str, reason: str
) -> None:
    assert isolated.reason(task) == reason
    assert isolated.result("add soon", 1, 2) == 3


def test_an_outcome_that_cannot_be_handed_over_is_a_failure_with_the_reason(isolated: Isolating) -> None:
    pid = isolated.result("pid")

    reason = isolated.reason("cancel itself at length") or ""

    assert reason.startswith("PayloadError: ")
    assert isolated.result("pid") == pid


def test_a_process_that_talks_nonsense_is_killed(isolated: Isolating) -> None:
    reason = isolated.reason("babble") or ""

    assert reason.startswith("ProcessDied: the isolated process sent an invalid message")
    assert isolated.result("add", 1, 2) == 3


def test_a_copy_that_a_task_forks_off_does_not_speak_for_its_job(isolated: Isolating) -> None:
    assert [isolated.result("fork") for _ in range(3)] == [1, 1, 1]
    assert isolated.result("add", 1, 2) == 3


def test_a_process_that_died_between_two_jobs_harms_none(isolated: Isolating) -> None:
    pid = isolated.result("pid")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: resident_bytes(pid) in (0, None))

    assert isolated.result("pid") != pid


def test_a_program_that_waits_for_all_its_children_takes_nothing_away(isolated: Isolating) -> None:
    pid = isolated.result("pid")
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # the kernel was quicker
        os.waitpid(pid, 0)

    assert isolated.result("pid") != pid


def test_a_process_that_cannot_even_be_made_fails_the_job_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Forebay("memory://") as app, isolating(app, isolated=1) as isolated:
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", str(tmp_path / "no python"))
            reason = isolated.reason("add", 1, 2) or ""

        assert reason.startswith("ProcessDied: no isolated process could be started: [Errno 2]")
        assert isolated.result("add", 1, 2) == 3


def test_a_step_that_cannot_be_looked_up_fails_its_attempt(tmp_path: Path) -> None:
    with Forebay("memory://") as app, isolating(app, isolated=1) as isolated:
        isolated.worker._progress_buffer._open_reader = _unusable
        reason = isolated.reason("walk", str(tmp_path / "steps"), retries=1) or ""

    assert "the steps of earlier attempts cannot be read: StoreUnusable: no such disk" in reason


def _unusable() -> NoReturn:
    raise StoreUnusable("no such disk")


@pytest.mark.parametrize("task", ["take memory", "take memory soon"])
def test_a_job_cannot_take_more_memory_than_its_task_may(isolated: Isolating, task: str) -> None:
    before = isolated.result("pid")

    assert isolated.reason(task, 100) == "OutOfMemory: needed more than 64 MB"
    assert isolated.result(task, 20) == 20 * 2**20
    assert isolated.result("pid") != before  # what it has left behind is gone with its process


def test_where_the_limit_cannot_be_set_the_process_is_watched_and_killed(
    isolated: Isolating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.worker.executors.process_attempt.resident_bytes", lambda _: 2**40)

    assert isolated.reason("hold in memory") == "OutOfMemory: needed more than 64 MB"


def test_a_thread_that_a_job_leaves_behind_does_not_speak_for_the_next_job(isolated: Isolating) -> None:
    isolated.result("leave a progress sink")
    jobs = [isolated.enqueue("spin", 20) for _ in range(10)]
    for job in jobs:
        job.wait(timeout=DEADLINE)

    with closing(isolated.app.engine.reader()) as reader:
        notes = [reader.progress(job.id) for job in jobs]
    assert [line for note in notes for line in note.lines] == []


def test_enqueueing_from_an_isolated_task_into_memory_is_refused_in_plain_words(isolated: Isolating) -> None:
    reason = isolated.reason("enqueue another") or ""

    assert "the memory engine lives in the worker's process" in reason
    assert "follow_up" in reason


@pytest.mark.shows("R-WORK-27")
def test_a_task_that_cannot_be_found_in_another_process_fails_with_the_reason() -> None:
    app = Forebay("memory://")

    @app.task(name="hidden", isolated=True, retries=0)
    def hidden() -> None: ...

    with app, app.run_worker(isolated=1):
        reason = hidden.enqueue().wait(timeout=DEADLINE).reason or ""

    assert "task hidden is not registered after importing" in reason
    assert "where the module is imported" in reason


@pytest.mark.shows("R-WORK-27")
def test_a_task_that_was_typed_in_is_refused_when_the_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Forebay("memory://")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.delattr(main, "__file__", raising=False)

    def typed() -> None: ...

    typed.__module__ = "__main__"
    app.task(name="typed", isolated=True)(typed)

    with pytest.raises(ConfigError, match="task typed is isolated"):
        check_loadable(app.registry)
    with app, pytest.raises(ConfigError, match="put it into a file"), app.run_worker():
        pass


BROKEN = """
import os
from forebay import Forebay

app = Forebay("memory://")
is_worker = os.environ["PID_OF_THE_TEST"] == str(os.getpid())


@app.task(name="run", isolated=True, retries=0)
def run() -> None: ...
"""


@pytest.mark.parametrize(
    ("addition", "reason"),
    [
        ("if not is_worker:\n    raise OSError('no such disk')", "OSError: no such disk"),
        ("if not is_worker:\n    raise SystemExit(4)", "SystemExit: 4"),
        (
            "if not is_worker:\n    os._exit(4)",
            "ProcessDied: the isolated process ended with exit code 4 before it was ready",
        ),
        (
            "@app.on_start\ndef check() -> None:\n    if not is_worker:\n        raise OSError('no pool')",
            "OSError: no pool",
        ),
    ],
)
def test_a_process_that_cannot_start_fails_the_job_and_is_not_tried_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addition: str, reason: str
) -> None:
    monkeypatch.setenv("PID_OF_THE_TEST", str(os.getpid()))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_program.py").write_text(f"{BROKEN}\n{addition}\n")
    monkeypatch.delitem(sys.modules, "broken_program", raising=False)
    starts: list[float] = []
    monkeypatch.setattr(ChildProcess, "__init__", _counted(starts))
    from broken_program import app, run  # type: ignore[import-not-found]  # noqa: PLC0415 - made just now

    try:
        with app, app.run_worker(isolated=1):
            jobs = [run.enqueue() for _ in range(3)]
            assert [job.wait(timeout=DEADLINE).reason for job in jobs] == [reason] * 3
    finally:
        sys.modules.pop("broken_program", None)

    assert len(starts) == 3  # one for each job, and none without a job
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert min(pauses) >= 0.5


def _counted(starts: list[float]) -> object:
    make = ChildProcess.__init__

    def counted(self: ChildProcess, now: float) -> None:
        starts.append(now)
        make(self, now)

    return counted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_process_is_left_when_a_thread_of_the_executor_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    with Forebay("memory://") as app, isolating(app, isolated=1) as isolated:
        pid = isolated.result("pid")
        monkeypatch.setattr(
            "forebay.worker.executors.isolated_executor.IsolatedExecutor._replace_worn", lambda *_: sys.exit()
        )

        isolated.result("add", 1, 2)

        eventually(lambda: pid not in children())
