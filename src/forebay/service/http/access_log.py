"""HTTP access log: one line per request, when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from forebay.clock import Clock
from forebay.service.caller import Caller
from forebay.service.http.auth import CALLER, REFUSED_KEY_NAME, REQUEST_ID
from forebay.service.request_log import RequestLine

_UNANSWERED: Final = "-"  # the client has disconnected before the response


class AccessLog:
    """Middleware that logs requests."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        started_at = self._clock.monotonic()
        start: Mapping[str, Any] = {}

        async def record_start(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            await send(message)

        try:
            await self._app(scope, receive, record_start)
        finally:
            line_of(scope, start).write((self._clock.monotonic() - started_at) * 1_000)


def line_of(scope: HTTPScope, start: Mapping[str, Any]) -> RequestLine:
    """Return the log line of a request and the start of its response."""
    known = cast("dict[str, Any]", scope)
    caller: Caller | None = known.get(CALLER)
    client = scope["client"]
    header = REQUEST_ID.lower().encode()
    found = (value.decode("latin-1") for name, value in start.get("headers", ()) if name == header)
    return RequestLine(
        method=scope["method"],
        path=scope["path"],
        status=str(start.get("status", _UNANSWERED)),
        address=client[0] if client else "",
        caller=known.get(REFUSED_KEY_NAME, "") if caller is None else caller.name,
        request=next(found, ""),
    )
