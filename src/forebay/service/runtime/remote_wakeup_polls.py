"""Long polls for wake-ups of the store, by listeners in other processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from forebay.domain.job import WorkerId

REPEAT_SECONDS: Final = 0.05  # as long as the claims of this server poll again after a coalesced wake-up


class WakeupPolls:
    """Polls that wait for the next wake-up, up to `longest_wait` seconds. For one event loop."""

    def __init__(self, worker: WorkerId, longest_wait: float, *, coalesces_wakeups: bool) -> None:
        self._worker = worker
        self._longest_wait = longest_wait
        self._coalesces_wakeups = coalesces_wakeups
        self._count = 0
        self._event = asyncio.Event()
        self._is_ended = False

    def on_wakeup(self) -> None:
        """Answer all polls."""
        self._signal()
        if self._coalesces_wakeups:
            # Remote listeners poll only once per wake-up, so signal them again.
            asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._signal)

    def end(self) -> None:
        """Answer all polls with the present token, now and from now on: a stop is near."""
        self._is_ended = True
        self._event.set()

    async def wait(self, last_token: str | None) -> str:
        """Return a token that changes with every wake-up of the store and differs between servers.

        A caller that passes the present token waits for the next one, up to the longest wait.
        """
        if last_token == self._token() and not self._is_ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._longest_wait):
                    await self._event.wait()
        return self._token()

    def _token(self) -> str:
        return f"{self._worker}:{self._count}"

    def _signal(self) -> None:
        self._count += 1
        self._event.set()
        self._event = asyncio.Event()
