"""Counting of the bytes of requests and responses for the quotas of clients."""

from __future__ import annotations

from typing import Any

from litestar.datastructures import Headers
from litestar.types import Message, Receive, Send

from forebay.service.client_rates_and_quotas import ClientUsage
from forebay.service.runtime.codec_threads import LARGE


def may_be_large(headers: Headers) -> bool:
    """Return whether a request has more than a few bytes, or does not say how many."""
    length = headers.get("content-length", "")
    # uvicorn has checked that it is a number.
    return int(length) > LARGE if length else "transfer-encoding" in headers


class HeldBody:
    """Request body whose bytes are counted as in flight for its client."""

    def __init__(self, receive: Receive, usage: ClientUsage) -> None:
        self._receive = receive
        self._usage = usage
        self.size: int = 0

    async def receive(self) -> Any:
        """Return the next message; raises TooManyRequests if the client has too many bytes in flight."""
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._usage.hold_bytes(size)
            self.size += size
        return message


def count_received_bytes(receive: Receive, usage: ClientUsage) -> Receive:
    """Return a `receive` that counts the bytes of the request for its client."""

    async def counted() -> Any:
        message = await receive()
        if message["type"] == "http.request":
            usage.spend(len(message.get("body", b"")))
        return message

    return counted


def count_sent_bytes(send: Send, usage: ClientUsage) -> Send:
    """Return a `send` that counts the bytes of the response for its client."""

    async def counted(message: Message) -> None:
        if message["type"] == "http.response.body":
            usage.spend(len(message.get("body", b"")))
        await send(message)

    return counted
