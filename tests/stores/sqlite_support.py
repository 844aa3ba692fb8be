"""What tests of the embedded engine share: programs beside the test, probes, a look behind the store."""

from __future__ import annotations

import atexit
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from tempfile import mkdtemp
from threading import Thread
from typing import Any, Final, TypeVar

from forebay.stores.sqlite.engine import SqliteEngine

T = TypeVar("T")

# Nothing here takes this long unless something is broken; the machine may be busy with other tests.
DEADLINE: Final = 120.0

# What every program beside a test begins with; `path` is its first argument.
PRELUDE: Final = """
import os, signal, sqlite3, sys, time
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.worker import WorkerInfo
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.sqlite.engine import SqliteEngine

path = sys.argv[1]
DEFAULT = QueueName("default")

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

def job(**fields):
    return NewJob(**{"task": "t", "payload": b"{}", **fields})
"""


@cache
def _empty() -> Path:
    folder = Path(mkdtemp(prefix="forebay-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    SqliteEngine(str(folder / "jobs.db")).store().close()
    return folder / "jobs.db"


def put_empty(path: Path) -> Path:
    """Put a store with nothing in it there: a copy is faster than to make the tables for every test."""
    shutil.copyfile(_empty(), path)
    return path


class Program:
    """A Python program beside the test that talks in lines."""

    def __init__(self, script: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: Queue[str | None] = Queue()
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self, seconds: float = DEADLINE) -> str:
        """The next line it says."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"the program has said nothing for {seconds} s") from None
        assert line is not None, f"the program ended without a word (code {self._process.wait(DEADLINE)})"
        return line

    def write_line(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def send(self, signal: int) -> None:
        self._process.send_signal(signal)

    def kill(self) -> list[str]:
        """End it as a crash would; what it had said before and no test has heard."""
        self._process.kill()
        self._process.wait(DEADLINE)
        self._reading.join(DEADLINE)
        unread = list(iter(self._lines.get, None))
        self._lines.put(None)
        return unread

    def wait(self) -> int:
        """Wait for its own end; its exit code."""
        return self._process.wait(DEADLINE)

    def close(self) -> None:
        """End it. Children of its own see the end of their input and end too."""
        self._process.kill()
        self._process.wait(DEADLINE)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._reading.join(DEADLINE)
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def program(script: str, *arguments: object) -> Iterator[Program]:
    """A program that is ended with the block, however the block ends."""
    started = Program(script, *arguments)
    try:
        yield started
    finally:
        started.close()


def probe(look: Callable[[], T], what: str, seconds: float = DEADLINE) -> T:
    """Look until there is something true to see."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.005)
    return seen


def in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """Start a call in a thread; the answer waits for its end and gives its value or its error."""
    answers: Queue[tuple[bool, Any]] = Queue()

    def run() -> None:
        try:
            answers.put((True, call()))
        except BaseException as error:  # the thread has no caller to raise it to
            answers.put((False, error))

    Thread(target=run, daemon=True).start()

    def answer() -> T:
        went_well, value = answers.get(timeout=DEADLINE)
        if not went_well:
            raise value
        return value  # type: ignore[no-any-return]

    return answer


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, to look behind the store or to spoil it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def problems(engine: SqliteEngine) -> tuple[str, ...]:
    reader = engine.reader()
    try:
        return reader.health().problems
    finally:
        reader.close()


def folder_of(path: Path) -> Path:
    """The folder beside a database."""
    return path.with_name(f"{path.name}-forebay")
