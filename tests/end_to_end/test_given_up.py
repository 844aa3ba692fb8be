"""`on_error` is called for every job that ends in the dead letters, by whichever process gives it up."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from forebay import RetryPolicy
from forebay.domain.job_states import JobState
from tests.end_to_end.crews import DEADLINE, Crew, a_crew
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

LISTENER: Final = """

@app.on_error
def tell(job: object, error: object) -> None:
    if job is not None:
        with (folder / "told").open("a") as lines:
            lines.write(f"{os.getpid()}|{job.id}|{job.state}|{job.crashes}|{job.reason}|{error.type}\\n")
"""


class ErrorReport(NamedTuple):
    """What a listener wrote: its process, the job, and the error."""

    pid: int
    job_id: str
    state: str
    crashes: int
    reason: str
    error: str


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def crew(tmp_path: Path, url: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url) as crew:
        jobs = tmp_path / "jobs.py"
        jobs.write_text(jobs.read_text() + LISTENER)
        yield crew


def error_reports(crew: Crew) -> list[ErrorReport]:
    file = crew.folder / "told"
    rows = [line.split("|") for line in (file.read_text().splitlines() if file.exists() else ())]
    return [ErrorReport(int(row[0]), row[1], row[2], int(row[3]), row[4], row[5]) for row in rows]


@pytest.mark.shows("R-WORK-13")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_listener_hears_of_a_job_that_kills_its_process_too_often(crew: Crew, processes: int) -> None:
    program = crew.worker(processes=processes)
    job = crew.enqueue("crash", 1, retry_policy=RetryPolicy(max_crashes=1, base_ms=1))

    assert crew.final(job).state is JobState.DEAD

    [heard] = eventually(lambda: error_reports(crew), DEADLINE)
    last = crew.began(1)[-1].pid
    reason = f"lost 2 times, the last time: worker process {last} was killed by SIGKILL"
    assert heard[1:] == (job.id, "dead", 2, reason, "Lost")
    # The process that died cannot have called it, and the supervisor does not load the program.
    assert heard.pid in set(program.children()) - {line.pid for line in crew.began(1)}
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert len(error_reports(crew)) == 1


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_a_job_whose_hung_process_the_supervisor_kills(crew: Crew) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1, timeout=5, max_crashes=0)
    hung = crew.has_begun(1).pid

    os.kill(hung, signal.SIGSTOP)

    program.wait_for_output(f"worker process {hung} has been silent")
    [heard] = eventually(lambda: error_reports(crew), DEADLINE)
    assert heard[1:4] == (job.id, "dead", 1)
    assert heard.pid in set(program.children()) - {hung}


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_a_job_that_another_worker_sweeps(crew: Crew) -> None:
    program = crew.worker(processes=1)
    job = crew.enqueue("hold", 1, lease=2, max_crashes=0)
    crew.has_begun(1)
    other = crew.worker()

    program.popen.kill()

    [heard] = eventually(lambda: error_reports(crew), DEADLINE)
    assert heard[:4] == (other.popen.pid, job.id, "dead", 1)
