"""CPU and memory that this process uses."""

from __future__ import annotations

import time
from typing import Final

from forebay.clock import Clock
from forebay.worker.executors.process_memory import peak_resident_bytes, resident_bytes

LOAD_SECONDS: Final = 1.0


class CpuLoad:
    """Share of one core that this process uses, between two samples at least a second apart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic(), cpu_seconds()
        self._ratio: float | None = None

    def sample(self) -> float | None:
        """Return the latest share; None in the first second."""
        now, used = self._clock.monotonic(), cpu_seconds()
        sampled_at, used_before = self._last
        if now - sampled_at >= LOAD_SECONDS:
            self._last = now, used
            self._ratio = round((used - used_before) / (now - sampled_at), 3)
        return self._ratio


def cpu_seconds() -> float:
    """Return the CPU time of this process so far."""
    return time.process_time()


def resident_memory() -> int:
    """Return the resident bytes of this process.

    Where the system does not tell them, return their peak, and 0 where it does not tell that either.
    """
    now = resident_bytes()
    return peak_resident_bytes() if now is None else now
