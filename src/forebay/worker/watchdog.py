"""Noticing a coordinator that hangs in a turn."""

from __future__ import annotations

import logging
from typing import Final

from forebay.clock import Clock

SILENT_SECONDS: Final = 15.0
# A store call ends within 35 s, well or not (see docs/guide/control.md). A turn that shows no progress for
# much longer is not waiting for the store, and will not end.
HOPELESS_SECONDS: Final = 60.0
# Some thread asks twice a second. Where nobody could for so long, the whole process was stopped.
STOPPED_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class Watchdog:
    """The coordinator says when it moves; another thread looks how long ago that was.

    Each side writes its own fields, and one assignment is one step, so no lock is needed: a look that comes
    between two of them sees what was true a moment ago. Of several who look at once each writes the same.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._progress_at: float | None = None
        self._checked_at = self._watched_since = clock.monotonic()
        self._is_reported = False

    def mark_progress(self) -> None:
        """The coordinator is in a turn, and has come a step further."""
        self._progress_at = self._clock.monotonic()

    def mark_idle(self) -> None:
        """The coordinator sleeps, as it may."""
        self._progress_at = None

    @property
    def silent_for(self) -> float:
        """Seconds since the last step of the present turn; 0 between turns. Time in which the whole process
        was stopped, by a signal or with its machine, does not count: the loop will go on like the rest."""
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
        """Whether nobody should wait for this turn to end."""
        return self.silent_for >= HOPELESS_SECONDS

    def check(self) -> str | None:
        """What to tell, once for each silence."""
        silent_for = self.silent_for
        if silent_for < SILENT_SECONDS:
            self._is_reported = False
            return None
        if self._is_reported:
            return None
        self._is_reported = True
        return f"the worker's loop has not moved for {silent_for:.0f} s: it claims and settles nothing"
