"""How long a connection may be open before a request has begun on it: as long as one may take to arrive.

The server library has a limit for connections that are silent between two requests, and none for those that
are silent from the start or that send the head of a request byte by byte.
"""

from __future__ import annotations

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from forebay.service.http.arriving import ARRIVES_WITHIN_SECONDS


class Connecting(H11Protocol):
    """A connection that is closed if the head of a request takes too long. What follows the head is the
    matter of `Arriving`."""

    head_seconds = ARRIVES_WITHIN_SECONDS
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        # An answer is written in two pieces, its head and its body. Without this the system keeps the second
        # until the client has confirmed the first, which takes 40 ms. The event loop says so itself only for
        # sockets that were made with the number of the protocol, and one that was accepted here has none.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _watch(self) -> None:
        """Let the time run from the first moment without a whole head to the one at which there is one."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._ends is None:
            self._ends = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None
