"""A worker for the isolated tasks of `isolated_tasks`, on any engine, and a look at the processes it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay import Forebay, JobHandle
from forebay.worker.worker import Worker
from tests.worker.executors import isolated_tasks
from tests.worker.support import DEADLINE, eventually, no_thread_stays


class Isolating:
    """An app that knows no task, and a worker that knows those of the other module."""

    def __init__(self, app: Forebay, isolated: int) -> None:
        self.app = app
        self.worker = Worker(app.engine, isolated_tasks.app.registry, isolated=isolated)

    def enqueue(self, task: str, *args: Any, **options: Any) -> JobHandle[Any]:
        return self.app.enqueue(task, args, **options)

    def result(self, task: str, *args: Any) -> Any:
        return self.enqueue(task, *args).result(timeout=DEADLINE)

    def reason(self, task: str, *args: Any, **options: Any) -> str | None:
        """Why a job that is tried once is dead."""
        return self.enqueue(task, *args, **{"retries": 0, **options}).wait(timeout=DEADLINE).reason


@contextmanager
def isolating(app: Forebay, isolated: int = 2) -> Iterator[Isolating]:
    """A worker that runs; neither a thread nor a process outlives the block."""
    with no_thread_stays(), no_process_stays():
        parts = Isolating(app, isolated)
        parts.worker.start()
        try:
            yield parts
        finally:
            parts.worker.stop(drain=0)


@contextmanager
def no_process_stays() -> Iterator[None]:
    before = children()
    yield
    eventually(lambda: not children() - before)


def children(of: int | None = None) -> set[int]:
    """The processes that were started by this one, or by that, also those that are dead and not reaped."""
    parent = str(os.getpid() if of is None else of)
    return {pid for pid in _processes() if _fields(pid)[1:2] == [parent]}


def is_alive(pid: int) -> bool:
    return _fields(pid)[:1] not in ([], ["Z"], ["X"])


def pid_in(file: Path) -> int:
    """The number that a task has written down, when it has."""
    return int(eventually(lambda: file.exists() and file.read_text()))


def is_gone(pid: int) -> None:
    eventually(lambda: not is_alive(pid))


def _processes() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]


def _fields(pid: int) -> list[str]:
    """State, parent and so on; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
