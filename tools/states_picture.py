"""The diagram of docs/internals/states.md as a picture, for the site; elsewhere a browser draws it.

Moves that all waiting states have in common are drawn once, from the frame around them or to it. A diagram in
which they have not is refused, so that the picture never says what the text does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

_EDGE: Final = re.compile(r"^\s*(\S+) --> (\w+): (.+)$", re.MULTILINE)
_WAITING: Final = frozenset({"scheduled", "blocked", "pending", "retrying"})
_FINAL: Final = frozenset({"dead", "cancelled"})
_HALF: Final = (56, 18)
_PLACES: Final = {
    "blocked": (170, 80), "scheduled": (170, 180), "retrying": (170, 280), "pending": (390, 180),
    "running": (620, 180), "completed": (840, 80), "dead": (840, 180), "cancelled": (840, 280),
}  # fmt: skip
# By hand, so that no two lie on each other: the path, and where its word stands.
_PATHS: Final = {
    ("[*]", "blocked"): ("M 40 80 H 108", 0, 0),
    ("[*]", "scheduled"): ("M 40 180 H 108", 0, 0),
    ("[*]", "pending"): ("M 40 130 H 300 Q 360 130 378 160", 74, 122),
    ("blocked", "scheduled"): ("M 170 98 V 156", 212, 118),
    ("blocked", "pending"): ("M 226 80 Q 350 80 386 158", 290, 74),
    ("scheduled", "pending"): ("M 226 180 H 328", 278, 172),
    ("retrying", "pending"): ("M 226 280 Q 350 280 384 202", 280, 270),
    ("pending", "running"): ("M 446 172 H 558", 502, 164),
    ("running", "pending"): ("M 564 188 H 452", 502, 204),
    ("running", "retrying"): ("M 600 198 Q 520 312 232 290", 470, 296),
    ("running", "scheduled"): ("M 590 198 Q 460 262 226 192", 420, 240),
    ("running", "completed"): ("M 660 162 Q 720 92 778 82", 0, 0),
    ("running", "dead"): ("M 676 180 H 778", 726, 172),
    ("running", "cancelled"): ("M 660 198 Q 720 268 778 278", 0, 0),
    ("waits", "cancelled"): ("M 300 340 Q 640 396 800 302", 560, 372),
    ("waits", "dead"): ("M 380 30 C 560 0 730 40 808 156", 620, 24),
    ("final", "waits"): (
        "M 902 180 H 914 V 280 H 902 M 914 230 Q 980 430 640 420 Q 300 420 230 346",
        640,
        412,
    ),
}


class Move(NamedTuple):
    """From one state, or a group of them, to another, and by what."""

    source: str
    target: str
    verb: str


def moves(diagram: str) -> list[Move]:
    """The moves to draw: those of a diagram, with what the waiting states have in common put together."""
    found = {Move(*edge) for edge in _EDGE.findall(diagram)}
    joined = [*_from_waiting(found, "cancel", "cancelled"), *_from_waiting(found, "drop", "dead")]
    joined += _revived(found)
    own = [move for move in found if move.verb not in ("cancel", "drop", "revive")]
    unknown = sorted({(move.source, move.target) for move in (*own, *joined)} ^ _PATHS.keys())
    if unknown:
        raise ValueError(f"tools/states_picture.py has no way, or one too many, for {unknown}")
    return sorted([*own, *joined])


def _from_waiting(found: set[Move], verb: str, target: str) -> Iterator[Move]:
    if {(move.source, move.target) for move in found if move.verb == verb} != {
        (one, target) for one in _WAITING
    }:
        raise ValueError(f"not every waiting state can {verb}, or others can")
    yield Move("waits", target, verb)


def _revived(found: set[Move]) -> Iterator[Move]:
    targets = defaultdict(set)
    for move in found:
        if move.verb == "revive":
            targets[move.source].add(move.target)
    if dict(targets) != {one: _WAITING - {"retrying"} for one in _FINAL}:
        raise ValueError("what can be revived does not lead to where it did")
    yield Move("final", "waits", "revive")


def picture(diagram: str) -> str:
    """The whole picture."""
    drawn = "\n".join(_drawn(moves(diagram)))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 440" font-family="sans-serif">
<title>The states of a job and the moves between them</title>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M 0 0 L 10 5 L 0 10 z" fill="#566573"/></marker></defs>
<rect width="960" height="440" rx="8" fill="#f8f9fb"/>
<rect x="90" y="30" width="370" height="310" rx="14" fill="none" stroke="#9fb3c8" stroke-dasharray="5 5"/>
<text x="104" y="50" font-size="13" fill="#566573">waits</text>
<text x="36" y="134" font-size="13" fill="#566573" text-anchor="end">new</text>
{drawn}
</svg>
"""


def _drawn(found: list[Move]) -> Iterator[str]:
    for move in found:
        path, x, y = _PATHS[move.source, move.target]
        yield f'<path d="{path}" fill="none" stroke="#566573" marker-end="url(#tip)"/>'
        if x:
            yield _text(x, y, move.verb, size=12)
    wide, high = _HALF
    for state, (x, y) in _PLACES.items():
        colour = {"completed": "#d5f0dd", "dead": "#f8d7d3", "cancelled": "#e6e6ea"}.get(state, "#d8e9f6")
        yield (
            f'<rect x="{x - wide}" y="{y - high}" width="{2 * wide}" height="{2 * high}" rx="9" '
            f'fill="{colour}" stroke="#566573"/>'
        )
        yield _text(x, y + 5, state, size=14)


def _text(x: int, y: int, word: str, *, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="#1c2833" text-anchor="middle">{word}</text>'
