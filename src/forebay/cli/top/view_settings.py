"""View settings of `forebay top`, and the keys that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from forebay.cli.top.snapshot import SORTS

SHORTEST_SECONDS: Final = 0.2
LONGEST_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Settings by options and keys. `error` is the reason why the last refresh failed."""

    sort: str
    every: float
    is_reversed: bool = False
    is_paused: bool = False
    is_over: bool = False
    is_due: bool = True  # refresh now, before the interval has passed
    error: str = ""

    def apply_key(self, key: str) -> TopView:
        """Return the view after a key; an unknown key changes nothing."""
        match key:
            case "q" | "Q" | "\x1b":
                return replace(self, is_over=True)
            case "p" | "P":
                return replace(self, is_paused=not self.is_paused, is_due=self.is_paused)
            case "s" | "S":
                names = list(SORTS)
                return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])
            case "r" | "R":
                return replace(self, is_reversed=not self.is_reversed)
            case "+":
                return replace(self, every=min(LONGEST_SECONDS, self.every * 2))
            case "-":
                return replace(self, every=max(SHORTEST_SECONDS, self.every / 2))
            case " ":
                return replace(self, is_due=True)
            case _:
                return self
