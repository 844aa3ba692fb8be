"""Readiness check: whether the store answers, checked at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from forebay.clock import Clock
from forebay.errors import ForebayError, StoreUnavailable

CHECK_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class StoreCheck:
    """Probe of the store whose result is shared by all callers of the next second.

    Callers need no key, and cost the store one probe a second, however many they are. The answer does not
    give the reason, which may name the store's host and path; the log does.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], clock: Clock) -> None:
        self._probe = probe
        self._clock = clock
        self._in_flight: asyncio.Future[bool] | None = None
        self._fresh_until = 0.0
        self._is_away = False

    async def __call__(self) -> None:
        """Raise StoreUnavailable if the store does not answer."""
        now = self._clock.monotonic()
        check = self._in_flight
        # There is no await between this test and the assignment, so two callers do not both start a probe.
        if check is None or (check.done() and now >= self._fresh_until):
            check = self._in_flight = asyncio.ensure_future(self._check())
            self._fresh_until = now + CHECK_SECONDS
        # Shielded: a caller that leaves must not cancel the probe that other callers wait for.
        if not await asyncio.shield(check):
            raise StoreUnavailable("the store does not answer")

    async def _check(self) -> bool:
        try:
            await self._probe()
        except ForebayError as exc:
            if not self._is_away:
                logger.error("not ready: the store does not answer: %s", exc)
            self._is_away = True
            return False
        if self._is_away:
            logger.warning("ready again: the store answers")
        self._is_away = False
        return True
