"""Child processes of `forebay dev`: their output lines carry the name of the process."""

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
    """Printer of output lines, one at a time: as text with the name of the process, or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._lock = Lock()

    def print_line(self, part: str, line: str) -> None:
        formatted = _format_json_line(part, line) if self.as_json else _format_text_line(part, line)
        # The terminal may be closed; an error about it would reach no reader.
        with self._lock, suppress(OSError):
            click.echo(formatted)


def _format_text_line(part: str, line: str) -> str:
    return f"{click.style(part.ljust(_WIDTH), fg=COLOURS.get(part))} | {line}"


def _format_json_line(part: str, line: str) -> str:
    """Return a line of JSON, also for output that is not JSON: tasks may print anything."""
    try:
        decoded: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        decoded = None
    fields = decoded if isinstance(decoded, dict) else {"message": line}
    return msgspec.json.encode({"part": part, **fields}).decode()


class DevProcess:
    """Command in a child process.

    The child has its own process group: Ctrl-C reaches only the parent, which stops its children one after
    the other. `on_line` is called with each output line, `on_exit` when the process has ended. The end of the
    pipe is no sign of that: a process that a task left behind may hold it open.
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
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # output of tasks appears at once
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
        """Send a signal, if the process is alive."""
        if self.status is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process group: the process, and processes that its tasks left behind."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process group and join the threads."""
        self.kill()
        self._watcher.join(_JOIN_SECONDS)
        self._reader.join(_JOIN_SECONDS)
