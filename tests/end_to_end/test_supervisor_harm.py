"""What a supervisor bears: tasks that harm their process, a store that is none, a machine that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.job_states import JobState
from tests.end_to_end.crews import DEADLINE, Crew, a_crew, living
from tests.worker.support import eventually

HARM = """

@app.task(name="nonsense")
def nonsense(number: int) -> None:
    said("began", number)
    tie = sys.argv[sys.argv.index("--child") + 1].split(":")
    os.write(int(tie[1]), b'{"type":"stop","drain":0}\\n')  # a word, but not one for a supervisor
    wait_for("go on")


@app.task(name="close")
def close(number: int) -> None:
    said("began", number)
    os.closerange(3, 256)
    wait_for("go on")


usleep = ctypes.PyDLL(None).usleep


@app.task(name="seize")
def seize(number: int) -> int:
    usleep(50_000)
    said("ended", number)
    return number


@app.task(name="fork")
def fork(number: int) -> int:
    forked = os.fork()
    if forked == 0:
        sleep(1_000)
    (folder / "forked").write_text(str(forked))
    return number
"""

# The second process that it would like to start is one that the machine cannot start.
SCARCE = """
import os, sys
from forebay.worker.supervisor.supervisor import Supervisor, SupervisorPlan

started = []

def command(channel, lease_table):
    started.append(channel)
    if len(started) == 2:
        return [os.path.join(os.getcwd(), "no such program")]
    tie = f"{os.getpid()}:{channel}:{lease_table}"
    return [sys.executable, "-m", "forebay", "worker", "jobs:app", "--child", tie]

import logging
logging.basicConfig(level=logging.INFO)
sys.exit(Supervisor(SupervisorPlan(processes=2, drain=5, command=command)).run())
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store that all processes of a test share."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def crew(tmp_path: Path, url: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url) as crew:
        with (crew.folder / "jobs.py").open("a") as code:
            code.write(HARM)
        yield crew


@pytest.mark.parametrize("harm", ["nonsense", "close"])
def test_a_process_that_cannot_talk_with_its_supervisor_any_more_is_replaced(crew: Crew, harm: str) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue(harm, 1, max_crashes=0)
    killed = crew.has_begun(1).pid

    assert crew.final(job).state is JobState.DEAD
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED
    program.wait_for_output(" runs", 3)

    assert killed not in living()
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    crew.all_have_ended()


def test_tasks_that_hold_the_interpreter_from_their_first_line_on_are_run_once_each(crew: Crew) -> None:
    crew.worker("--threads", "1", processes=2)

    jobs = [crew.enqueue("seize", number, lease=10) for number in range(50)]

    records = [crew.final(job) for job in jobs]
    assert {(one.state, one.crashes, one.failures) for one in records} == {(JobState.COMPLETED, 0, 0)}
    assert sorted(line.number for line in crew.ended()) == list(range(50))


def test_what_a_task_has_left_behind_ends_with_its_process_also_when_that_stops_in_order(crew: Crew) -> None:
    program = crew.worker(processes=1)
    assert crew.final(crew.enqueue("fork", 1)).state is JobState.COMPLETED
    forked = int((crew.folder / "forked").read_text())
    assert forked in living()

    program.send_signal(signal.SIGTERM)

    assert program.ends() == 0
    eventually(lambda: forked not in living(), DEADLINE)


def test_a_process_whose_stop_hook_hangs_does_not_stay_for_ever(crew: Crew) -> None:
    with (crew.folder / "jobs.py").open("a") as code:
        code.write("\n\n@app.on_stop\ndef hang() -> None:\n    sleep(3_600)\n")
    program = crew.worker("--max-jobs", "1", "--drain-timeout", "1", processes=1)
    assert crew.final(crew.enqueue("note", 1)).state is JobState.COMPLETED
    hanging = program.children()[0]

    program.wait_for_output("does not leave, and is killed")

    eventually(lambda: hanging not in living(), DEADLINE)
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED


def test_a_store_that_can_never_be_used_ends_the_supervisor_with_its_error(crew: Crew) -> None:
    crew.app.close()
    (crew.folder / "jobs.db").write_text("this is no database\n" * 1_000)

    program = crew.start("-m", "forebay", "worker", "jobs:app", "--processes", "2")

    assert program.ends() == 3
    assert "Error: " in program.log
    assert "is not a SQLite database" in program.log
    assert "Traceback" not in program.log
    crew.all_have_ended()


def test_a_process_that_cannot_be_started_costs_the_others_nothing(crew: Crew) -> None:
    program = crew.start("-c", SCARCE)

    program.wait_for_output("no worker process can be started")
    program.wait_for_output(" runs", 2)

    assert crew.final(crew.enqueue("note", 1)).state is JobState.COMPLETED
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0


def test_a_supervisor_loads_neither_the_parts_of_a_worker_nor_large_libraries(tmp_path: Path) -> None:
    """Thirty megabytes are promised, and OpenSSL alone would take three."""
    code = (
        "import sys; from forebay.cli import main, settings; from forebay.cli.commands import run_worker; "
        "from forebay.worker.supervisor import supervisor; from forebay.stores.factory import open_engine; "
        "engine = open_engine(sys.argv[1]); store = engine.store(); store.close(); engine.reader().close(); "
        "print(*sys.modules)"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{tmp_path}/jobs.db"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    ).stdout.split()

    assert "forebay.stores.sqlite.store" in loaded
    unwanted = {"asyncio", "ssl", "_hashlib", "_lzma", "zipfile", "multiprocessing", "forebay.worker.worker"}
    assert unwanted.isdisjoint(loaded)
