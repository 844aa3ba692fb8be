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
_LAST_WORDS_SECONDS: Final = 1.0


class Screen:
    """Where lines are shown, one at a time: for people under the name of their part, for programs as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._lock = Lock()

    def show(self, part: str, line: str) -> None:
        made = _json_line(part, line) if self.as_json else _plain_line(part, line)
        # Somebody who closes the terminal wants an end of it, and not an error.
        with self._lock, suppress(OSError):
            click.echo(made)


def _plain_line(part: str, line: str) -> str:
    return f"{click.style(part.ljust(_WIDTH), fg=COLOURS.get(part))} | {line}"


def _json_line(part: str, line: str) -> str:
    """A line of JSON, whatever the part has said: tasks print what they like."""
    try:
        said: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        said = None
    told = said if isinstance(said, dict) else {"message": line}
    return msgspec.json.encode({"part": part, **told}).decode()


class Part:
    """A command that runs in a process of its own, until it ends or is told to.

    It has a process group of its own: Ctrl-C reaches only the program that has started it, which tells the
    parts one after the other. `hear` is called with each of its lines, `over` when it has ended: not when its
    pipe is closed, which a process that a task has left behind would hold open.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        screen: Screen,
        *,
        hear: Callable[[str], None] = lambda line: None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._screen = screen
        self._hear = hear
        self._over = over
        self.is_over: Event = Event()
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "forebay.cli.tethered", str(os.getpid()), *words],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # what a task prints is seen when it does
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
        self._reader = Thread(target=self._read, name=f"forebay-{name}", daemon=True)
        self._reader.start()
        self._watcher = Thread(target=self._watch, name=f"forebay-{name}-end", daemon=True)
        self._watcher.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._screen.show(self.name, line.rstrip("\n"))
            self._hear(line)

    def _watch(self) -> None:
        self._process.wait()
        self._reader.join(_LAST_WORDS_SECONDS)
        self.is_over.set()
        self._over()

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def tell(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.status is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and whatever its tasks have started and left behind."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Leave nothing of it behind."""
        self.kill()
        self._watcher.join(_LAST_WORDS_SECONDS)
        self._reader.join(_LAST_WORDS_SECONDS)
