"""Detection of a coordinator that hangs within a tick."""

from __future__ import annotations

import logging
from typing import Final

from forebay.clock import Clock

SILENT_SECONDS: Final = 15.0
# A store call ends within 35 s, well or not (see docs/guide/operating-workers.md). A tick that shows no
# progress for
# much longer is not waiting for the store, and will not end.
HOPELESS_SECONDS: Final = 60.0
# Some thread checks twice a second. After a gap of this length the whole process was stopped.
STOPPED_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class Watchdog:
    """Time since the coordinator last marked progress, for other threads to check.

    Each side writes its own fields, and one assignment is atomic, so no lock is needed. A check between two
    assignments sees the state of a moment ago. Threads that check at the same time write the same values.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._progress_at: float | None = None
        self._checked_at = self._watched_since = clock.monotonic()
        self._is_reported = False

    def mark_progress(self) -> None:
        """Record that the coordinator is within a tick and has come a step further."""
        self._progress_at = self._clock.monotonic()

    def mark_idle(self) -> None:
        """Record that the coordinator sleeps between two ticks."""
        self._progress_at = None

    @property
    def silent_for(self) -> float:
        """Seconds since the last step of the present tick; 0 between ticks.

        Time in which the whole process was stopped, by a signal or with its machine, does not count: the loop
        will go on like the rest.
        """
        now = self._clock.monotonic()
        if now - self._checked_at > STOPPED_SECONDS:
            self._watched_since = now
        self._checked_at = now
        since = self._progress_at
        return 0.0 if since is None else now - max(since, self._watched_since)

    @property
    def is_silent(self) -> bool:
        return self.silent_for >= SILENT_SECONDS

    @property
    def is_hopeless(self) -> bool:
        """Whether waiting for this tick to end is no use."""
        return self.silent_for >= HOPELESS_SECONDS

    def check(self) -> str | None:
        """Return the warning to log, once for each silence; None otherwise."""
        silent_for = self.silent_for
        if silent_for < SILENT_SECONDS:
            self._is_reported = False
            return None
        if self._is_reported:
            return None
        self._is_reported = True
        return f"the worker's loop has not moved for {silent_for:.0f} s: it claims and settles nothing"
