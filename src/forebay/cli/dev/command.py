"""`forebay dev`: a worker, the service and its dashboard in one terminal, for development."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from forebay.cli.app_loader import load_app
from forebay.cli.dev.processes import DevProcess, LinePrinter
from forebay.cli.platform_check import not_on_windows
from forebay.dashboard.static_files import ROOT, is_built
from forebay.errors import ConfigError
from forebay.worker.coordinator_inbox import WakeSignal

MAX_PORT: Final = 65_535
_SERVING: Final = "serving "
_SHUTDOWN_SECONDS: Final = 2  # for requests; an open dashboard is disconnected at once
_POLL_SECONDS: Final = 1.0
_KILL_AFTER_SIGNALS: Final = 3  # after this many signals the processes are killed


@click.command(epilog="Example: `forebay dev tasks:app --port 8081`.")
@click.argument("app")
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=8_080,
    show_default=True,
    help="Port of the service and its dashboard; 0 takes a free one.",
)
@click.option("--reload/--no-reload", default=True, show_default=True, help="Reload code when it changes.")
@click.option("--queues", "-q", help="Queues to work on, as for `forebay worker --queues`.")
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0, 86_400),
    default=5.0,
    show_default=True,
    help="Seconds to let running jobs end on a stop or reload.",
)
@click.option("--json", "as_json", is_flag=True, help="Log lines of JSON, each with the name of its process.")
@click.pass_context
@not_on_windows
def dev(
    ctx: click.Context,
    app: str,
    port: int,
    reload: bool,
    queues: str | None,
    drain_timeout: float,
    as_json: bool,
) -> None:
    """Run a worker, the service and its dashboard in one terminal, for development.

    APP is named as package.module:app. Ctrl-C lets running jobs end, then stops the worker, then the service.
    A second Ctrl-C stops at once, a third one kills. If one process ends by itself, all are stopped.
    """
    if reload and find_spec("watchfiles") is None:
        raise ConfigError(
            "watching code needs watchfiles: pip install 'forebay[reload]', or add --no-reload to do without"
        )
    _check_store(app)
    config = ["--config", str(ctx.obj)] if ctx.obj else []
    logs = ["--log-format", "json"] if as_json else []
    server = [
        *config,
        "server",
        "--app",
        app,
        "--port",
        str(port),
        "--shutdown-timeout",
        str(_SHUTDOWN_SECONDS),
        *logs,
    ]
    worker = [*config, "worker", app, "--drain-timeout", str(drain_timeout), *logs]
    worker += ["--queues", queues] if queues else []
    group = ProcessGroup(LinePrinter(as_json=as_json), server, [*worker, "--reload"] if reload else worker)
    with _forward_signals(group):
        status = group.run()
    if status:
        ctx.exit(status)


def _check_store(app: str) -> None:
    """Raise ConfigError for an unusable app, before two processes report it."""
    found = load_app(app)
    try:
        if not found.engine.features.is_shared:
            raise ConfigError(
                f"the store of {app} lives inside one program, and `forebay dev` runs two: name another one, "
                "such as sqlite:///jobs.db"
            )
    finally:
        found.close()


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
def _forward_signals(group: ProcessGroup) -> Iterator[None]:
    """Forward stop signals to the group; restore the old handlers at the end."""
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, group.on_signal))
        yield
