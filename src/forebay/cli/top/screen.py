"""Rendering of `forebay top` with rich; imported only on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.cli.output import cell, format_duration
from forebay.cli.top.snapshot import (
    FAILURE_HEADS,
    QUEUE_HEADS,
    RUNNING_HEADS,
    WORKER_HEADS,
    StoreSnapshot,
    format_summary,
)
from forebay.cli.top.view_settings import TopView

_STATES: Final = {
    "paused": "yellow",
    "draining": "yellow",
    "dead": "red",
    "stale": "yellow",
    "unresponsive": "red",
}
_GIVES_WAY: Final = {"queue", "queues", "task", "reason", "host", "worker"}
_WIDE: Final = 110  # columns; a narrower terminal leaves out `_ONLY_WIDE`
_ONLY_WIDE: Final = {"sched", "retry", "wait p95", "host", "slots", "cpu"}
_MIN_WIDTH: Final = 6
_FRAME: Final = 12  # lines of the head, the foot, and two lines for each section
_KEYS: Final = "q quit   p pause   s sort   r reverse   + - interval   space refresh"


def open_screen() -> Live:
    """Open the alternate screen; the terminal is restored at the end."""
    return Live(console=Console(highlight=False), screen=True, auto_refresh=False, transient=True)


def render(store: str, snapshot: StoreSnapshot | None, view: TopView, size: ConsoleDimensions) -> Group:
    """Render as much as fits on a terminal of this size."""
    parts: list[Text | Table] = [*_render_head(store, snapshot, view)]
    if snapshot is not None:
        height = max(4, size.height - _FRAME)
        lines = snapshot.sort_rows(view.sort, is_reversed=view.is_reversed)
        queues, workers = min(len(lines), height // 3), min(len(snapshot.workers), max(1, height // 5))
        running = min(len(snapshot.running), max(1, (height - queues - workers) // 2))
        failures = max(1, height - queues - workers - running)
        sections = (
            ("Queues", QUEUE_HEADS, [line.cells for line in lines], queues),
            ("Workers", WORKER_HEADS, snapshot.worker_rows(), workers),
            ("Running jobs", RUNNING_HEADS, snapshot.running_rows(), running),
            ("Newest failures", FAILURE_HEADS, snapshot.failure_rows(), failures),
        )
        for title, heads, rows, limit in sections:
            parts += _render_section(title, heads, rows, limit, is_wide=size.width >= _WIDE)
    parts.append(Text(_KEYS, style="dim"))
    return Group(*parts)


def _render_head(store: str, snapshot: StoreSnapshot | None, view: TopView) -> list[Text | Table]:
    first = Text(
        cell(store if snapshot is None else format_summary(store, snapshot), max_length=400),
        style="bold",
        no_wrap=True,
    )
    order = f"every {view.every:g} s, by {view.sort}{' reversed' if view.is_reversed else ''}"
    window = "" if snapshot is None else f", rates of the last {format_duration(snapshot.window_ms)}"
    second = Text(f"{order}{window}", style="dim")
    if view.is_paused:
        second.append("  PAUSED: p resumes", style="bold yellow")
    if view.error:
        second = Text(cell(view.error, max_length=400), style="bold red", overflow="ellipsis")
    return [first, second]


def _render_section(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], limit: int, *, is_wide: bool
) -> list[Text | Table]:
    more = f" ({limit} of {len(rows)})" if len(rows) > limit else ""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    columns = [column for column, name in enumerate(heads) if is_wide or name not in _ONLY_WIDE]
    for column in columns:
        name = heads[column]
        is_number = bool(rows) and all(isinstance(row[column], int) for row in rows)
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            min_width=_MIN_WIDTH if name in _GIVES_WAY else None,
            overflow="ellipsis",
            ratio=None if name not in _GIVES_WAY else 3 if name == "reason" else 1,
        )
    for row in rows[:limit]:
        cells = [cell(row[column]) for column in columns]
        table.add_row(*(Text(shown, style=_STATES.get(shown, "")) for shown in cells))
    return [Text(f"{title}{more}", style="bold cyan"), table]
