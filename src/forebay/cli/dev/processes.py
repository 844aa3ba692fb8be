"""Child processes of `forebay dev`: started, stopped, and their output printed with their names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final

import click
import msgspec

from forebay.dashboard.static_files import ROOT, is_built
from forebay.worker.coordinator_inbox import WakeSignal

COLOURS: Final = {"dev": "green", "worker": "cyan", "server": "magenta"}
_WIDTH: Final = max(map(len, COLOURS))
_JOIN_SECONDS: Final = 1.0
_SERVING: Final = "serving "
_POLL_SECONDS: Final = 1.0
_KILL_AFTER_SIGNALS: Final = 3  # after this many signals the processes are killed


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


class ProcessGroup:
    """Child processes in the order in which they start. The worker stops first, so that the dashboard is
    available until no job runs."""

    def __init__(self, printer: LinePrinter, server: list[str], worker: list[str]) -> None:
        self._printer = printer
        self._arguments = {"server": server, "worker": worker}
        self._processes: list[DevProcess] = []
        self._wake_signal = WakeSignal()
        self._signals: deque[int] = deque()
        self._address = ""

    def on_signal(self, number: int, _: object) -> None:
        """Record a signal. Runs in the main thread, between any two bytecodes."""
        self._signals.append(number)
        self._wake_signal.set()

    def run(self) -> int:
        """Run until a signal arrives or a process ends; return the exit status."""
        try:
            self._start("server")
            self._wait(lambda: bool(self._address))
            if not self._is_over:
                self._start("worker")
                self._print_address()
                self._wait(lambda: False)
            return self._stop()
        finally:
            for process in self._processes:
                process.close()

    def _start(self, name: str) -> None:
        process = DevProcess(
            name, self._arguments[name], self._printer, on_line=self._on_line, on_exit=self._wake_signal.set
        )
        self._processes.append(process)

    def _on_line(self, line: str) -> None:
        if not self._address and line.startswith(_SERVING):
            self._address = line.rsplit(maxsplit=1)[-1]
            self._wake_signal.set()

    @property
    def _is_over(self) -> bool:
        return bool(self._signals) or any(process.is_over.is_set() for process in self._processes)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        while not self._is_over and not is_done():
            self._wake_signal.wait(_POLL_SECONDS)

    def _print_address(self) -> None:
        page = f"{self._address}{ROOT}"
        if not is_built():
            page += " (not built, see the line of the server above)"
        self._printer.print_line("dev", f"the dashboard is at {page}")
        if "--reload" in self._arguments["worker"]:
            self._printer.print_line("dev", f"code below {Path.cwd()} is watched")
        self._printer.print_line("dev", "Ctrl-C stops all")

    def _stop(self) -> int:
        """Stop the processes one after the other, newest first; return the status of the one that ended by
        itself."""
        ended = [process for process in self._processes if process.is_over.is_set()]
        for process in ended:
            self._printer.print_line(
                "dev", f"the {process.name} has ended with status {process.status}, so all are stopped"
            )
        for process in reversed([process for process in self._processes if not process.is_over.is_set()]):
            self._printer.print_line("dev", f"stopping the {process.name}")
            process.send_signal(signal.SIGTERM)
            handled = len(self._signals)
            while not process.is_over.is_set():
                self._wake_signal.wait(_POLL_SECONDS)
                if len(self._signals) > handled:
                    handled = len(self._signals)
                    if handled >= _KILL_AFTER_SIGNALS:
                        process.kill()
                    else:
                        process.send_signal(signal.SIGTERM)  # a second signal stops it at once
        status = next((process.status or 0 for process in ended), 0)
        self._printer.print_line("dev", "all processes have stopped")
        return status if status >= 0 else 128 - status


@contextmanager
def forward_signals(group: ProcessGroup) -> Iterator[None]:
    """Forward stop signals to the group; restore the old handlers at the end."""
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, group.on_signal))
        yield
