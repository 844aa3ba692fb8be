"""Manual clock: stands still until a test moves it."""

from __future__ import annotations

from forebay.errors import ConfigError


class ManualClock:
    """Time for tests. `advance` moves both clocks, `set` only the wall clock, as an administrator would.

    >>> clock = ManualClock(now_ms=1_000)
    >>> clock.advance(seconds=2)
    >>> clock.now_ms(), clock.monotonic()
    (3000, 2.0)
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        """Return the time of day, as it was set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the seconds that have passed on this clock since it was created."""
        return self._passed_ms / 1_000

    def advance(self, ms: int = 0, *, seconds: float = 0) -> None:
        """Let time pass. Raises ConfigError for time that would run backwards."""
        step = ms + round(seconds * 1_000)
        if step < 0:
            raise ConfigError("time does not run backwards; use set to move the wall clock alone")
        self._passed_ms += step
        self._now_ms += step

    def set(self, now_ms: int) -> None:
        """Move the wall clock, forwards or back."""
        self._now_ms = now_ms
