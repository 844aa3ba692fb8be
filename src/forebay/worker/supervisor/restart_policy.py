"""Restart policy: when a worker process that has died is started again, and when to give up."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 60.0
MAX_RESTARTS: Final = 5
FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 10.0


class RestartPolicy:
    """The restarts of the last minute. Processes that were replaced in order do not count."""

    def __init__(self) -> None:
        self._restarted_at: deque[float] = deque()

    def next_delay(self, now: float) -> float | None:
        """Return the seconds until a process that has died now may be started again; None when the limit is
        reached."""
        while self._restarted_at and self._restarted_at[0] <= now - WINDOW_SECONDS:
            self._restarted_at.popleft()
        restarts = len(self._restarted_at)
        if restarts >= MAX_RESTARTS:
            return None
        self._restarted_at.append(now)
        # One death is an accident, and its jobs wait; several may be the program's fault.
        return 0.0 if restarts == 0 else min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (restarts - 1))
