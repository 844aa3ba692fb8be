"""How supervised workers stop, pause and are replaced, and what is refused before anything starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.worker import WorkerState
from forebay.domain.worker_command import CommandKind
from tests.end_to_end.crews import DEADLINE, Crew, Supervised, a_crew
from tests.worker.support import eventually

either = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
both = pytest.mark.parametrize("processes", [None, 2], ids=["alone", "supervised"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store that all processes of a test share."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def crew(tmp_path: Path, url: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url) as crew:
        yield crew


# ------------------------------------------------------------------ signals


@either
def test_after_one_signal_running_jobs_end_and_all_processes_leave(
    crew: Crew, number: signal.Signals
) -> None:
    program = crew.worker(processes=2)
    jobs = [crew.enqueue("hold", one) for one in range(3)]
    for one in range(3):
        crew.has_begun(one)

    program.send_signal(number)
    are = {WorkerState.STOPPING}
    eventually(lambda: {info.state for info in crew.workers()} == are, DEADLINE)
    later = crew.enqueue("note", 3)
    crew.touch("go on")

    assert program.ends() == 0
    assert [job.refresh().state for job in jobs] == [JobState.COMPLETED] * 3
    assert later.refresh().state is JobState.PENDING
    assert crew.workers() == []
    crew.all_have_ended()


@pytest.mark.shows("R-WORK-35")
@either
def test_a_second_signal_interrupts_running_jobs_and_puts_them_back(
    crew: Crew, number: signal.Signals
) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1)
    crew.has_begun(1)

    program.send_signal(number)
    program.wait_for_output("all workers stop")
    program.send_signal(number)

    assert program.ends() == 0
    back = job.refresh()
    assert (back.state, back.crashes, back.failures) == (JobState.PENDING, 0, 0)
    crew.all_have_ended()


def test_a_signal_to_all_processes_at_once_is_one_request_to_drain(crew: Crew) -> None:
    program = crew.worker(processes=1)
    job = crew.enqueue("hold", 1)
    crew.has_begun(1)

    for _ in range(3):
        os.kill(program.children()[0], signal.SIGTERM)
    program.send_signal(signal.SIGTERM)
    program.wait_for_output("all workers stop")
    crew.touch("go on")

    assert program.ends() == 0
    assert job.refresh().state is JobState.COMPLETED


def test_a_process_that_does_not_leave_in_time_is_killed(crew: Crew) -> None:
    program = crew.worker("--drain-timeout", "1", processes=1)
    job = crew.enqueue("clutch", 1, 40)
    crew.has_begun(1)

    program.send_signal(signal.SIGTERM)

    assert program.ends() == 0
    assert "does not leave, and is killed" in program.log
    assert (job.refresh().state, job.refresh().crashes) == (JobState.PENDING, 1)
    crew.all_have_ended()


# One process: stacks are written letter by letter, and on a busy machine those of two may still meet.
@pytest.mark.parametrize("processes", [None, 1], ids=["alone", "supervised"])
def test_stacks_of_all_processes_are_shown_on_request(crew: Crew, processes: int | None) -> None:
    program = crew.worker(processes=processes)
    crew.enqueue("hold", 1)
    crew.has_begun(1)

    program.send_signal(signal.SIGUSR1)

    program.wait_for_output("in wait_for")
    if processes:
        program.wait_for_output("supervisor.py")
    crew.touch("go on")
    eventually(lambda: crew.ended(1), DEADLINE)


@both
def test_a_quiet_worker_takes_nothing_until_it_may_go_on(crew: Crew, processes: int | None) -> None:
    program = crew.worker(processes=processes)
    held = crew.enqueue("hold", 1)
    crew.has_begun(1)

    program.send_signal(signal.SIGTSTP)
    are = {WorkerState.PAUSED}
    eventually(lambda: {info.state for info in crew.workers()} == are, DEADLINE)
    waiting = crew.enqueue("note", 2)
    crew.touch("go on")
    assert crew.final(held).state is JobState.COMPLETED
    assert waiting.refresh().state is JobState.PENDING

    program.send_signal(signal.SIGCONT)
    assert crew.final(waiting).state is JobState.COMPLETED


# ------------------------------------------------------------------ commands


def ask(crew: Crew, kind: CommandKind, worker: str, expires_ms: int = 30_000) -> str:
    """Send a command; what came of it."""
    (command,) = crew.app.client.write(
        lambda store: store.send_command(kind, [WorkerId(worker)], expires_ms=expires_ms)
    )

    def answer() -> str | None:
        (found,) = crew.app.client.read(lambda reader: reader.commands([command.id]))
        return None if found is None else found.response

    return str(eventually(answer, DEADLINE))


def test_a_worker_that_an_operator_stops_is_not_replaced_and_without_any_the_supervisor_ends(
    crew: Crew,
) -> None:
    program = crew.worker(processes=2)
    first, second = (info.id for info in crew.workers())

    assert "stopping" in ask(crew, CommandKind.STOP, first)
    eventually(lambda: [info.id for info in crew.workers()] == [second], DEADLINE)
    assert crew.final(crew.enqueue("note", 1)).state is JobState.COMPLETED

    assert "halting" in ask(crew, CommandKind.HALT, second)
    assert program.ends() == 0
    assert len(program.children()) == 2


def test_a_silent_worker_can_be_halted(crew: Crew) -> None:
    program = crew.worker(processes=1)
    crew.enqueue("clutch", 1, 40)
    crew.has_begun(1)
    eventually(lambda: [info.state for info in crew.workers()] == [WorkerState.UNRESPONSIVE], DEADLINE)

    assert "killed" in ask(crew, CommandKind.HALT, crew.workers()[0].id)

    assert program.ends() == 0
    crew.all_have_ended()


def test_a_command_that_a_worker_hears_too_late_is_not_carried_out(crew: Crew) -> None:
    crew.worker(processes=1)
    crew.enqueue("clutch", 1, 12)
    crew.has_begun(1)

    answer = ask(crew, CommandKind.STOP, crew.workers()[0].id, expires_ms=4_000)

    assert answer == "refused: the worker was silent, and heard of it too late"
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED


# ------------------------------------------------------------------ replaced in order


def nothing_is_lost(crew: Crew, program: Supervised, task: str, jobs: int) -> None:
    handles = [crew.enqueue(task, number) for number in range(jobs)]
    records = [crew.final(job) for job in handles]
    assert {(one.state, one.crashes, one.failures) for one in records} == {(JobState.COMPLETED, 0, 0)}
    assert len(crew.ended()) == jobs
    program.wait_for_output("retires, because")
    eventually(lambda: len(program.children()) > 1, DEADLINE)


@pytest.mark.shows("R-WORK-25")
def test_a_process_is_replaced_after_so_many_jobs(crew: Crew) -> None:
    program = crew.worker("--max-jobs", "10", processes=1)

    nothing_is_lost(crew, program, "note", 40)

    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    crew.all_have_ended()


@pytest.mark.shows("R-WORK-25", "R-EDGE-79")
def test_a_process_that_has_grown_is_replaced(crew: Crew) -> None:
    program = crew.worker("--max-memory", "150", processes=1)

    nothing_is_lost(crew, program, "grow", 4)

    program.wait_for_output("MB of memory")


def test_a_process_that_has_become_old_is_replaced(crew: Crew) -> None:
    program = crew.worker("--max-age", "1", processes=1)
    job = crew.enqueue("hold", 1)
    crew.has_begun(1)

    # The old one lets its job end, and is replaced before that.
    program.wait_for_output("it has run for")
    eventually(lambda: len(program.children()) > 1, DEADLINE)
    assert job.refresh().state is JobState.RUNNING
    crew.touch("go on")

    assert crew.final(job).attempt == 1


@pytest.mark.shows("R-SWEEP-16")
def test_a_process_with_more_abandoned_threads_than_it_may_have_is_replaced(crew: Crew) -> None:
    program = crew.worker("--threads", "1", "--max-abandoned", "1", processes=1)
    ignoring = [crew.enqueue("ignore", number, timeout=0.2, retries=0) for number in (1, 2)]
    assert [crew.final(job).reason for job in ignoring] == ["Timeout: ran longer than 0.2 s"] * 2

    program.wait_for_output("retires, because it has 2 abandoned threads")
    waiting = crew.enqueue("note", 3)

    assert crew.final(waiting).state is JobState.COMPLETED
    eventually(lambda: len(program.children()) > 1, DEADLINE)
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    crew.all_have_ended()


@pytest.mark.shows("R-SWEEP-16")
def test_a_process_whose_threads_are_all_stuck_is_replaced(crew: Crew) -> None:
    program = crew.worker("--threads", "1", processes=1)
    stuck = crew.enqueue("ignore", 1, timeout=None)
    crew.has_begun(1)
    stuck.cancel("no need")
    waiting = crew.enqueue("note", 2)

    assert crew.final(waiting).state is JobState.COMPLETED

    assert "each of its threads runs a job that does not stop" in program.log
    crew.touch("go on")


@pytest.mark.shows("R-WORK-25")
def test_a_worker_without_a_supervisor_stops_in_order_when_it_has_come_to_a_limit(crew: Crew) -> None:
    jobs = [crew.enqueue("note", number) for number in range(3)]
    program = crew.worker("--max-jobs", "3")

    assert program.ends() == 0
    assert [job.refresh().state for job in jobs] == [JobState.COMPLETED] * 3
    assert crew.workers() == []


# ------------------------------------------------------------------ refused


def test_several_processes_cannot_share_a_store_in_memory(crew: Crew) -> None:
    (crew.folder / "url").write_text("memory://")

    program = crew.start("-m", "forebay", "worker", "jobs:app", "--processes", "2")

    assert program.ends() == 2
    assert "lives in the memory of one process" in program.log
    assert "sqlite:///jobs.db" in program.log
    crew.all_have_ended()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "0"], "processes must be a number from 1 to 1000, not 0"),
        (["--processes", "-1"], "processes must be a number from 1 to 1000, not -1"),
        (["--max-jobs", "0"], "max_jobs must be a number above 0, not 0"),
        (["--max-memory", "-5"], "max_memory must be a number above 0, not -5"),
        (["--max-age", "nan", "--processes", "2"], "max_age must be a number above 0, not nan"),
        (["--max-abandoned", "-1", "-p", "2"], "max_abandoned must be a number from 0 on, not -1"),
    ],
)
def test_limits_that_make_no_sense_are_refused_before_anything_starts(
    crew: Crew, words: list[str], message: str
) -> None:
    program = crew.start("-m", "forebay", "worker", "jobs:app", *words)

    assert program.ends() == 2
    assert message in program.log
    assert program.children() == []


def test_an_app_that_cannot_be_imported_is_reported_once(crew: Crew) -> None:
    (crew.folder / "jobs.py").write_text("import no_such_module")

    program = crew.start("-m", "forebay", "worker", "jobs:app", "--processes", "3")

    assert program.ends() == 2
    assert program.log.count("No module named 'no_such_module'") <= 2  # its traceback, and the message
    assert len(program.children()) == 1
    crew.all_have_ended()


@pytest.mark.shows("R-CFG-67")
def test_the_environment_names_queues_and_the_number_of_processes(crew: Crew) -> None:
    program = crew.start(
        "-c",
        "import os, runpy, sys; os.environ.update(FOREBAY_QUEUES='loop', FOREBAY_PROCESSES='2'); "
        "sys.argv[0] = 'forebay'; runpy.run_module('forebay', run_name='__main__')",
        "worker",
        "jobs:app",
    )

    program.wait_for_output(" runs", 2)

    assert {info.queues for info in crew.workers()} == {("loop",)}
    assert len(program.children()) == 2


# ------------------------------------------------------------------ while code is written


def test_processes_are_replaced_when_code_changes_and_wait_while_it_is_broken(crew: Crew) -> None:
    code = (crew.folder / "jobs.py").read_text()
    program = crew.worker("--reload", processes=1)
    job = crew.enqueue("hold", 1)
    crew.has_begun(1)

    (crew.folder / "jobs.py").write_text("this is no Python")
    program.wait_for_output("before the code has changed")
    (crew.folder / "jobs.py").write_text(
        f"{code}\n\n@app.task(name='new')\ndef new() -> int:\n    return 42\n"
    )

    assert crew.enqueue("new").result(DEADLINE) == 42
    crew.touch("go on")
    assert crew.final(job).state is JobState.COMPLETED
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    crew.all_have_ended()


def test_without_its_extra_reloading_is_refused_by_name(crew: Crew) -> None:
    (crew.folder / "watchfiles.py").write_text("raise ImportError")

    program = crew.start("-m", "forebay", "worker", "jobs:app", "--reload")

    assert program.ends() == 2
    assert "pip install 'forebay[reload]'" in program.log
    assert program.children() == []
