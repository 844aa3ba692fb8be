"""Result of a check of `forebay doctor`, with its headings on the troubleshooting page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# The page about the findings; `see` is a heading on it.
TROUBLESHOOTING: Final = "docs/troubleshooting.md"
DO_NOT_START: Final = "jobs-do-not-start"
RUNS_ON: Final = "a-job-runs-and-does-not-end"
SILENT: Final = "a-worker-is-silent-or-claims-nothing"
DEAD: Final = "jobs-are-dead"

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one check. `todo` is the remedy, empty if none is needed; `see` is the anchor of a heading on
    the troubleshooting page."""

    about: str
    message: str
    level: Level = "ok"
    todo: str = ""
    see: str = ""

    @property
    def page(self) -> str:
        """Link to the troubleshooting page; empty if there is none."""
        return f"{TROUBLESHOOTING}#{self.see}" if self.see else ""
