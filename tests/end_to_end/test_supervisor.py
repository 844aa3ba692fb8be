"""A supervisor and its worker processes: whatever dies, the work goes on, and no process is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from forebay import RetryPolicy
from forebay.clock import SystemClock
from forebay.domain.job_states import JobState
from forebay.domain.worker import HeartbeatStatus, WorkerState
from tests.end_to_end.crews import AGAIN, DEADLINE, Crew, a_crew, living
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

QUICK = RetryPolicy(max_crashes=2, base_ms=1)
now_ms = SystemClock().now_ms


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store that all processes of a test share."""
    return url_of(request.param, tmp_path)


# The store has no part in these, and they take long.
any_store = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def crew(tmp_path: Path, url: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url) as crew:
        yield crew


# ------------------------------------------------------------------ processes that die


@pytest.mark.shows("R-SWEEP-09", "R-SWEEP-21", "R-NFR-25", "R-EDGE-57")
def test_the_job_of_a_killed_process_runs_again_elsewhere_at_once(crew: Crew) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1)
    killed = crew.has_begun(1).pid

    os.kill(killed, signal.SIGKILL)

    assert crew.has_begun(1, 2, AGAIN).pid != killed
    crew.touch("go on")
    done = crew.final(job)
    assert (done.state, done.crashes, done.attempt) == (JobState.COMPLETED, 1, 2)
    assert [error.message for error in done.errors] == [f"worker process {killed} was killed by SIGKILL"]
    program.wait_for_output(" runs", 3)
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert crew.workers() == []
    crew.all_have_ended()


@pytest.mark.shows("R-EDGE-57")
def test_with_its_supervisor_all_processes_die_and_others_run_their_jobs(crew: Crew) -> None:
    program = crew.worker("--heartbeat", "5", processes=2)
    crew.enqueue("clutch_loop", 1, True, queue="loop")
    crew.enqueue("hold", 2)
    crew.has_begun(1)
    crew.has_begun(2)

    program.popen.kill()
    program.popen.wait()
    crew.all_have_ended()
    eventually(
        lambda: {info.heartbeat_status(now_ms()) for info in crew.workers()} == {HeartbeatStatus.DEAD},
        DEADLINE,
    )

    for name in ("let go", "go on"):
        crew.touch(name)
    other = crew.worker()
    assert {crew.has_begun(number, 2).pid for number in (1, 2)} == {other.popen.pid}


@pytest.mark.shows("R-NFR-25")
def test_jobs_of_a_machine_that_is_gone_run_again_when_their_leases_have_ended(crew: Crew) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1, lease=6)
    crew.has_begun(1)
    for lock in crew.folder.glob("jobs.db-forebay/*.lock"):
        lock.unlink()  # by these SQLite sees on one machine who is dead
    other = crew.worker()

    program.popen.kill()
    program.popen.wait()
    ends_at = job.refresh().lease_expires_at or 0

    assert crew.has_begun(1, 2).pid == other.popen.pid
    again = job.refresh()
    assert (again.attempt, again.crashes) == (2, 1)
    assert (again.started_at or 0) >= ends_at


def test_jobs_that_a_dead_process_had_not_started_do_not_count(crew: Crew) -> None:
    jobs = [crew.enqueue("clutch_loop", 0, True, queue="loop", priority=100)]
    jobs += [crew.enqueue("clutch_loop", number, False, queue="loop") for number in range(1, 5)]
    crew.worker("--queues", "loop", processes=1)
    first = crew.has_begun(0).pid
    other = crew.worker("--queues", "loop")

    os.kill(first, signal.SIGKILL)
    crew.touch("let go")

    records = [crew.final(job) for job in jobs[1:]]
    assert {(record.state, record.crashes) for record in records} == {(JobState.COMPLETED, 0)}
    assert crew.final(jobs[0]).crashes == 1
    other.popen.kill()


