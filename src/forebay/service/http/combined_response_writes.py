"""Combined writes of responses: head and body of a small one are one packet and one system call.

uvicorn writes them one after the other, and asyncio sends each at once. The second system call, and waking
the client twice, cost as much as a tenth of a small request.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MAX_JOINED: Final = 65_536  # copying more bytes into one piece would cost more than a system call


class CombinedWrites:
    """Transport that holds a small write until the next one, or until the event loop has run other work."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held and len(data) <= MAX_JOINED:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif self._held or len(data) > MAX_JOINED:
            self._flush()
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)
