"""Polling of the store for a moment before an idle worker sleeps."""

from __future__ import annotations

from math import inf
from typing import Final

FIRST_SECONDS: Final = 0.001
LENGTH_SECONDS: Final = 0.05


class IdlePolling:
    """Pauses between polls for stores that send one wake-up for several new jobs.

    Jobs that came after the wake-up are found by polling again, after 1, 2, 4, ... ms, for 50 ms in all.
    """

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        self._pause = FIRST_SECONDS
        self._left = 0.0

    def begin(self) -> None:
        """Start over: there was work, or a wake-up."""
        self._pause = FIRST_SECONDS
        self._left = LENGTH_SECONDS if self._is_needed else 0.0

    def next_pause(self) -> float:
        """Return the pause before the next poll, after one that found nothing."""
        if self._left <= 0:
            return inf
        pause = min(self._pause, self._left)
        self._pause *= 2
        self._left -= pause
        return pause
