"""Who is let in, before anything of a request is read: the guard at the door of HTTP.

A request that is let in carries its `Caller`. Its answer says what the caller has left, and by which id the
audit log knows the request.

A browser shows the cookie of a session with every request to this server, whichever page has made it. So one
that changes something needs a header as well, which a page of another site cannot send without our leave, and
we give none; and it must not say that it is from another site. The cookie is not shown to us by such pages
anyway (SameSite): each of these is enough.
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
from forebay.service.http.cookies import SESSION, Cookie
from forebay.service.problems import problem_of
from forebay.service.rate_limits import ClientUsage, RateAllowance
from forebay.service.request_log import key_name_in
from forebay.service.runtime.converter import LARGE
from forebay.service.sessions import ShownSession

CALLER: Final = "forebay.caller"
REFUSED_KEY_NAME: Final = "forebay.refused_key_name"  # the name of the key in a token that was refused
CERTIFICATE: Final = "forebay.certificate"  # in the state: the common name that the client has proved
REQUEST_ID: Final = "X-Request-Id"
# What says nothing about anybody's jobs: whoever watches over the server, and how to talk to it.
OPEN: Final = ("/health/", "/openapi", "/v1/login")
PAGE_HEADER: Final = "X-Forebay-Page"
# The page says so of what it asks while its user does nothing. Its stream of events is such a request always.
BACKGROUND_HEADER: Final = "X-Forebay-Background"
STREAM: Final = "/v1/events/stream"
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class AuthMiddleware:
    """The app behind a guard."""

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
        asked = request_id(headers.get(REQUEST_ID, ""))
        try:
            caller = await self._authenticate(scope, headers, asked)
        except ForebayError as error:
            cast("dict[str, Any]", scope)[REFUSED_KEY_NAME] = key_name_in(
                bearer_token(headers.get("authorization"))
            )
            await refuse(send, error, {REQUEST_ID: asked})
            return
        if caller is None:
            await self._app(scope, receive, send)
            return
        cast("dict[str, Any]", scope)[CALLER] = caller
        if caller.usage is not None and caller.usage.counts_bytes:
            receive, send = count_received_bytes(receive, caller.usage), count_sent_bytes(send, caller.usage)
        send = add_headers(send, {**caller.headers, REQUEST_ID: asked})
        if caller.usage is None or not may_be_large(headers):
            await self._app(scope, receive, send)
            return
        held = HeldBody(receive, caller.usage)
        try:
            await self._app(scope, held.receive, send)
        finally:
            caller.usage.release_bytes(held.size)

    async def _authenticate(self, scope: HTTPScope, headers: Headers, request: str) -> Caller | None:
        """The caller of a request; None where the answer is for everybody."""
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
        """The session in the cookie; raises Forbidden for a request that another site may have made."""
        cookie = Cookie.of(scope, SESSION, is_secure=self._is_secure)
        found = cookie.find(headers.get("cookie", ""))
        if found is None:
            return None
        check_page(scope["method"], headers)
        return ShownSession(found, BACKGROUND_HEADER in headers or scope["path"] == STREAM)


def _certificate(scope: HTTPScope, headers: Headers) -> str | None:
    """The name in the client's certificate; raises Forbidden for a request of another site. A browser shows
    a certificate with every request, as it does a cookie; programs name no origin."""
    name: str | None = scope.get("state", {}).get(CERTIFICATE)
    origin = headers.get("origin")
    if name is not None and origin is not None and not _is_same(origin, headers.get("host", "")):
        raise Forbidden("a certificate opens nothing to pages of other sites")
    return name


def check_page(method: str, headers: Headers) -> None:
    """Raise Forbidden for a change that a page of another site may ask for, with what a browser shows of
    itself."""
    if method in _SAFE:
        return
    if PAGE_HEADER not in headers:
        raise Forbidden(f"a request that changes something with a cookie needs the header {PAGE_HEADER}")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Forbidden("a session takes nothing from pages of other sites")


def check_local(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise Forbidden for a request that a page of somebody else's makes in the browser of this machine.

    A server that lets everybody in trusts its machine, and a browser on it lends that trust to pages. One of
    another site says where it is from (Origin). One whose own name was made to lead to this machine does not
    need to, but says that name (Host).
    """
    named = headers.get("host", "")
    host = _hostname(f"//{named}")
    origin = headers.get("origin")
    if not _is_ours(host, hosts):
        raise Forbidden(
            f"this server has no keys, and is not known as {host!r:.100}: ask it by its address, or start it "
            "with --allowed-host"
        )
    if origin is not None and not _is_same(origin, named):
        raise Forbidden("this server has no keys, and takes nothing from pages of other sites")


@lru_cache(maxsize=64)  # nearly every request names the same one
def _hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def _is_same(origin: str, host_header: str) -> bool:
    """Whether a page is from the server that it asks. Its port counts: beside this server on the same machine
    others may serve pages. A Host without a port means the usual one of the page's scheme."""
    try:
        page = urlsplit(origin)
        asked = urlsplit(f"{page.scheme}://{host_header}")
        usual = _PORTS.get(page.scheme)  # a page without an origin says "null"
        return usual is not None and (page.hostname, page.port or usual) == (
            asked.hostname,
            asked.port or usual,
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
    """Whether a request brings more than a few bytes, or does not say how many."""
    length = headers.get("content-length", "")
    # The server has checked that it is a number.
    return int(length) > LARGE if length else "transfer-encoding" in headers


class HeldBody:
    """The body of a request, whose bytes are counted as under way for its client."""

    def __init__(self, receive: Receive, usage: ClientUsage) -> None:
        self._receive = receive
        self._usage = usage
        self.size: int = 0

    async def receive(self) -> Any:
        """The next part; raises TooManyRequests if the client has too much under way with it."""
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._usage.hold_bytes(size)
            self.size += size
        return message


def count_received_bytes(receive: Receive, usage: ClientUsage) -> Receive:
    """The same, with the bytes of the request counted for its client."""

    async def counted() -> Any:
        message = await receive()
        if message["type"] == "http.request":
            usage.spend(len(message.get("body", b"")))
        return message

    return counted


def count_sent_bytes(send: Send, usage: ClientUsage) -> Send:
    """The same for the answer."""

    async def counted(message: Message) -> None:
        if message["type"] == "http.response.body":
            usage.spend(len(message.get("body", b"")))
        await send(message)

    return counted


def add_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """The way for an answer, which gets these headers too."""
    more = _encode_headers(headers)

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *more]
        await send(message)

    return tell


async def refuse(send: Send, error: ForebayError, headers: Mapping[str, str]) -> None:
    """Answer what is wrong."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    told = {**headers, "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
    if isinstance(error, TooManyRequests):
        told |= RateAllowance(error.limit, 0, error.reset_seconds).headers()
    if isinstance(error, Unauthenticated):
        told["WWW-Authenticate"] = "Bearer"
    if problem.retry_after_seconds is not None:
        told["Retry-After"] = str(problem.retry_after_seconds)
    await send({"type": "http.response.start", "status": problem.status, "headers": _encode_headers(told)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
