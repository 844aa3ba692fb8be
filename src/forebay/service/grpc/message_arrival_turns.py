"""Turns of messages that arrive over gRPC at the same time: each read takes one.

The library has a message in memory as a whole before a handler learns its size. Until a handler reads, a call
holds no more than the window of its stream, `WINDOW_BYTES`. So each read takes a turn, and the memory of a
client's messages is bounded by the number of its turns. Small messages are there at once, so that turns are
short; a large message keeps its turn until its call is answered. A message that arrives slowly gives way
to a call that has waited for some time: short turns of other messages end before.
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
# A call that has waited so long for a turn ends a message that has arrived for so long.
CONTENDED_TIMEOUT_SECONDS: Final = 2.0


class ClientTurns:
    """Turns of one client."""

    def __init__(self, max_arriving: int) -> None:
        self.turns: asyncio.Semaphore = asyncio.Semaphore(max_arriving)
        self.calls: int = 0  # whose turn is not over
        self.waiting: int = 0
        self.arriving: list[Turn] = []  # oldest first

    def press(self) -> float:
        """End the message that arrives for the longest time, if that is long, for a call that waits. Return
        the seconds until the next try."""
        pressed = [turn for turn in self.arriving if turn.gives_way]
        oldest = next((turn for turn in self.arriving if not turn.gives_way), None)
        if oldest is None or len(pressed) >= self.waiting:
            return CONTENDED_TIMEOUT_SECONDS
        left = CONTENDED_TIMEOUT_SECONDS - oldest.age
        if left > 0:
            return left
        oldest.give_way()
        return CONTENDED_TIMEOUT_SECONDS


class Turn:
    """Turn of one call, until its block ends or before."""

    def __init__(self, client: ClientTurns) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._limit: asyncio.Timeout = asyncio.timeout(ARRIVAL_TIMEOUT_SECONDS)
        self._is_over = False
        self.gives_way: bool = False

    @property
    def age(self) -> float:
        return self._loop.time() - self._started_at

    @asynccontextmanager
    async def arrive(self) -> AsyncIterator[None]:
        """Limit the time for the message; raises TimeoutError."""
        async with self._limit:
            self._client.arriving.append(self)
            try:
                yield
            finally:
                self._client.arriving.remove(self)

    def give_way(self) -> None:
        """End the time for the message now."""
        self.gives_way = True
        if not self._limit.expired():
            self._limit.reschedule(self._loop.time())

    def end(self) -> None:
        """Give the turn to the next call. May be called twice."""
        if not self._is_over:
            self._is_over = True
            self._client.calls -= 1
            self._client.turns.release()


class Arrivals:
    """Turns of each client, in the order of its calls."""

    def __init__(self, max_arriving: int = MAX_ARRIVING) -> None:
        self._max_arriving = max_arriving
        self._clients: dict[str, ClientTurns] = {}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Turn]:
        """Wait for a turn of this client; raises TooManyRequests."""
        client = self._clients.setdefault(name, ClientTurns(self._max_arriving))
        if client.calls + client.waiting >= MAX_UNREAD:
            raise _too_many(name, f"has {MAX_UNREAD:,} calls whose message was not read yet")
        try:
            turn = await self._wait_for_turn(name, client)
            try:
                yield turn
            finally:
                turn.end()
        finally:
            # A call that ends late may find later calls of the client here, with turns of their own.
            if not client.calls and not client.waiting and self._clients.get(name) is client:
                del self._clients[name]

    async def _wait_for_turn(self, name: str, client: ClientTurns) -> Turn:
        loop, timer = asyncio.get_running_loop(), None

        def press() -> None:
            nonlocal timer
            timer = loop.call_later(client.press(), press)

        client.waiting += 1
        try:
            if client.turns.locked():
                timer = loop.call_later(CONTENDED_TIMEOUT_SECONDS, press)
            async with asyncio.timeout(ARRIVAL_TIMEOUT_SECONDS):
                await client.turns.acquire()
        except TimeoutError:
            raise _too_many(name, f"has {self._max_arriving} messages that still arrive") from None
        finally:
            client.waiting -= 1
            if timer is not None:
                timer.cancel()
        client.calls += 1
        return Turn(client)


def _too_many(client: str, reason: str) -> TooManyRequests:
    return TooManyRequests(
        f"{client} {reason}, and no more are allowed: end some, or come again later",
        limit=MAX_UNREAD,
        retry_after=RETRY_SECONDS,
        reset_seconds=RETRY_SECONDS,
    )
