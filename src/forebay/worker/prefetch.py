"""Prefetch: how many jobs to claim beyond the free slots, limited by time and not by count."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

PREFETCH_SECONDS: Final = 0.1
MAX_PREFETCH: Final = 1_000
MAX_SAMPLES: Final = 64
MAX_SPREAD: Final = 10


class PrefetchPolicy:
    """Recent durations by task, and the prefetch that they allow.

    Prefetched jobs keep slots busy while the next claim is on its way. But a job that is claimed and waits
    cannot be run by another worker. So there is no prefetch while a task is new, or when some of its runs
    take more than ten times the median: short jobs would wait behind long ones.
    """

    def __init__(self) -> None:
        self._durations: dict[str, deque[float]] = {}
        self._limit = MAX_PREFETCH

    def record_duration(self, task: str, seconds: float) -> None:
        durations = self._durations.get(task)
        if durations is None:
            durations = self._durations[task] = deque(maxlen=MAX_SAMPLES)
        durations.append(seconds)

    def reset(self) -> None:
        """Stop prefetching after a claimed job could not be started in time, and resume in small steps."""
        self._limit = 0

    def prefetch_count(self, tasks: Iterable[str], slots: int) -> int:
        """Return how many jobs beyond the free slots may be claimed if the next jobs are like these."""
        self._limit = min(MAX_PREFETCH, max(self._limit * 2, 1))
        longest = 0.0
        for task in tasks:
            known = self._durations.get(task)
            if known is None or not _is_even(known):
                return 0
            longest = max(longest, sum(known) / len(known))
        if longest <= 0.0:
            return 0
        return min(self._limit, int(PREFETCH_SECONDS * slots / longest))


def _is_even(durations: deque[float]) -> bool:
    ordered = sorted(durations)
    return ordered[len(ordered) * 95 // 100] <= MAX_SPREAD * max(ordered[len(ordered) // 2], 0.000_1)
