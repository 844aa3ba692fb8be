"""Looking again for a little while, before a worker that has run out of work goes to sleep."""

from __future__ import annotations

from math import inf
from typing import Final

FIRST_SECONDS: Final = 0.001
LENGTH_SECONDS: Final = 0.05


class IdlePolling:
    """For stores that send one hint for several new jobs: what came after the hint is found by looking again,
    after 1, 2, 4, ... ms, for 50 ms in all."""

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        self._pause = FIRST_SECONDS
        self._left = 0.0

    def begin(self) -> None:
        """There was work, or word of it."""
        self._pause = FIRST_SECONDS
        self._left = LENGTH_SECONDS if self._is_needed else 0.0

    def next_pause(self) -> float:
        """How long to wait before the next look, when the last one has found nothing."""
        if self._left <= 0:
            return inf
        pause = min(self._pause, self._left)
        self._pause *= 2
        self._left -= pause
        return pause
