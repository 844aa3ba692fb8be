"""Readiness: whether the store answers, looked up once a second for all who ask."""

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
    """Looks at the store, and lets all callers of the next second share the answer.

    Callers need no key: they cost the store one look a second, however many they are. They are not told the
    reason, which may name the store's host and path; the log is.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], clock: Clock) -> None:
        self._probe = probe
        self._clock = clock
        self._under_way: asyncio.Future[bool] | None = None
        self._fresh_until = 0.0
        self._is_away = False

    async def __call__(self) -> None:
        """Raise StoreUnavailable if the store does not answer."""
        now = self._clock.monotonic()
        found = self._under_way
        # Nothing is awaited between this look and the assignment, so two callers do not both begin.
        if found is None or (found.done() and now >= self._fresh_until):
            found = self._under_way = asyncio.ensure_future(self._check())
            self._fresh_until = now + CHECK_SECONDS
        # Shielded: a caller that leaves must not end the look that other callers wait for.
        if not await asyncio.shield(found):
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
