"""A worker that is paused past its lease and continued cannot write its result."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.settlement import OutcomeKind
from tests.worker.support import eventually

# The lease is a second; the sweep of another worker holds back for twelve after its start.
DEADLINE = 120.0

PROGRAM = """
import sys
from pathlib import Path
from time import sleep

from forebay import Forebay, current_job

app = Forebay(sys.argv[1])
folder = Path(sys.argv[2])

@app.task(name="work", lease=1)
def work() -> str:
    context = current_job()
    (folder / f"started-{context.attempt}").write_text(context.fencing_token.worker)
    while context.attempt == 1 and not (folder / "go on").exists():
        sleep(0.01)
    (folder / f"ended-{context.attempt}").write_text(str(context.is_lease_lost))
    return f"attempt {context.attempt}"

if __name__ == "__main__":
    with app, app.run_worker(threads=2):
        print("ready", flush=True)
        sys.stdin.read()
"""


@contextmanager
def worker(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker process that is up; it does not outlive the block."""
    command = [sys.executable, "-c", PROGRAM, url, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def pause(process: subprocess.Popen[str], file: Path) -> None:
    """Stop it while it does not write: in the middle of that it would lock the file for all others."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        while True:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            try:
                connection.executescript("begin immediate; rollback")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)


@pytest.mark.shows("R-LEASE-27", "R-LEASE-45")
@pytest.mark.shows("R-EDGE-03", "R-EDGE-04", "R-SWEEP-04", "R-SWEEP-05")
def test_the_result_of_a_paused_worker_is_refused_and_the_history_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = Forebay(url)

    @app.task(name="work", lease=1)
    def work() -> str:
        raise NotImplementedError

    with app, worker(url, tmp_path) as paused:
        job = work.enqueue()
        eventually((tmp_path / "started-1").exists, DEADLINE)
        pause(paused, tmp_path / "jobs.db")
        with worker(url, tmp_path):
            assert job.result(DEADLINE) == "attempt 2"

        (tmp_path / "go on").touch()
        paused.send_signal(signal.SIGCONT)
        eventually((tmp_path / "ended-1").exists, DEADLINE)
        eventually(lambda: EventKind.REFUSED in [one.kind for one in job.history().events], DEADLINE)
        paused.communicate(timeout=DEADLINE)

        record, history = job.refresh(), job.history()
        assert paused.returncode == 0
        assert (record.state, record.attempt, job.result()) == (JobState.COMPLETED, 2, "attempt 2")
        holder = (tmp_path / "started-1").read_text()
        [refused] = [one for one in history.events if one.kind is EventKind.REFUSED]
        assert (refused.actor, refused.attempt) == (holder, 1)
        [lost] = history.attempts
        assert (lost.attempt, lost.outcome, lost.worker) == (1, OutcomeKind.LOST, holder)
