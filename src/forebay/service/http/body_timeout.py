"""Time limit for the arrival of a request body: a slow client occupies the server for a bounded time."""

from __future__ import annotations

import asyncio
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send

from forebay.service.http.errors import RequestTimeout

ARRIVAL_TIMEOUT_SECONDS: Final = 30.0
HAS_BODY: Final = "forebay.has_body"  # in the state: returns whether the body has arrived


class BodyTimeout:
    """Middleware that limits the time for a request body."""

    def __init__(self, app: ASGIApp, seconds: float = ARRIVAL_TIMEOUT_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Nearly every body arrives with its head. A time limit for it would cost 10 us.
        if scope["type"] != ScopeType.HTTP or scope.get("state", {}).get(HAS_BODY, _is_unknown)():
            await self._app(scope, receive, send)
            return
        ends_at = asyncio.get_running_loop().time() + self._seconds
        has_arrived = False

        async def receive_in_time() -> HTTPReceiveMessage:
            nonlocal has_arrived
            if has_arrived:  # the next message is the disconnect, which has no time limit
                return await receive()  # type: ignore[return-value]  # of an HTTP request
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await receive()
            except TimeoutError as exc:
                raise RequestTimeout(f"the request has not arrived within {self._seconds:g} s") from exc
            has_arrived = not message.get("more_body", False)
            return message  # type: ignore[return-value]  # as above

        await self._app(scope, receive_in_time, send)


def _is_unknown() -> bool:
    return False
