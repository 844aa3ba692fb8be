"""`forebay top` on a terminal, drawn with rich; loaded only there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.cli.glance import FAILURE_HEADS, QUEUE_HEADS, RUNNING_HEADS, WORKER_HEADS, Glance, summary
from forebay.cli.output import cell, length
from forebay.cli.view import View

_STATES: Final = {"paused": "yellow", "draining": "yellow", "dead": "red", "stale": "yellow", "silent": "red"}
_GIVES_WAY: Final = {"queue", "queues", "task", "reason", "host", "worker"}
_WIDE: Final = 110  # on a terminal of fewer columns these give way altogether
_ONLY_WIDE: Final = {"sched", "retry", "wait p95", "host", "slots", "cpu"}
_LEAST: Final = 6
_FRAME: Final = 12  # lines for the head, the foot, and two lines for each section
_KEYS: Final = "q quit   p pause   s sort   r reverse   + - interval   space now"


def screen() -> Live:
    """The whole terminal, given back as it was."""
    return Live(console=Console(highlight=False), screen=True, auto_refresh=False, transient=True)


def drawn(store: str, seen: Glance | None, view: View, size: ConsoleDimensions) -> Group:
    """All that fits on a terminal of this size."""
    parts: list[Text | Table] = [*_head(store, seen, view)]
    if seen is not None:
        room = max(4, size.height - _FRAME)
        lines = seen.sorted_by(view.sort, is_reversed=view.is_reversed)
        queues, workers = min(len(lines), room // 3), min(len(seen.workers), max(1, room // 5))
        running = min(len(seen.running), max(1, (room - queues - workers) // 2))
        failures = max(1, room - queues - workers - running)
        sections = (
            ("Queues", QUEUE_HEADS, [line.cells for line in lines], queues),
            ("Workers", WORKER_HEADS, seen.worker_rows(), workers),
            ("Running jobs", RUNNING_HEADS, seen.running_rows(), running),
            ("Newest failures", FAILURE_HEADS, seen.failure_rows(), failures),
        )
        for title, heads, rows, most in sections:
            parts += _section(title, heads, rows, most, is_wide=size.width >= _WIDE)
    parts.append(Text(_KEYS, style="dim"))
    return Group(*parts)


def _head(store: str, seen: Glance | None, view: View) -> list[Text | Table]:
    first = Text(cell(store if seen is None else summary(store, seen), most=400), style="bold", no_wrap=True)
    how = f"every {view.every:g} s, by {view.sort}{' reversed' if view.is_reversed else ''}"
    window = "" if seen is None else f", rates of the last {length(seen.window_ms)}"
    second = Text(f"{how}{window}", style="dim")
    if view.is_paused:
        second.append("  PAUSED: p goes on", style="bold yellow")
    if view.trouble:
        second = Text(cell(view.trouble, most=400), style="bold red", overflow="ellipsis")
    return [first, second]


def _section(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], most: int, *, is_wide: bool
) -> list[Text | Table]:
    more = f" ({most} of {len(rows)})" if len(rows) > most else ""
    made = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    places = [place for place, name in enumerate(heads) if is_wide or name not in _ONLY_WIDE]
    for place in places:
        name = heads[place]
        is_number = bool(rows) and all(isinstance(row[place], int) for row in rows)
        made.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            min_width=_LEAST if name in _GIVES_WAY else None,
            overflow="ellipsis",
            ratio=None if name not in _GIVES_WAY else 3 if name == "reason" else 1,
        )
    for row in rows[:most]:
        cells = [cell(row[place]) for place in places]
        made.add_row(*(Text(shown, style=_STATES.get(shown, "")) for shown in cells))
    return [Text(f"{title}{more}", style="bold cyan"), made]
