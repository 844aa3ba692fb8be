"""HTTP client of the remote engine: connection pool, repetition and fail-over between servers."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any, Final

import httpx2
import msgspec

from forebay.errors import (
    Forbidden,
    ForebayError,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnusable,
    Unauthenticated,
)
from forebay.prepared_types import prepare_type
from forebay.stores.rpc import MEDIA_TYPE, PATH, decode_error

ANSWER_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
# A call that another server can take waits no longer for a silent one: leases end meanwhile.
FAILOVER_SECONDS: Final = 5.0
# Pauses between rounds through all servers; the caller knows whether a longer wait makes sense.
PAUSES: Final = (0.1, 0.4)
# Shorter than servers keep idle connections open (5 s). If a server closes one at the moment of a request,
# the client cannot know whether the request arrived.
KEEPALIVE_SECONDS: Final = 2.5
MAX_CONNECTIONS: Final = 100

# Errors before the request was sent.
_NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)
_KINDS: Final[dict[int, type[ForebayError]]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: StoreUnusable,
    413: StoreRefused,
}
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"  # the wrapped error has no other trace of the reason
_OK: Final = 200
_TOO_SLOW: Final = 408  # the request did not arrive in time
_RATE_LIMITED: Final = 429
_SERVER_ERRORS: Final = 500
_FAULT: Final = "internal"


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a service. Its representation hides the key."""

    urls: tuple[str, ...]
    key: str | None = None
    response_timeout: float = ANSWER_SECONDS
    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("urls", self.urls)]

    def __repr__(self) -> str:
        return f"Address({', '.join(self.urls)})"


class _ProblemBody(msgspec.Struct):
    """Fields of a problem response that are used."""

    detail: str = ""
    code: str = ""


class RequestNotSent(StoreUnavailable):
    """Error of a request that no server received, so any call may be repeated."""


class RequestTimedOut(StoreUnavailable):
    """Error of a request without a response in time: it may still be executed."""


