"""HTTP authentication, before any part of the body is read.

An authenticated request carries its `Caller`. The response says what is left of the caller's rate, and has
the request id of the audit log.

A browser sends the session cookie with every request to this server, whichever page makes it. So a request
that changes something also needs a header, which a page of another site cannot send without CORS permission,
and there is none. Its Origin must be this server, too. Browsers do not send the cookie for such pages in the
first place (SameSite). Each of these defences is sufficient.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from forebay.errors import Forbidden, ForebayError, TooManyRequests, Unauthenticated
from forebay.service.auth import Authenticator, Caller, bearer_token, request_id
from forebay.service.browser_sessions import ShownSession
from forebay.service.client_rate_limits import ClientUsage, Connection, RateAllowance
from forebay.service.http.cookies import SESSION, Cookie
from forebay.service.problem_details import problem_of
from forebay.service.refusal_log import key_name_in
from forebay.service.runtime.codec_threads import LARGE

CALLER: Final = "forebay.caller"
REFUSED_KEY_NAME: Final = "forebay.refused_key_name"  # the name of the key in a refused token
CONNECTION: Final = "forebay.connection"  # in the state: counts the connection for its clients
CERTIFICATE: Final = "forebay.certificate"  # in the state: the common name of a verified client certificate
REQUEST_ID: Final = "X-Request-Id"
# Endpoints without authentication, which reveal nothing about jobs: health, the OpenAPI document, logins.
OPEN: Final = ("/health/", "/openapi", "/v1/login")
PAGE_HEADER: Final = "X-Forebay-Page"
# Sent by the page with requests that it makes by itself. The event stream always is such a request.
BACKGROUND_HEADER: Final = "X-Forebay-Background"
STREAM: Final = "/v1/events/stream"
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


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
        cookie = Cookie.of(scope, SESSION, is_secure=self._is_secure)
        found = cookie.find(headers.get("cookie", ""))
        if found is None:
            return None
        check_page(scope["method"], headers)
        return ShownSession(found, BACKGROUND_HEADER in headers or scope["path"] == STREAM)


def _certificate(scope: HTTPScope, headers: Headers) -> str | None:
    """Return the name in the client certificate; raises Forbidden for a request of another site.

    A browser presents a certificate with every request, as it does a cookie; programs send no Origin.
    """
    name: str | None = scope.get("state", {}).get(CERTIFICATE)
    origin = headers.get("origin")
    if name is not None and origin is not None and not _is_same(origin, headers.get("host", "")):
        raise Forbidden("a client certificate is not accepted from pages of other sites")
    return name


def check_page(method: str, headers: Headers) -> None:
    """Raise Forbidden for a change that a page of another site may have requested, with the credentials of
    the browser."""
    if method in _SAFE:
        return
    if PAGE_HEADER not in headers:
        raise Forbidden(f"a change with a session cookie needs the header {PAGE_HEADER}")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Forbidden("a session accepts no changes from pages of other sites")


def check_local(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise Forbidden for a request that a page of another site makes in a browser of this machine.

    A server without keys trusts its machine, and a browser lends that trust to the pages it shows. A page of
    another site names it in Origin. A page whose own name resolves to this machine (DNS rebinding) sends no
    Origin, but names itself in Host.
    """
    host_header = headers.get("host", "")
    host = _hostname(f"//{host_header}")
    origin = headers.get("origin")
    if not _is_ours(host, hosts):
        raise Forbidden(
            f"this server has no keys, and is not known as {host!r:.100}: use its IP address, or start it "
            "with --allowed-host"
        )
    if origin is not None and not _is_same(origin, host_header):
        raise Forbidden("this server has no keys, and accepts no requests from pages of other sites")


@lru_cache(maxsize=64)  # nearly all requests have the same one
def _hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def _is_same(origin: str, host_header: str) -> bool:
    """Return whether a page is from the server that it requests.

    Its port counts, because other servers of the same machine may serve pages. A Host without a port means
    the default port of the page's scheme.
    """
    try:
        page = urlsplit(origin)
        server = urlsplit(f"{page.scheme}://{host_header}")
        default_port = _PORTS.get(page.scheme)  # the Origin of a page without one is "null"
        return default_port is not None and (page.hostname, page.port or default_port) == (
            server.hostname,
            server.port or default_port,
        )
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_ours(host: str, hosts: frozenset[str]) -> bool:
    if host == "localhost" or host in hosts:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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


def add_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a `send` that adds these headers to the response."""
    encoded = _encode_headers(headers)

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *encoded]
        await send(message)

    return send_with_headers


async def refuse(send: Send, error: ForebayError, headers: Mapping[str, str]) -> None:
    """Send a problem as the response."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    fields = {**headers, "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
    if isinstance(error, TooManyRequests):
        fields |= RateAllowance(error.limit, 0, error.reset_seconds).headers()
    if isinstance(error, Unauthenticated):
        fields["WWW-Authenticate"] = "Bearer"
    if problem.retry_after_seconds is not None:
        fields["Retry-After"] = str(problem.retry_after_seconds)
    await send({"type": "http.response.start", "status": problem.status, "headers": _encode_headers(fields)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
