"""How the engines on SQL ask for the pace of a queue."""

from __future__ import annotations

from forebay.domain.pressure import PACE_JOBS, PACE_MS, Pace, pace_of
from forebay.stores.rows import Row


def pace_values(queue: str, now: int) -> dict[str, object]:
    return {"queue": queue, "since": now - PACE_MS, "most": PACE_JOBS}


def pace_from_row(row: Row | None, now: int) -> Pace:
    """From how many were completed, and when the first of these was."""
    jobs, first_at = row or (0, None)
    return pace_of(jobs, first_at, now)