def test_a_job_that_keeps_killing_its_process_ends_in_the_dead_letters_with_that_reason(crew: Crew) -> None:
    program = crew.worker(processes=1)
    job = crew.enqueue("crash", 1, retry_policy=QUICK)

    dead = crew.final(job)

    killed = crew.began(1)[-1].pid
    reason = f"lost 3 times, the last time: worker process {killed} was killed by SIGKILL"
    assert (dead.state, dead.crashes, dead.reason) == (JobState.DEAD, 3, reason)
    assert len(crew.began(1)) == 3
    # The others live on.
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    crew.all_have_ended()


@any_store
def test_a_process_that_a_task_ends_without_a_word_is_replaced(crew: Crew) -> None:
    crew.worker(processes=1)

    dead = crew.final(crew.enqueue("leave", 1, max_crashes=0))

    assert dead.state is JobState.DEAD
    assert str(dead.reason).endswith("ended with exit status 0")
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED


@any_store
def test_a_first_process_that_is_killed_before_it_has_begun_is_replaced_too(crew: Crew) -> None:
    jobs = crew.folder / "jobs.py"
    jobs.write_text(
        "import os, pathlib, signal\n"
        "hit = pathlib.Path(__file__).with_name('hit')\n"
        "if not hit.exists():\n"
        "    hit.touch()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        + jobs.read_text().replace("from __future__ import annotations\n", "")
    )

    program = crew.worker(processes=1)

    assert crew.final(crew.enqueue("note", 1)).state is JobState.COMPLETED
    program.wait_for_output("was killed by SIGTERM")
    assert len(program.children()) == 2
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0


@any_store
def test_what_a_task_has_started_dies_with_its_process(crew: Crew) -> None:
    crew.worker(processes=1)
    crew.enqueue("spawn", 1)
    killed = crew.has_begun(1).pid
    spawned = int((crew.folder / "spawned").read_text())

    os.kill(killed, signal.SIGKILL)

    crew.has_begun(1, 2)
    eventually(lambda: spawned not in living(), DEADLINE)


@any_store
def test_after_five_restarts_in_a_minute_the_supervisor_gives_up_and_lets_the_others_end(crew: Crew) -> None:
    program = crew.worker("--threads", "1", "--drain-timeout", "30", processes=2)
    held = crew.enqueue("hold", 0)
    crew.has_begun(0)

    for number in range(1, 7):
        crew.enqueue("crash", number, max_crashes=0)

    program.wait_for_output("all workers stop")
    crew.touch("go on")
    assert program.ends() == 70
    assert "worker processes have died more than 5 times within a minute" in program.log
    assert held.refresh().state is JobState.COMPLETED
    crew.all_have_ended()


# ------------------------------------------------------------------ processes that are silent


@pytest.mark.shows("R-EDGE-81")
def test_a_task_that_holds_the_interpreter_for_three_leases_keeps_its_lease_and_finishes_once(
    crew: Crew,
) -> None:
    crew.worker(processes=2)

    job = crew.enqueue("clutch", 1, 13, lease=4)
    done = crew.final(job)

    assert (done.state, done.attempt, done.crashes) == (JobState.COMPLETED, 1, 0)
    assert len(crew.began(1)) == len(crew.ended(1)) == 1


@pytest.mark.shows("R-SWEEP-10")
def test_what_a_silent_process_has_not_started_is_run_by_others(crew: Crew) -> None:
    jobs = [crew.enqueue("clutch_loop", 0, True, queue="loop", priority=100)]
    jobs += [crew.enqueue("clutch_loop", number, False, queue="loop") for number in range(1, 3)]
    program = crew.worker("--queues", "loop", processes=1)
    silent = crew.has_begun(0).pid
    other = crew.worker("--queues", "loop")

    records = [crew.final(job) for job in jobs[1:]]
    crew.touch("let go")
    records.append(crew.final(jobs[0]))

    assert {(record.state, record.crashes) for record in records} == {(JobState.COMPLETED, 0)}
    assert [line.pid for line in crew.began(0)] == [silent]
    assert {crew.began(number)[0].pid for number in (1, 2)} == {other.popen.pid}
    assert [len(crew.ended(number)) for number in range(3)] == [1, 1, 1]
    assert "2 jobs that it has not started go back" in program.log
    other.popen.kill()


