"""A circuit breaker: nobody waits again and again for a server that cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

import redis

FAILURES: Final = 5
# Between two attempts to reach a server that is away. Short: a worker waits longer between its own ones, so
# that none of them is refused here and it goes on within five seconds of the server's return.
PAUSE_SECONDS: Final = 1.0


class Breaker:
    """After some attempts to connect have failed one after the other, one is made in each pause, and callers
    in between are refused at once. The first that succeeds lets everybody in.

    There is no lock: two threads that ask at the same moment make two attempts, and a forked process has
    none that nobody holds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._next_at = 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Around one attempt to connect; raises the driver's error where none is to be made."""
        self._ask()
        try:
            yield
        except redis.exceptions.AuthenticationError:
            self._failures = 0  # it is there, and has answered
            raise
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            self._failures += 1
            self._next_at = self._clock() + PAUSE_SECONDS
            raise
        self._failures = 0

    def _ask(self) -> None:
        if self._failures < FAILURES:
            return
        now = self._clock()
        if now < self._next_at:
            raise redis.exceptions.ConnectionError(
                f"{self._failures} attempts to connect have failed; the next is made in a second at most"
            )
        # An attempt may take longer than a pause, and others shall not wait for it.
        self._next_at = now + PAUSE_SECONDS
