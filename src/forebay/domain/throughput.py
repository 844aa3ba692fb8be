"""Throughput of a queue: jobs that completed in a time."""

from __future__ import annotations

from typing import Final, NamedTuple

# Throughput is measured over the last minute, or over so many jobs if these took less.
THROUGHPUT_WINDOW_MS: Final = 60_000
THROUGHPUT_JOBS: Final = 1_000


class Throughput(NamedTuple):
    """Number of jobs of a queue that completed in a time."""

    jobs: int
    ms: int

    def wait_ms(self, jobs: int) -> int | None:
        """Return how long so many jobs take; None if none completed lately."""
        return jobs * self.ms // self.jobs if self.jobs else None


def throughput_of(jobs: int, first_at: int | None, now: int) -> Throughput:
    """Return the throughput of a queue whose last `jobs` completed from `first_at` on, up to
    THROUGHPUT_JOBS of them."""
    is_fast = jobs >= THROUGHPUT_JOBS and first_at is not None
    return Throughput(jobs, max(1, now - (first_at or 0)) if is_fast else THROUGHPUT_WINDOW_MS)
