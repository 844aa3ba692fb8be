"""Clock protocol and system clock: the only module that reads the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock for stored times and a monotonic one for waiting."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