def test_a_silent_process_is_shown_as_such_while_its_job_is_within_its_time(crew: Crew) -> None:
    program = crew.worker("--queues", "loop", processes=1)
    job = crew.enqueue("clutch_loop", 1, True, queue="loop")

    eventually(lambda: [info.state for info in crew.workers()] == [WorkerState.UNRESPONSIVE], DEADLINE)
    crew.touch("let go")

    assert crew.final(job).state is JobState.COMPLETED
    eventually(lambda: [info.state for info in crew.workers()] == [WorkerState.IDLE], DEADLINE)
    assert len(program.children()) == 1


@pytest.mark.shows("R-WORK-21", "R-EDGE-63", "R-EDGE-80")
@any_store
def test_a_process_whose_loop_is_stuck_is_killed_and_replaced(crew: Crew) -> None:
    program = crew.worker(processes=1)
    crew.touch("jam")
    crew.enqueue("fail", 1, retries=0)
    eventually(lambda: not (crew.folder / "jam").exists(), DEADLINE)
    waiting = crew.enqueue("note", 2)

    assert crew.final(waiting).state is JobState.COMPLETED

    assert "has been silent" in program.log
    assert len(program.children()) == 2


@pytest.mark.shows("R-EDGE-57")
def test_a_process_that_is_stopped_from_outside_is_killed_and_its_jobs_run_elsewhere(crew: Crew) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1, timeout=5)
    stopped = crew.has_begun(1).pid

    os.kill(stopped, signal.SIGSTOP)

    assert crew.has_begun(1, 2).pid != stopped
    crew.touch("go on")
    assert crew.final(job).state is JobState.COMPLETED
    program.wait_for_output(f"worker process {stopped} was killed by SIGKILL")


@pytest.mark.extended  # it waits a minute for SQLite to give up
@any_store
def test_a_process_that_is_stopped_with_the_lock_of_a_file_is_killed_though_no_process_can_write(
    crew: Crew,
) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("lock", 1, timeout=5)
    stopped = crew.has_begun(1).pid

    assert crew.has_begun(1, 2, seconds=400).pid != stopped
    assert crew.final(job).state is JobState.COMPLETED
    program.wait_for_output(f"worker process {stopped} was killed by SIGKILL")


# ------------------------------------------------------------------ as the first process


FIRST = """
import ctypes, os, sys

libc = ctypes.CDLL(None)
NEWPID, NEWUSER, SUBREAPER = 0x20000000, 0x10000000, 36
is_first = libc.unshare(NEWPID) == 0 or libc.unshare(NEWPID | NEWUSER) == 0
if not is_first:
    libc.prctl(SUBREAPER, 1, 0, 0, 0)  # the kernel allows neither; this one is given the orphans too
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
pid = os.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
open("first", "w").write(str(pid))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@any_store
def test_as_the_first_process_it_reaps_strangers_and_stops_on_a_signal(crew: Crew) -> None:
    (crew.folder / "first.py").write_text(FIRST)
    program = crew.start("first.py", "-m", "forebay", "worker", "jobs:app", "--processes", "2")
    program.wait_for_output(" runs", 2)
    file = crew.folder / "first"
    first = int(file.read_text()) if file.exists() else program.popen.pid

    def strangers() -> list[int]:
        return [
            pid for pid, (parent, name) in living(dead=True).items() if parent == first and name == "sleep"
        ]

    try:
        job = crew.enqueue("orphan", 1)
        [orphan] = eventually(strangers, DEADLINE)
        os.kill(orphan, signal.SIGKILL)
        eventually(lambda: not strangers(), DEADLINE)
        assert crew.final(job).state is JobState.COMPLETED

        os.kill(first, signal.SIGTERM)
        assert program.ends() == 0
        eventually(lambda: first not in living(), DEADLINE)
    finally:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
