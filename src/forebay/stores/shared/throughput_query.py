"""Throughput of a queue, as the SQL engines query it."""

from __future__ import annotations

from forebay.domain.throughput import THROUGHPUT_JOBS, THROUGHPUT_WINDOW_MS, Throughput, throughput_of
from forebay.stores.shared.rows import Row


def throughput_params(queue: str, now: int) -> dict[str, object]:
    return {"queue": queue, "since": now - THROUGHPUT_WINDOW_MS, "limit": THROUGHPUT_JOBS}


def throughput_from_row(row: Row | None, now: int) -> Throughput:
    """Return the throughput from the number of completed jobs and the time of the first."""
    jobs, first_at = row or (0, None)
    return throughput_of(jobs, first_at, now)
