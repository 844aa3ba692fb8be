"""Small line plots as SVG, without a library; readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

Lines: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]

WIDTH, HEIGHT = 320, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 34, 42
# Middle tones: each is told from the other and from white and black alike.
COLOURS: Final = ("#2f7ed8", "#d9622b", "#3a9d5d", "#9c5fb5")
STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #444 }
.title { font-size: 13px; font-weight: 600 }
.grid { stroke: #888; stroke-opacity: .25 }
@media (prefers-color-scheme: dark) { text { fill: #ccc } }
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot: the y axis begins at 0, the x axis counts powers of ten if `is_log`."""

    title: str
    across: str
    lines: Lines
    is_log: bool = True


def svg(title: str, panels: Sequence[Panel], note: str = "") -> str:
    """The panels side by side; below them who is who, and a note at the right."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = dict(zip(names, COLOURS, strict=False))
    width, height = WIDTH * len(panels), HEIGHT + 24
    body = [part for nth, panel in enumerate(panels) for part in _panel(panel, nth * WIDTH, colours)]
    for nth, name in enumerate(names):
        x, y = LEFT + nth * 130, HEIGHT + 12
        body.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colours[name]}"/>')
        body.append(_text(x + 9, y, name))
    body.append(_text(width - RIGHT, HEIGHT + 12, note, anchor="end"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *body, "</svg>", ""]
    )


def _panel(panel: Panel, offset: float, colours: Mapping[str, str]) -> Iterator[str]:
    points = [point for line in panel.lines.values() for point in line]
    if not points:
        return
    across = _Axis([x for x, _ in points], offset + LEFT, offset + WIDTH - RIGHT, panel.is_log)
    top = _ceiling(max(y for _, y in points))
    yield _text(offset + LEFT, 18, panel.title, kind="title")
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        yield f'<line class="grid" x1="{across.low}" x2="{across.high}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(across.low - 6, y + 4, short(share * top), anchor="end")
    for x in across.ticks():
        yield _text(across.at(x), HEIGHT - BOTTOM + 16, short(x), anchor="middle")
    yield _text((across.low + across.high) / 2, HEIGHT - 8, panel.across, anchor="middle")
    for name, line in panel.lines.items():
        places = [
            (across.at(x), HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)) for x, y in sorted(line)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>' for x, y in places)


class _Axis:
    def __init__(self, values: Sequence[float], low: float, high: float, is_log: bool) -> None:
        self.low, self.high = low, high
        self._values = sorted(set(values))
        self._scaled = math.log10 if is_log else float
        self._from = self._scaled(self._values[0])
        self._span = self._scaled(self._values[-1]) - self._from or 1.0

    def at(self, value: float) -> float:
        return self.low + (self._scaled(value) - self._from) / self._span * (self.high - self.low)

    def ticks(self) -> Sequence[float]:
        return self._values


def _ceiling(value: float) -> float:
    """The next number that divides well into four."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value)


def short(value: float) -> str:
    """1000000 as 1M, 20000 as 20k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'
