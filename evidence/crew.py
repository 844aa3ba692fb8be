"""The worker programs of a soak: several `forebay worker`, one of them with a supervisor and two worker
processes. Whatever ends is started again, as systemd would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
# The first is never hit itself: what grows with time would be seen in it.
POSTS: Final = ((), (), ("--processes", "2"))
OPTIONS: Final = ("--queues", "default,slow", "--threads", "4", "--drain-timeout", "5", "--heartbeat", "5")
END_SECONDS: Final = 60.0
GAVE_UP: Final = 70  # a supervisor whose children die again and again: our doing
NO_STORE: Final = 3  # started while the server was away


class Post:
    """A place for one worker program; when that has ended, a new one takes it."""

    def __init__(self, folder: Path, number: int, options: tuple[str, ...]) -> None:
        self._folder = folder
        self._number = number
        self._command = [sys.executable, "-m", "forebay", "worker", "jobs:app", *OPTIONS, *options]
        self._log = folder / f"log-{number}.txt"
        self.is_supervised = bool(options)
        self.started = 0
        self.popen = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        # What the machine's owner has set must not affect this.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY")}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **plain,
                    "SOAK_POST": str(self._number),
                    "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
                },
            )

    def man(self, allowed: frozenset[int]) -> str | None:
        """Start again what has ended; what is wrong with how it ended."""
        status = self.popen.poll()
        if status is None:
            return None
        self.popen = self._start()
        if status in {-signal.SIGKILL, *self.in_order(), *allowed}:
            return None
        return f"a worker program ended with {status}: see its log\n{self.tail()}"

    def in_order(self) -> set[int]:
        """With which status it may end that was not killed."""
        # Who is hit before it has taken over its signals dies of the first one.
        return {0, -signal.SIGTERM, *((GAVE_UP,) if self.is_supervised else ())}

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]

    def processes(self) -> list[int]:
        """The program and its children."""
        return [self.popen.pid, *(pid for pid in living(self._folder) if parent(pid) == self.popen.pid)]


def living(folder: Path) -> list[int]:
    """Processes that work in this folder, whatever has started them."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").resolve() == folder and not is_zombie(entry):
                found.append(int(entry.name))
    return found


def is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def parent(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def manned(folder: Path) -> Iterator[list[Post]]:
    """All posts; no process of them outlives the block."""
    posts = [Post(folder, number, options) for number, options in enumerate(POSTS)]
    try:
        yield posts
    finally:
        for pid in living(folder):
            send(pid, signal.SIGKILL)
        for post in posts:
            post.popen.wait()


def allowed_with(*, is_hit: bool) -> frozenset[int]:
    """With which status a program may end because of its store; `is_hit` if that goes away now and then."""
    return frozenset({NO_STORE}) if is_hit else frozenset()


def manned_again(posts: list[Post], allowed: frozenset[int]) -> list[str]:
    """Start again what has ended; what is wrong with how it ended."""
    return [problem for post in posts if (problem := post.man(allowed))]


def ended_in_order(folder: Path, posts: list[Post], allowed: frozenset[int]) -> Iterator[str]:
    """Ask all processes to stop; what is wrong with how they do it."""
    for post in posts:
        send(post.popen.pid, signal.SIGTERM)
    ends = time.monotonic() + END_SECONDS
    for post in posts:
        try:
            status = post.popen.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            yield f"a worker program did not stop within {END_SECONDS:g} s\n{post.tail()}"
            continue
        if status not in {*post.in_order(), *allowed}:
            yield f"a worker program that was asked to stop ended with {status}\n{post.tail()}"
    while (left := living(folder)) and time.monotonic() < ends:
        time.sleep(0.05)
    if left:
        yield f"processes {left} outlive their programs"
