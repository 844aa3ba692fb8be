"""Bounds on calls that need no key: health and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from forebay.errors import TooManyRequests
from forebay.service.auth import Authenticator
from forebay.service.grpc.message_arrival_turns import Arrivals
from forebay.service.grpc.servicer import address_of, read_message
from forebay.service.slots_by_address import AddressSlots, network_of

# Concurrent calls without a key: in total, and by address. They leave room for other calls.
MAX_OPEN_CALLS: Final = 1_000
MAX_OPEN_CALLS_PER_ADDRESS: Final = 100
# Their messages have a few bytes, and may be as large as any: few arrive at a time, and not for long.
MAX_OPEN_ARRIVING: Final = 4
MAX_OPEN_ARRIVING_PER_ADDRESS: Final = 2
OPEN_ARRIVAL_TIMEOUT_SECONDS: Final = 2.0


class OpenCalls:
    """Bounds of calls without a key: a rate by address, and a number of concurrent calls."""

    def __init__(self, guard: Authenticator, slots: AddressSlots) -> None:
        self._guard = guard
        self._slots = slots
        self._arrivals = Arrivals(MAX_OPEN_ARRIVING)
        self._arrivals_of = Arrivals(MAX_OPEN_ARRIVING_PER_ADDRESS)

    @asynccontextmanager
    async def admit(self, context: Any) -> AsyncIterator[None]:
        """Hold a slot for a call, or end it with RESOURCE_EXHAUSTED."""
        address = address_of(context.peer())
        try:
            self._guard.count_open_request(address)
        except TooManyRequests as exc:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(exc))
        if not self._slots.acquire(address):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many concurrent calls without a key")
        try:
            yield
        finally:
            self._slots.release(address)

    async def read(self, context: Any) -> bytes:
        """Return the message of an admitted call in its turn. Addresses take turns, and the calls of each."""
        address = network_of(address_of(context.peer()))
        async with self._arrivals_of.turn(address), self._arrivals.turn("all"):
            return await read_message(context, asyncio.timeout(OPEN_ARRIVAL_TIMEOUT_SECONDS))
