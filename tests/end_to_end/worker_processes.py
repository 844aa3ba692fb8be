"""A worker as a process of its own, on an app with a few tasks, and what it has written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from forebay import Forebay, JobHandle
from forebay.domain.job_states import JobState
from tests.worker.support import eventually

# Nothing here takes this long unless something is broken; the machine may be busy with other tests.
DEADLINE: Final = 120.0

MODULE: Final = """
from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from forebay import Forebay

app = Forebay("sqlite:///jobs.db")
folder = Path(__file__).parent


@app.task(name="note")
def note(number: int) -> int:
    with (folder / "ran.txt").open("a") as file:
        file.write(f"{os.getpid()} {number}\\n")
    return number


@app.task(name="hold")
def hold(number: int) -> int:
    (folder / f"started-{number}").touch()
    while not (folder / "go on").exists():
        sleep(0.01)
    return note(number)
"""


class Process:
    """One worker process in a folder; its log goes to a file."""

    def __init__(self, folder: Path, *options: str, app: str = "jobs:app") -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}.txt"
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "forebay", "worker", app, *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # What the machine's owner has set must not affect the test.
                env={name: value for name, value in os.environ.items() if not name.startswith("FOREBAY")},
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for_output(self, words: str) -> None:
        """Wait until the log has these words."""
        eventually(lambda: words in self.log or self.popen.poll() is not None, DEADLINE)
        assert words in self.log, self.log

    def send_signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def ends(self) -> int:
        """Wait for its end; its exit status."""
        return self.popen.wait(DEADLINE)


class Place:
    """A folder with an app in it, its store, and the worker processes that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[Process] = []
        (folder / "jobs.py").write_text(MODULE)
        self.app = Forebay(f"sqlite:///{folder}/jobs.db")
        self.note = self.app.task(name="note")(_elsewhere)
        self.hold = self.app.task(name="hold")(_elsewhere)

    def worker(self, *options: str) -> Process:
        """A worker process that is up."""
        process = self.start(*options)
        process.wait_for_output("runs")
        return process

    def start(self, *options: str, app: str = "jobs:app") -> Process:
        process = Process(self.folder, *options, app=app)
        self._processes.append(process)
        return process

    def has_started(self, number: int) -> None:
        eventually((self.folder / f"started-{number}").exists, DEADLINE)

    def go_on(self) -> None:
        """Let jobs that hold come to their end."""
        (self.folder / "go on").touch()

    def ran(self) -> list[tuple[int, int]]:
        """Which process has brought which job to its end, in order; written by the jobs themselves."""
        file = self.folder / "ran.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def states(self, jobs: list[JobHandle[int]]) -> list[JobState]:
        return [job.refresh().state for job in jobs]

    def workers(self) -> list[str]:
        return [info.id for info in self.app.client.read(lambda reader: reader.workers())]

    def close(self) -> None:
        for process in self._processes:
            process.popen.kill()
            process.popen.wait()
        self.app.close()


def _elsewhere(number: int) -> int:
    raise NotImplementedError(f"job {number} is run by a worker process")


@contextmanager
def a_place(folder: Path) -> Iterator[Place]:
    place = Place(folder)
    try:
        yield place
    finally:
        place.close()
