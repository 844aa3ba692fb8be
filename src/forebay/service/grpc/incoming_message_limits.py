"""Limits on messages that arrive over gRPC at the same time: each read takes a turn.

The library has a message in memory as a whole before a handler learns its size. Until a handler reads, a call
holds no more than the window of its stream, `WINDOW_BYTES`. So each read takes a turn, and the memory of a
client's messages is bounded by the number of its turns. Small messages are there at once, so that turns are
short; a large message keeps its turn until its call is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from forebay.errors import TooManyRequests
from forebay.service.client_rates_and_quotas import RETRY_SECONDS

# A job has 1 MiB of arguments. Clients of the library take messages of this size by default, too.
MAX_MESSAGE: Final = 4 * 1_048_576
WINDOW_BYTES: Final = 8_192
MAX_ARRIVING: Final = 4  # messages of one client
# Calls of one client whose message is not read yet: as many as a connection may have.
MAX_UNREAD: Final = 1_000
ARRIVAL_TIMEOUT_SECONDS: Final = 30.0  # as over HTTP


class Turn:
    """Turn of one call, until its block ends or before."""

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns = turns
        self._is_over = False

    def end(self) -> None:
        """Give the turn to the next call. May be called twice."""
        if not self._is_over:
            self._is_over = True
            self._turns.release()


class Arrivals:
    """Turns of each client, in the order of its calls."""

    def __init__(self, max_arriving: int = MAX_ARRIVING) -> None:
        self._max_arriving = max_arriving
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._calls: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[Turn]:
        """Wait for a turn of this client; raises TooManyRequests."""
        calls = self._calls.get(client, 0)
        if calls >= MAX_UNREAD:
            raise _too_many(client, f"has {MAX_UNREAD:,} calls whose message was not read yet")
        turns = self._turns.setdefault(client, asyncio.Semaphore(self._max_arriving))
        self._calls[client] = calls + 1
        try:
            try:
                async with asyncio.timeout(ARRIVAL_TIMEOUT_SECONDS):
                    await turns.acquire()
            except TimeoutError:
                raise _too_many(client, f"has {self._max_arriving} messages that still arrive") from None
            turn = Turn(turns)
            try:
                yield turn
            finally:
                turn.end()
        finally:
            self._calls[client] -= 1
            if not self._calls[client]:
                del self._calls[client], self._turns[client]


def _too_many(client: str, reason: str) -> TooManyRequests:
    return TooManyRequests(
        f"{client} {reason}, and no more are allowed: end some, or come again later",
        limit=MAX_UNREAD,
        retry_after=RETRY_SECONDS,
        reset_seconds=RETRY_SECONDS,
    )
