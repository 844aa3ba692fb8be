"""How the engines on SQL ask for the pace of a queue."""

from __future__ import annotations

from forebay.domain.backpressure import (
    THROUGHPUT_JOBS,
    THROUGHPUT_WINDOW_MS,
    Throughput,
    throughput_of,
)
from forebay.stores.shared.rows import Row


def throughput_params(queue: str, now: int) -> dict[str, object]:
    return {"queue": queue, "since": now - THROUGHPUT_WINDOW_MS, "limit": THROUGHPUT_JOBS}


def throughput_from_row(row: Row | None, now: int) -> Throughput:
    """From how many were completed, and when the first of these was."""
    jobs, first_at = row or (0, None)
    return throughput_of(jobs, first_at, now)
