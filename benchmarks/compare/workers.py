"""The worker processes of one system, started and ended by the benchmark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.compare.notes import NAME, Noted, noted, now
from benchmarks.compare.systems import TOP, System


class Failed(Exception):
    """A system could not do what was asked of it; the text holds its last words."""


class Workers:
    def __init__(self, system: System, folder: Path, started: list[subprocess.Popen[bytes]], began: float):
        self.system = system
        self.folder = folder  # of the notes
        self.began = began
        self._started = started

    def wait(self, jobs: int, seconds: float) -> Noted:
        """Until so many jobs have been noted."""
        ends = time.monotonic() + seconds
        while (found := noted(self.folder)).jobs < jobs:
            if time.monotonic() > ends:
                raise Failed(f"{found.jobs} of {jobs} jobs after {seconds:.0f} s; {self.last_words()}")
            if any(process.poll() is not None for process in self._started):
                raise Failed(f"a worker ended by itself; {self.last_words()}")
            time.sleep(0.005)
        return found

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._started]

    def resident_mb(self) -> list[float]:
        """What each process holds, those included that the started ones have started."""
        listed = subprocess.run(["ps", "-ax", "-o", "pid=,pgid=,rss="], capture_output=True, check=True)
        groups = {process.pid for process in self._started}
        rows = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
        return [rss / 1_024 for _, group, rss in rows if group in groups]

    def last_words(self) -> str:
        log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        return " ".join(log.split()[-60:])

    def kill(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def cpu_seconds(roots: Sequence[int]) -> float:
    """Of these processes, their children and theirs, those included that have ended; 0 where there is no
    /proc."""
    ticks, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    family = {pid for pid in roots if pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


class Place(NamedTuple):
    """Where a system runs: the environment of its processes and their folder of notes."""

    environment: Mapping[str, str]
    notes: Path


@contextmanager
def place(system: System, url: str) -> Iterator[Place]:
    notes = Path(tempfile.mkdtemp(prefix="forebay-notes-"))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Modules are compiled once, as an installation does it, and not into the sources.
    path = os.pathsep.join([*system.path, *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(TOP / "build" / "compare" / "compiled")}
    store = {"COMPARE_URL": url + system.options, NAME: str(notes)}
    try:
        yield Place({**kept, **ours, **store, **system.settings}, notes)
    finally:
        shutil.rmtree(notes, ignore_errors=True)


@contextmanager
def working(system: System, where: Place, extra: str = "") -> Iterator[Workers]:
    began, started = now(), list[subprocess.Popen[bytes]]()
    workers = Workers(system, where.notes, started, began)
    try:
        with (where.notes / "log").open("ab") as log:
            for number in range(system.workers):
                words, environment = system.words(number, extra), where.environment
                started.append(
                    subprocess.Popen(
                        words, cwd=TOP, env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )
        yield workers
    finally:
        workers.kill()
