"""Progress of a command that takes a while: a moving bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import IO, Final, TextIO

BAR: Final = 20
BLOCK: Final = 5
MOVE_SECONDS: Final = 0.1
LINE_SECONDS: Final = 5.0
LINE: Final = 100
CLEAR: Final = "\r\x1b[K"
LAST_LINES: Final = 15


class Failed(Exception):
    """A command ended with a status other than 0, or could not be started."""


class Progress:
    """Report what is being done, for how long, and the latest detail.

    A terminal gets one line that moves and is replaced by the last one. Anything else gets a line at the
    start, one in every five seconds, and one at the end.
    """

    def __init__(
        self, what: str, stream: TextIO | None = None, *, line_seconds: float = LINE_SECONDS
    ) -> None:
        self._what = what
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._pause = MOVE_SECONDS if self._is_terminal else line_seconds
        self._began = time.monotonic()
        self._is_over = Event()
        self._detail = ""
        self._ticker = Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        if not self._is_terminal:
            self._write(f"{self._what} ...\n")
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over.set()
        self._ticker.join()
        end = "failed" if kind else "done"
        self._write(f"{CLEAR if self._is_terminal else ''}{self._what}: {end} after {self._seconds} s\n")

    def note(self, detail: str) -> None:
        """Set the detail that the next line shows."""
        self._detail = detail

    @property
    def _seconds(self) -> int:
        return round(time.monotonic() - self._began)

    def _tick(self) -> None:
        step = 0
        while not self._is_over.wait(self._pause):
            if self._is_terminal:
                line = f"{self._what} {bar(step)} {self._seconds:3} s  {self._detail}"
                self._write(CLEAR + line[: shutil.get_terminal_size().columns - 1])
            else:
                self._write(f"  {self._seconds} s: {self._detail or 'still at work'}"[:LINE] + "\n")
            step += 1

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def bar(step: int) -> str:
    """Draw a block that moves to and fro, one place in each step."""
    room = BAR - BLOCK
    place = room - abs(step % (2 * room) - room)
    return f"[{' ' * place}{'=' * BLOCK}{' ' * (room - place)}]"


def run(what: str, command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command with progress; its last lines are printed, and `Failed` raised, if it fails."""
    lines: list[str] = []
    try:
        with Progress(what) as progress:
            with _started(command, cwd, env) as process:
                for line in _output(process):
                    lines.append(line.rstrip())
                    progress.note(line.strip())
            if process.returncode:
                raise Failed(f"{Path(command[0]).name} ended with status {process.returncode}")
    except Failed:
        print("\n".join(f"  {line}" for line in lines[-LAST_LINES:]), file=sys.stderr, flush=True)
        raise


def _started(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as exc:
        raise Failed(f"{command[0]}: {exc.strerror}") from exc


def _output(process: subprocess.Popen[str]) -> list[str] | IO[str]:
    return process.stdout or []
