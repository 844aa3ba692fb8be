"""A program with isolated tasks, as a worker process and as a program of its own, in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from forebay import Forebay, JobHandle
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.worker.executors.isolated_worker import is_alive
from tests.worker.support import eventually

MODULE: Final = """
import ctypes
import os
import sys
from pathlib import Path
from time import sleep

from forebay import Forebay

app = Forebay("{url}")
folder = Path(__file__).parent


def say(word: str) -> None:
    part = folder / f"{{word}}.part"
    part.write_text(str(os.getpid()))
    part.rename(folder / word)


@app.task(name="where", isolated=True)
def where(name: str) -> list[object]:
    return [name, os.getpid(), __name__]


@app.task(name="hold", isolated=True)
def hold(word: str) -> None:
    say(word)
    sleep(600)


@app.task(name="hold deaf", isolated=True)
def hold_deaf(word: str) -> None:
    say(word)
    ctypes.PyDLL(None).sleep(600)


@app.task(name="log", isolated=True)
def log() -> None:
    import logging

    logging.getLogger("jobs").info("this is logged by an isolated task")


@app.task(name="go elsewhere")
def go_elsewhere() -> None:
    os.chdir(folder / "elsewhere")


@app.task(name="fork")
def fork() -> int:
    return os.fork()  # and a copy of the process returns too


@app.task(name="folder", isolated=True)
def folder_now() -> str:
    return os.getcwd()


if __name__ == "__main__":
    with app.run_worker(isolated=1):
        if sys.argv[1] == "finish":
            print(*where.enqueue("me").result(timeout=100), os.getpid())
        else:
            hold_deaf.enqueue("pid")
            while not (folder / "pid").exists():
                sleep(0.01)
            os._exit(5)
"""


class Programs:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "jobs.py").write_text(MODULE.format(url=url))
        self.app = Forebay(url)
        self._started: list[Process] = []

    def worker(self, *options: str) -> Process:
        process = Process(self.folder, *options)
        self._started.append(process)
        process.wait_for_output("runs")
        return process

    def run(self, word: str) -> subprocess.CompletedProcess[str]:
        """The module as a program."""
        command = [sys.executable, "jobs.py", word]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    def enqueue(self, task: str, *args: Any, **options: Any) -> JobHandle[Any]:
        return self.app.enqueue(task, args, **options)

    def pid(self, word: str = "pid") -> int:
        file = self.folder / word
        return int(eventually(lambda: file.exists() and file.read_text(), DEADLINE))

    def is_gone(self, pid: int) -> None:
        eventually(lambda: not is_alive(pid), DEADLINE)

    def close(self) -> None:
        for process in self._started:
            process.popen.kill()
            process.popen.wait()
        for file in self.folder.glob("pid*"):
            # The test has failed if this one lives; it must not live on.
            if is_alive(pid := int(file.read_text())):
                os.kill(pid, 9)
        self.app.close()


@contextmanager
def programs(folder: Path, url: str) -> Iterator[Programs]:
    parts = Programs(folder, url)
    try:
        yield parts
    finally:
        parts.close()
