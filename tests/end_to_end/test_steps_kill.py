"""A worker process dies between two steps of a job: another one goes on where it was."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

MODULE: Final = """
from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from forebay import Forebay, current_job

app = Forebay(URL)
folder = Path(__file__).parent


def do(name: str) -> str:
    with (folder / "done.txt").open("a") as file:
        file.write(f"{name} {current_job().attempt} {os.getpid()}\\n")
    return f"{name} by attempt {current_job().attempt}"


@app.task(name="travel")
def travel() -> list[str]:
    job = current_job()
    job.progress(0, 2, "packing")
    first = job.step("pack", do, "pack")
    if job.attempt == 1:
        (folder / "between").touch()
        while True:
            sleep(0.01)
    return [first, job.step("go", do, "go")]
"""


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that several processes can open."""
    return url_of(request.param, tmp_path)


@pytest.mark.shows("R-IDEM-06")
def test_a_step_that_was_done_before_the_kill_is_not_done_again(tmp_path: Path, url: str) -> None:
    (tmp_path / "jobs.py").write_text(MODULE.replace("URL", repr(url)))
    processes: list[Process] = []
    with Forebay(url) as app:
        try:
            job = app.enqueue("travel", lease=5)
            processes.append(Process(tmp_path, "--threads", "1"))
            eventually((tmp_path / "between").exists, DEADLINE)
            processes[0].send_signal(signal.SIGKILL)
            processes[0].ends()

            processes.append(Process(tmp_path, "--threads", "1"))
            result = job.result(timeout=DEADLINE)
        finally:
            for process in processes:
                process.popen.kill()
                process.popen.wait()

        notes = job.history().progress
    done = [line.split() for line in (tmp_path / "done.txt").read_text().splitlines()]
    assert result == ["pack by attempt 1", "go by attempt 2"]
    assert [(name, attempt) for name, attempt, _ in done] == [("pack", "1"), ("go", "2")]
    assert len({pid for _, _, pid in done}) == 2
    assert [(step.name, step.attempt) for step in notes.steps] == [("pack", 1), ("go", 2)]
