"""A circuit breaker: nobody waits again and again for a server that cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

import redis

FAILURES: Final = 5
# Between two attempts to reach a server that is away: as long as the last one took. One that refuses at once
# may be asked often, so that a worker hardly ever meets the breaker and goes on soon after its return; one
# that lets everybody wait is asked once a second.
SHORTEST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0


class ServerReachability:
    """When anybody in this program has last reached the server: whoever was held back may try again."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.reached_at: float = -inf

    def record_reached(self) -> None:
        self.reached_at = self.clock()


class ConnectBreaker:
    """After some attempts to connect have failed one after the other, one is made in each pause, and callers
    in between are refused at once. The first that succeeds, here or elsewhere in the program, lets everybody
    in.

    There is no lock: two threads that ask at the same moment make two attempts, and a forked process has
    none that nobody holds."""

    def __init__(self, reachability: ServerReachability) -> None:
        self.reachability = reachability
        self._clock = reachability.clock
        self._failures = 0
        self._failed_at = self._next_at = 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Around one attempt to connect; raises the driver's error where none is to be made."""
        started = self._start_attempt()
        try:
            yield
        except redis.exceptions.AuthenticationError:
            self._failures = 0  # it is there, and has answered
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
            # An attempt may take long, and others shall not wait for it.
            self._next_at = now + LONGEST_PAUSE_SECONDS
        return now


def _clamp_pause(seconds: float) -> float:
    return min(max(seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
