"""HTTP authentication, before any part of the body is read.

An authenticated request carries its `Caller`. The response says what is left of the caller's rate, and has
the request id of the audit log.
"""

from __future__ import annotations

from typing import Any, Final, cast

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from forebay.errors import Forbidden, ForebayError, TooManyRequests
from forebay.service.auth import Authenticator, bearer_token, request_id
from forebay.service.browser_sessions import ShownSession
from forebay.service.caller import Caller
from forebay.service.client_rates_and_quotas import Connection
from forebay.service.http.asgi_responses import add_headers, refuse
from forebay.service.http.cookies import SESSION, Cookie
from forebay.service.http.cross_site_check import BACKGROUND_HEADER, check_local, check_page, is_same_origin
from forebay.service.http.quota_byte_counts import (
    HeldBody,
    count_received_bytes,
    count_sent_bytes,
    may_be_large,
)
from forebay.service.request_log import key_name_in

CALLER: Final = "forebay.caller"
REFUSED_KEY_NAME: Final = "forebay.refused_key_name"  # the name of the key in a refused token
CONNECTION: Final = "forebay.connection"  # in the state: counts the connection for its clients
CERTIFICATE: Final = "forebay.certificate"  # in the state: the common name of a verified client certificate
REQUEST_ID: Final = "X-Request-Id"
# Endpoints without authentication, which reveal nothing about jobs: health, the OpenAPI document, logins.
OPEN: Final = ("/health/", "/openapi", "/v1/login")
STREAM: Final = "/v1/events/stream"


class AuthMiddleware:
    """Middleware that authenticates requests."""

    def __init__(
        self,
        app: ASGIApp,
        guard: Authenticator,
        hosts: frozenset[str] = frozenset(),
        *,
        is_secure: bool = False,
    ) -> None:
        self._app = app
        self._guard = guard
        self._hosts = hosts
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        headers = Headers.from_scope(scope)
        req_id = request_id(headers.get(REQUEST_ID, ""))
        try:
            caller = await self._authenticate(scope, headers, req_id)
        except ForebayError as error:
            cast("dict[str, Any]", scope)[REFUSED_KEY_NAME] = key_name_in(
                bearer_token(headers.get("authorization"))
            )
            await refuse(send, error, {REQUEST_ID: req_id})
            return
        if caller is None:
            await self._app(scope, receive, send)
            return
        cast("dict[str, Any]", scope)[CALLER] = caller
        connection: Connection | None = scope.get("state", {}).get(CONNECTION)
        if caller.usage is not None and connection is not None:
            try:
                caller.usage.hold_connection(connection)
            except TooManyRequests as error:  # closed, so that it is not open and yet not counted
                await refuse(send, error, {REQUEST_ID: req_id, "Connection": "close"})
                return
        if caller.usage is not None and caller.usage.counts_bytes:
            receive, send = count_received_bytes(receive, caller.usage), count_sent_bytes(send, caller.usage)
        send = add_headers(send, {**caller.headers, REQUEST_ID: req_id})
        if caller.usage is None or not may_be_large(headers):
            await self._app(scope, receive, send)
            return
        body = HeldBody(receive, caller.usage)
        try:
            await self._app(scope, body.receive, send)
        finally:
            caller.usage.release_bytes(body.size)

    async def _authenticate(self, scope: HTTPScope, headers: Headers, request: str) -> Caller | None:
        """Return the caller of a request; None for an endpoint without authentication."""
        address = scope["client"][0] if scope["client"] else ""
        if scope["path"].startswith(OPEN):
            self._guard.count_open_request(address)
            return None
        if self._guard.is_open:
            check_local(headers, self._hosts)
        token, session, certificate = bearer_token(headers.get("authorization")), None, None
        if token is None:
            session = self._find_session(scope, headers)
        if token is None and session is None:
            certificate = _certificate(scope, headers)
        return await self._guard.authenticate(token, address, request, certificate, session)

    def _find_session(self, scope: HTTPScope, headers: Headers) -> ShownSession | None:
        """Return the session in the cookie; raises Forbidden for a request that another site may have
        made."""
        sent = headers.get("cookie")
        if sent is None:
            return None
        found = Cookie.of(scope, SESSION, is_secure=self._is_secure).find(sent)
        if found is None:
            return None
        check_page(scope["method"], headers)
        return ShownSession(found, BACKGROUND_HEADER in headers or scope["path"] == STREAM)


def _certificate(scope: HTTPScope, headers: Headers) -> str | None:
    """Return the name in the client certificate; raises Forbidden for a request of another site.

    A browser presents a certificate with every request, as it does a cookie; programs send no Origin.
    """
    name: str | None = scope.get("state", {}).get(CERTIFICATE)
    if name is None:
        return None
    origin = headers.get("origin")
    if origin is not None and not is_same_origin(origin, headers.get("host", "")):
        raise Forbidden("a client certificate is not accepted from pages of other sites")
    return name