class ServiceClient:
    """Client for the servers of one service, usable from any thread.

    Its connections are shared by all handles that `acquire` it, and closed when the last one releases it.
    After a fork the child opens connections of its own."""

    def __init__(self, address: ServiceAddress) -> None:
        self.address = address
        self._is_forebay = False  # whether a server has responded as a Forebay service does
        self.chosen: int = 0  # the server that responded last; calls fail over to the next one
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._users = 0
        self._client: httpx2.Client | None = None

    def acquire(self) -> None:
        """Count a handle that uses the client."""
        with self._current_lock():
            self._users += 1

    def release(self) -> None:
        """Drop a handle's use; close the connections with the last one."""
        with self._current_lock():
            self._users -= 1
            client = self._client if self._users <= 0 else None
            if client is not None:
                self._client = None
                client.close()

    def _current_lock(self) -> Lock:
        if self._pid != os.getpid():
            # After a fork: the parent closes the inherited connections, and its lock may never be released.
            self._start_over()
        return self._lock

    def call(self, operation: str, body: bytes, *, may_repeat: bool = False) -> bytes:
        """Make a call and return the response body; raise StoreUnavailable if all attempts fail.

        A request that no server received goes to the next server, and after a pause through all of them
        again. With `may_repeat` a request whose response was lost is repeated too. With several servers, a
        silent one is given up soon, except in the last round: all may be busy."""
        is_urgent = may_repeat and len(self.address.urls) > 1
        deadline = time.monotonic() + self.address.response_timeout
        for pause in (*PAUSES, None):
            for _ in self.address.urls:
                chosen = self.chosen
                try:
                    return self._call_server(operation, body, chosen, is_urgent and pause is not None)
                except StoreBusy:
                    raise  # any other server of this service meets the same transaction
                except StoreUnavailable as exc:
                    last_error = exc
                    self.fail_over(chosen)
                    if not (may_repeat or isinstance(exc, RequestNotSent)):
                        raise
            if pause is None or time.monotonic() + pause >= deadline:
                raise last_error
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - jitter: clients must not return at once
        raise AssertionError("the last pause is None")

    def fail_over(self, chosen: int) -> None:
        """Use the server after the chosen one from now on.

        Two threads may fail at the same server; the second must not skip the server that the first chose."""
        with self._current_lock():
            if self.chosen == chosen:
                self.chosen += 1

    def _call_server(self, operation: str, body: bytes, chosen: int, is_urgent: bool) -> bytes:
        with self.stream(operation, body, chosen, is_urgent=is_urgent) as response:
            with _translate_errors(str(response.url)):
                content = response.read()
            if response.status_code != _OK:
                raise self._build_error(response, content)
            self._is_forebay = True
            return content

    @contextmanager
    def stream(
        self, operation: str, body: bytes, chosen: int, *, is_urgent: bool = False
    ) -> Iterator[httpx2.Response]:
        """Send a request to the chosen server; yield the response once its header has arrived."""
        url, timeout_seconds = (
            self.address.urls[chosen % len(self.address.urls)],
            self.address.response_timeout,
        )
        timeout = httpx2.Timeout(
            min(timeout_seconds, FAILOVER_SECONDS) if is_urgent else timeout_seconds, connect=CONNECT_SECONDS
        )
        request = self._open_client().build_request(
            "POST", f"{url}{PATH}{operation}", content=body, timeout=timeout
        )
        with _translate_errors(url):
            response = self._open_client().send(request, stream=True)
        try:
            yield response
        finally:
            response.close()

    def _build_error(self, response: httpx2.Response, content: bytes) -> ForebayError:
        """Build the error for a response without a result."""
        status, host = response.status_code, response.url.host
        if response.headers.get("Content-Type") == MEDIA_TYPE:
            self._is_forebay = True
            return decode_error(content)
        try:
            problem = msgspec.json.decode(content, type=prepare_type(_ProblemBody))
        except (msgspec.MsgspecError, UnicodeError):
            problem = _ProblemBody()
        detail = problem.detail or f"status {status}"
        if status in (_RATE_LIMITED, _TOO_SLOW):
            return RequestNotSent(f"the service refuses requests for now: {detail}")
        if problem.code == _FAULT:
            # No StoreUnavailable: the service works and fails at this very call, so a retry would never end.
            return ForebayError(f"the service at {host} has failed: {detail}")
        if status >= _SERVER_ERRORS:
            return StoreUnavailable(f"the service at {host} is unavailable: {detail}")
        if not problem.code:
            # A proxy in front of the service, during a move or a change of routes; else a wrong address.
            if self._is_forebay:
                return StoreUnavailable(f"the service at {host} is not there now: {detail}")
            return StoreUnusable(f"the server at {host} is no Forebay service; check the address: {detail}")
        return _KINDS.get(status, StoreError)(detail)

    def _open_client(self) -> httpx2.Client:
        with self._current_lock():
            if self._client is None:
                self._client = self._create_client()
            return self._client

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Trusted certificates. Reading the system's takes 30 ms, so it is done once, and for https alone."""
        address = self.address
        if not address.urls[0].startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context = (
            httpx2.create_ssl_context()
            if address.ca_certs is None
            else ssl.create_default_context(cafile=address.ca_certs)
        )
        if address.certfile is not None:
            try:
                context.load_cert_chain(address.certfile, address.keyfile)
            except (OSError, ValueError) as exc:
                raise StoreUnusable(f"ssl_certfile {address.certfile} cannot be used: {exc}") from exc
        return context

    def _create_client(self) -> httpx2.Client:
        address = self.address
        headers = {"Content-Type": MEDIA_TYPE}
        if address.key is not None:
            headers["Authorization"] = f"Bearer {address.key}"
        return httpx2.Client(
            headers=headers,
            verify=self._trust,
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS),
        )


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except _NOT_SENT as exc:
        if _UNTRUSTED in str(exc):
            raise StoreUnusable(
                f"the certificate of the service at {url} is not trusted: name the one that has signed it in "
                "ssl_ca_certs"
            ) from exc
        raise RequestNotSent(f"the service at {url} cannot be reached: {exc}") from exc
    except httpx2.LocalProtocolError:
        # Neither quoted nor chained: it shows headers, and one of them has the key.
        raise StoreUnavailable(f"a connection to the service at {url} has broken") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        kind = RequestTimedOut if isinstance(exc, httpx2.TimeoutException) else StoreUnavailable
        raise kind(f"the service at {url} does not respond: {str(exc) or type(exc).__name__}") from exc
