"""`forebay top`: queues, workers, running jobs and the newest failures, live in a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from time import monotonic
from typing import Any, Final

import click

from forebay.cli.options import with_store
from forebay.cli.output import Output, format_duration, print_table
from forebay.cli.store_session import StoreSession
from forebay.cli.top.keyboard import open_keyboard
from forebay.cli.top.snapshot import (
    FAILURE_HEADS,
    QUEUE_HEADS,
    RUNNING_HEADS,
    SORTS,
    WORKER_HEADS,
    StoreSnapshot,
    format_summary,
    snapshot_json,
    take_snapshot,
)
from forebay.cli.top.view_settings import LONGEST_SECONDS, SHORTEST_SECONDS, TopView
from forebay.errors import StoreError
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS

_ONCE_ROWS: Final = 10


@click.command()
@click.option(
    "--every",
    type=click.FloatRange(SHORTEST_SECONDS, LONGEST_SECONDS),
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="pending",
    show_default=True,
    help="Order of the queues.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option(
    "--window",
    type=click.IntRange(10, MAX_WINDOW_MS // 1_000),
    default=DEFAULT_WINDOW_MS // 1_000,
    show_default=True,
    help="Length of the window for rates, in seconds.",
)
@click.option("--once", is_flag=True, help="Print one snapshot; this is the default without a terminal.")
@with_store()
def top(
    session: StoreSession, out: Output, every: float, sort: str, reverse: bool, window: int, once: bool
) -> None:
    """Show queues, workers, running jobs and the newest failures, live in a terminal.

    Keys: q quits, p pauses and resumes, s sorts queues by the next column, r reverses the order, + and -
    change the interval, space refreshes at once.
    """
    view = TopView(sort=sort, every=every, is_reversed=reverse)
    if once or out.as_json or not _is_live():
        _print_once(session, out, take_snapshot(session.reader, window * 1_000), view)
        return
    with suppress(KeyboardInterrupt):
        _run_live(session, view, window * 1_000)


def _is_live() -> bool:
    """Return whether input and output are a terminal that can be drawn on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if find_spec("termios") is None:
        click.echo("Printed once because keys are read only on Linux and macOS", err=True)
        return False
    try:
        import rich.live  # noqa: F401, PLC0415 - slow to import, and may be missing
    except ImportError as exc:
        click.echo(f"Printed once, because {exc.name} is missing: pip install 'forebay[cli]'", err=True)
        return False
    return True


def _print_once(session: StoreSession, out: Output, snapshot: StoreSnapshot, view: TopView) -> None:
    def print_text() -> None:
        click.echo(format_summary(session.name, snapshot))
        rows = [line.cells for line in snapshot.sort_rows(view.sort, is_reversed=view.is_reversed)]
        print_table(QUEUE_HEADS, rows, title=f"Queues, in the last {format_duration(snapshot.window_ms)}")
        print_table(WORKER_HEADS, snapshot.worker_rows(), title="Workers")
        print_table(RUNNING_HEADS, snapshot.running_rows()[:_ONCE_ROWS], title="Running jobs")
        print_table(FAILURE_HEADS, snapshot.failure_rows()[:_ONCE_ROWS], title="Newest failures")

    out.print_result(
        snapshot_json(session.name, snapshot, view.sort, is_reversed=view.is_reversed), print_text
    )


def _run_live(session: StoreSession, view: TopView, window_ms: int) -> None:
    from forebay.cli.top.screen import open_screen, render  # noqa: PLC0415 - rich is slow to import

    snapshot: StoreSnapshot | None = None
    with open_keyboard() as wait, open_screen() as live:
        next_refresh = monotonic()
        while not view.is_over:
            if view.is_due or (not view.is_paused and monotonic() >= next_refresh):
                snapshot, view = _refresh(session, snapshot, view, window_ms)
                next_refresh = monotonic() + view.every
            live.update(render(session.name, snapshot, view, live.console.size), refresh=True)
            for key in _split_keys(wait(view.every if view.is_paused else next_refresh - monotonic())):
                view = view.apply_key(key)


def _refresh(
    session: StoreSession, snapshot: StoreSnapshot | None, view: TopView, window_ms: int
) -> tuple[StoreSnapshot | None, TopView]:
    """Return a new snapshot, or the old one with the error: the store may come back."""
    try:
        return take_snapshot(session.reader, window_ms), replace(view, is_due=False, error="")
    except StoreError as exc:
        return snapshot, replace(view, is_due=False, error=str(exc))


def _split_keys(typed: str) -> Any:
    """Return single keys; none for the escape sequence of an arrow or function key."""
    return () if typed.startswith("\x1b[") or typed.startswith("\x1bO") else typed
