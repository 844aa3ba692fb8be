"""A supervisor with worker processes, on an app whose tasks do what tasks should not, and what they wrote."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from forebay import Forebay, JobHandle
from forebay.domain.job import Job
from forebay.domain.worker import WorkerInfo
from tests.worker.support import eventually

# Nothing here takes this long unless something is broken; the machine may be busy with other tests.
DEADLINE: Final = 120.0
# More than ten times what is promised for a job of a dead worker process, and less than its lease.
AGAIN: Final = 20.0

MODULE: Final = """
from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep

from forebay import Forebay, current_job

folder = Path(__file__).parent
app = Forebay((folder / "url").read_text())
kept = []


def said(file: str, number: int) -> None:
    with (folder / file).open("a") as lines:
        lines.write(f"{os.getpid()} {number} {current_job().attempt}\\n")


def wait_for(name: str) -> None:
    while not (folder / name).exists():
        sleep(0.01)


def hold_the_interpreter(call: str, argument: object) -> None:
    # Only while the coordinator sleeps: stopped in the middle of a transaction, it would lock a SQLite file
    # for all others. Between the look and the call no other thread has a turn.
    hold = getattr(ctypes.PyDLL(None), call)
    sys.setswitchinterval(60)
    while not coordinator_sleeps():
        sleep(0.001)
    hold(argument)
    sys.setswitchinterval(0.005)


def coordinator_sleeps() -> bool:
    [thread] = [one.ident for one in threading.enumerate() if one.name == "forebay-coordinator"]
    code = sys._current_frames()[thread].f_code
    return (Path(code.co_filename).name, code.co_name) == ("coordinator_inbox.py", "wait")


@app.task(name="note")
def note(number: int) -> int:
    said("began", number)
    said("ended", number)
    return number


@app.task(name="hold")
def hold(number: int) -> int:
    said("began", number)
    wait_for("go on")
    said("ended", number)
    return number


@app.task(name="lead")
def lead(number: int) -> int:
    said("began", number)
    current_job().follow_up(note.using(unique_key="held").job(number))
    said("ended", number)
    return number


@app.task(name="lock")
def lock(number: int) -> int:
    said("began", number)
    if current_job().attempt == 1:
        file = sqlite3.connect((folder / "url").read_text().removeprefix("sqlite:///"), timeout=60)
        file.execute("begin immediate")
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


@app.task(name="clutch")
def clutch(number: int, seconds: int) -> int:
    said("began", number)
    hold_the_interpreter("sleep", seconds)
    said("ended", number)
    return number


@app.task(name="clutch_loop", queue="loop")
async def clutch_loop(number: int, is_holding: bool) -> int:
    said("began", number)
    if is_holding:
        # Until it is reaped: a shell waits, and this process for the shell.
        hold_the_interpreter("system", b"for i in $(seq 800); do [ -e 'let go' ] && exit; sleep 0.05; done")
    said("ended", number)
    return number


@app.task(name="crash")
def crash(number: int) -> None:
    said("began", number)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="leave")
def leave(number: int) -> None:
    said("began", number)
    os._exit(0)


@app.task(name="grow")
def grow(number: int) -> int:
    kept.append(bytes([number]) * 80_000_000)
    return note(number)


@app.task(name="ignore")
def ignore(number: int) -> int:
    said("began", number)
    while not (folder / "go on").exists():
        try:
            sleep(0.01)
        except BaseException:
            pass
    return number


@app.task(name="orphan")
def orphan(number: int) -> int:
    subprocess.run(["sh", "-c", "sleep 1000 &"], check=True)
    return number


@app.task(name="spawn")
def spawn(number: int) -> int:
    child = subprocess.Popen(["sleep", "1000"])
    (folder / "spawned").write_text(str(child.pid))
    return hold(number)


@app.task(name="fail")
def fail(number: int) -> None:
    raise RuntimeError(number)


@app.on_error
def jam(job: object, error: object) -> None:
    jam = folder / "jam"
    if job is not None and jam.exists():
        jam.unlink()
        sleep(3_600)
"""


class Line(NamedTuple):
    """What a job wrote: by which process, which job, which attempt."""

    pid: int
    number: int
    attempt: int


class Supervised:
    """One `forebay worker` program in a folder; its log, and that of its children, goes to a file."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}.txt"
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, *words],
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

    def wait_for_output(self, words: str, times: int = 1) -> None:
        """Wait until the log has these words, so many times."""
        eventually(lambda: self.log.count(words) >= times or self.popen.poll() is not None, DEADLINE)
        assert self.log.count(words) >= times, self.log

    def children(self) -> list[int]:
        """All worker processes it has ever started."""
        return [int(pid) for pid in re.findall(r"worker process (\d+) starts", self.log)]

    def send_signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def ends(self) -> int:
        return self.popen.wait(DEADLINE)


class Crew:
    """A folder with the app above, its store, and the programs that were started on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        (folder / "url").write_text(url)
        (folder / "jobs.py").write_text(MODULE)
        self.app = Forebay(url)
        self._started: list[Supervised] = []

    def worker(self, *options: str, processes: int | None = None) -> Supervised:
        """A worker program that is up, with all its processes."""
        supervised = () if processes is None else ("--processes", str(processes))
        program = self.start("-m", "forebay", "worker", "jobs:app", *supervised, *options)
        program.wait_for_output(" runs", processes or 1)
        return program

    def start(self, *words: str) -> Supervised:
        program = Supervised(self.folder, *words)
        self._started.append(program)
        return program

    def enqueue(self, task: str, *args: Any, **options: Any) -> JobHandle[Any]:
        """Ask for a task of the app above; its options are those of the call: it is known by name only."""
        return self.app.enqueue(task, list(args), **options)

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def began(self, number: int | None = None) -> list[Line]:
        return self._lines("began", number)

    def ended(self, number: int | None = None) -> list[Line]:
        return self._lines("ended", number)

    def _lines(self, name: str, number: int | None) -> list[Line]:
        file = self.folder / name
        text = file.read_text() if file.exists() else ""
        lines = [Line(*map(int, line.split())) for line in text.splitlines()]
        return [line for line in lines if number in (None, line.number)]

    def has_begun(self, number: int, times: int = 1, seconds: float = DEADLINE) -> Line:
        """Wait until a job has begun so many times; the last of them."""
        eventually(lambda: len(self.began(number)) >= times, seconds)
        return self.began(number)[-1]

    def final(self, job: JobHandle[Any]) -> Job:
        return job.wait(DEADLINE)

    def workers(self) -> list[WorkerInfo]:
        return self.app.client.read(lambda reader: reader.workers())

    def all_have_ended(self) -> None:
        """Wait until no process of these programs lives."""
        pids = {pid for program in self._started for pid in (program.popen.pid, *program.children())}
        eventually(lambda: not pids & set(living()), DEADLINE)

    def close(self) -> None:
        for program in self._started:
            for pid in program.children():
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            program.popen.kill()
            program.popen.wait()
        self.app.close()


def living(*, dead: bool = False) -> dict[int, tuple[int, str]]:
    """Processes of this machine with their parents and names; with `dead` also those not yet reaped."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,ucomm="], capture_output=True, text=True, check=True
    )
    rows = (line.split(maxsplit=3) for line in listed.stdout.splitlines())
    return {
        int(pid): (int(ppid), name.split()[0])
        for pid, ppid, state, name in rows
        if dead or not state.startswith("Z")
    }


@contextmanager
def a_crew(folder: Path, url: str) -> Iterator[Crew]:
    crew = Crew(folder, url)
    try:
        yield crew
    finally:
        crew.close()
