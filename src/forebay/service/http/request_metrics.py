"""How long requests take until their answer begins, by endpoint: the outermost part of the service.

An answer that goes on for long, such as a stream of events, is counted when it begins: how long somebody
listens says nothing about the service.
"""

from __future__ import annotations

from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from forebay.service.http.access_log import line_of
from forebay.service.request_log import Refusals
from forebay.service.runtime.request_stats import OTHER, EndpointMatcher, RequestRoute, RequestStats

FIRST_PROBLEM: Final = 400
_REFUSALS: Final = frozenset({401, 403, 429})
# What a browser does with an answer that it should not have got: nothing. Pages have headers of their own.
_PROTECTION: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# A client may invent others, and each would be counted by itself.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """The app, with every answer counted and protected, and every refusal logged."""

    def __init__(
        self, app: ASGIApp, requests: RequestStats, endpoints: EndpointMatcher, refusals: Refusals
    ) -> None:
        self._app = app
        self._requests = requests
        self._endpoints = endpoints
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        requests = self._requests
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        route = RequestRoute(self._endpoints.match(scope["path"]), method)
        began = requests.clock.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                requests.record_response(route, began)
                if message["status"] >= FIRST_PROBLEM:
                    requests.record_error(route, str(message["status"]))
                    if message["status"] in _REFUSALS:
                        self._refusals.write(line_of(scope, message))
                message["headers"] = [*message.get("headers", ()), *_PROTECTION]
            await send(message)

        await self._app(scope, receive, counted)
