"""Disconnect of a client: the work for its request is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from litestar.types import Receive

T = TypeVar("T")


class ClientDisconnected(Exception):
    """Client has closed its connection, so nothing reads a response."""


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` for a client that may disconnect: then the work is cancelled, and ClientDisconnected
    raised.

    A result that was ready in the same moment is raised as DisconnectedWithResult.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_until_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            return await working
        working.cancel()
        with suppress(asyncio.CancelledError):
            raise DisconnectedWithResult(await working)
        raise ClientDisconnected
    finally:
        working.cancel()
        leaving.cancel()


class DisconnectedWithResult(ClientDisconnected):
    """Client has disconnected in the moment in which this result was ready."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


async def wait_until_disconnected(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
