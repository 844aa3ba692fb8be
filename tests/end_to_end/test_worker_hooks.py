"""Hooks and log lines of a worker that is a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.worker.support import eventually

MODULE: Final = """
from __future__ import annotations

import logging
from pathlib import Path

from forebay import Forebay, current_job

app = Forebay(URL)
folder = Path(__file__).parent


@app.on_start
async def up() -> None:
    if (folder / "broken").exists():
        raise OSError("the model is missing")
    (folder / "up").touch()


@app.on_stop
def down() -> None:
    (folder / "down").touch()


@app.task(name="speak")
def speak() -> None:
    logging.getLogger("mine").warning("hello from a job")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a store that several processes can open."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def process(tmp_path: Path, url: str) -> Iterator[list[Process]]:
    """The processes of a test; all have ended when it is over."""
    (tmp_path / "jobs.py").write_text(MODULE.replace("URL", repr(url)))
    started: list[Process] = []
    yield started
    for one in started:
        one.popen.kill()
        one.popen.wait()


def test_a_worker_process_calls_its_hooks_and_names_jobs_in_its_log(
    tmp_path: Path, url: str, process: list[Process]
) -> None:
    with Forebay(url) as app:
        job = app.enqueue("speak")
        process.append(Process(tmp_path))
        job.wait(timeout=DEADLINE)
        was_up, was_down = (tmp_path / "up").exists(), (tmp_path / "down").exists()
        process[0].send_signal(signal.SIGTERM)
        status = process[0].ends()

    assert (was_up, was_down, status) == (True, False, 0)
    assert (tmp_path / "down").exists()
    assert f"WARNING mine [speak {job.id} #1] hello from a job" in process[0].log


def test_a_start_hook_that_fails_ends_the_process_with_its_error(
    tmp_path: Path, url: str, process: list[Process]
) -> None:
    (tmp_path / "broken").touch()
    with Forebay(url) as app:
        job = app.enqueue("speak")
        process.append(Process(tmp_path))
        status = process[0].ends()
        eventually(lambda: not app.client.read(lambda reader: reader.workers()))
        left = job.refresh()

    assert status != 0
    assert "the model is missing" in process[0].log
    assert "in up" in process[0].log  # the traceback
    assert (left.state, left.attempt) == ("pending", 0)
    assert not (tmp_path / "down").exists()
