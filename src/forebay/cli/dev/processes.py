"""Several commands in one terminal: each line they say is shown with the name of its part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Final

import click
import msgspec

COLOURS: Final = {"dev": "green", "worker": "cyan", "server": "magenta"}
_WIDTH: Final = max(map(len, COLOURS))
_JOIN_SECONDS: Final = 1.0


class LinePrinter:
    """Where lines are shown, one at a time: for people under the name of their part, for programs as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._lock = Lock()

    def print_line(self, part: str, line: str) -> None:
        made = _format_json_line(part, line) if self.as_json else _format_text_line(part, line)
        # Somebody who closes the terminal wants an end of it, and not an error.
        with self._lock, suppress(OSError):
            click.echo(made)


def _format_text_line(part: str, line: str) -> str:
    return f"{click.style(part.ljust(_WIDTH), fg=COLOURS.get(part))} | {line}"


def _format_json_line(part: str, line: str) -> str:
    """A line of JSON, whatever the part has said: tasks print what they like."""
    try:
        said: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        said = None
    told = said if isinstance(said, dict) else {"message": line}
    return msgspec.json.encode({"part": part, **told}).decode()


class DevProcess:
    """A command that runs in a process of its own, until it ends or is told to.

    It has a process group of its own: Ctrl-C reaches only the program that has started it, which tells the
    parts one after the other. `hear` is called with each of its lines, `over` when it has ended: not when its
    pipe is closed, which a process that a task has left behind would hold open.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        printer: LinePrinter,
        *,
        on_line: Callable[[str], None] = lambda line: None,
        on_exit: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._printer = printer
        self._on_line = on_line
        self._on_exit = on_exit
        self.is_over: Event = Event()
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "forebay.cli.dev.child", str(os.getpid()), *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # what a task prints is seen when it does
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
        self._reader = Thread(target=self._read_lines, name=f"forebay-{name}", daemon=True)
        self._reader.start()
        self._watcher = Thread(target=self._wait_for_exit, name=f"forebay-{name}-end", daemon=True)
        self._watcher.start()

    def _read_lines(self) -> None:
        for line in self._process.stdout or ():
            self._printer.print_line(self.name, line.rstrip("\n"))
            self._on_line(line)

    def _wait_for_exit(self) -> None:
        self._process.wait()
        self._reader.join(_JOIN_SECONDS)
        self.is_over.set()
        self._on_exit()

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.status is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and whatever its tasks have started and left behind."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing of it behind."""
        self.kill()
        self._watcher.join(_JOIN_SECONDS)
        self._reader.join(_JOIN_SECONDS)
