"""Circuit breaker for connects: callers do not wait again and again for an unreachable server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

import redis

FAILURES: Final = 5
# The pause between two attempts lasts as long as the last attempt took. A server that refuses at once is
# tried often, so that a worker hardly ever meets the breaker and goes on soon after the server's return. A
# server that times out is tried once a second.
SHORTEST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0


class ServerReachability:
    """Time at which this program last reached the server: refused callers may try again from then on."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.reached_at: float = -inf

    def record_reached(self) -> None:
        self.reached_at = self.clock()


class ConnectBreaker:
    """Circuit breaker that opens after some failed attempts in a row.

    While it is open, one attempt is made after each pause, and all calls in between are refused at once. The
    first success, here or elsewhere in the program, closes it.

    It has no lock: two threads that call at the same moment make two attempts, and a forked process cannot
    inherit a lock that is never released."""

    def __init__(self, reachability: ServerReachability) -> None:
        self.reachability = reachability
        self._clock = reachability.clock
        self._failures = 0
        self._failed_at = self._next_at = 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Guard one attempt to connect; raise the driver's error if none may be made now."""
        started = self._start_attempt()
        try:
            yield
        except redis.exceptions.AuthenticationError:
            self._failures = 0  # the server is reachable, and has responded
            raise
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            self._failures += 1
            self._failed_at = now = self._clock()
            self._next_at = now + _clamp_pause(now - started)
            raise
        self._failures = 0
        self.reachability.record_reached()

    def _start_attempt(self) -> float:
        now = self._clock()
        if self._failures >= FAILURES:
            if now < self._next_at and self.reachability.reached_at <= self._failed_at:
                raise redis.exceptions.ConnectionError(
                    f"{self._failures} attempts to connect have failed; the next is made in a second at most"
                )
            # An attempt may take long, and other callers must not wait for it.
            self._next_at = now + LONGEST_PAUSE_SECONDS
        return now


def _clamp_pause(seconds: float) -> float:
    return min(max(seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
