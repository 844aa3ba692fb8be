"""Circuit breaker of the store: calls fail at once while the store does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from forebay.clock import Clock
from forebay.errors import StoreBusy, StoreUnavailable

FAILURES: Final = 5
PAUSE_SECONDS: Final = 1.0

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class StoreBreaker:
    """Breaker that opens after five consecutive calls that found the store unavailable. Then one call a
    second is tried and the others are refused; the first success closes it.

    It is asked on the threads that call the store, when a call's turn comes, so calls that have queued up
    behind a hanging one are refused too. There is no lock: two threads that ask at the same moment both try.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._next_at = 0.0

    def __call__(self, call: Callable[[], T]) -> T:
        self._check_open()
        try:
            answer = call()
        except StoreBusy:
            # The store has answered: a transaction holds one key or job, and other calls succeed.
            self._on_success()
            raise
        except StoreUnavailable as exc:
            self._failures += 1
            self._next_at = self._clock.monotonic() + PAUSE_SECONDS
            if self._failures == FAILURES:
                logger.critical("the store has not answered %d times in a row: %s", FAILURES, exc)
            raise
        self._on_success()
        return answer

    def _on_success(self) -> None:
        if self._failures >= FAILURES:
            logger.warning("the store answers again")
        self._failures = 0

    def _check_open(self) -> None:
        if self._failures < FAILURES:
            return
        now = self._clock.monotonic()
        if now < self._next_at:
            raise StoreUnavailable("the store does not answer; it is tried again in a second at most")
        self._next_at = now + PAUSE_SECONDS  # a try may take long, and other calls must not wait for it
