"""Latency of requests until their response starts, by endpoint: the outermost middleware.

A long response, such as an event stream, is counted at its start: its duration says nothing about the
service.
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
# Browsers must not interpret, cache or embed responses of the API. The page has headers of its own.
_PROTECTION: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# Other methods are counted as one, because a client may invent any number of them.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Middleware that counts responses, adds protective headers and logs refusals."""

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
        started_at = requests.clock.monotonic()

        async def count_response(message: Message) -> None:
            if message["type"] == "http.response.start":
                requests.record_response(route, started_at)
                if message["status"] >= FIRST_PROBLEM:
                    requests.record_error(route, str(message["status"]))
                    if message["status"] in _REFUSALS:
                        self._refusals.write(line_of(scope, message))
                message["headers"] = [*message.get("headers", ()), *_PROTECTION]
            await send(message)

        await self._app(scope, receive, count_response)
