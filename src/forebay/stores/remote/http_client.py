"""Asking a service: one pool of connections, one or several servers, and what to do when one is away."""

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
from forebay.stores.rpc import MEDIA_TYPE, PATH, decode_error

ANSWER_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
# What may be asked of another server waits no longer for one that says nothing: leases end meanwhile.
FAILOVER_SECONDS: Final = 5.0
# Before another round through all servers; a longer wait is left to whoever asks and knows how urgent it is.
PAUSES: Final = (0.1, 0.4)
# Less than a server keeps a silent connection open (5 s): who uses one at the very moment at which it is
# closed does not know whether the request was heard.
KEEPALIVE_SECONDS: Final = 2.5
MAX_CONNECTIONS: Final = 100

# What went wrong before a word was said.
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
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"  # all that is left of the reason by then
_OK: Final = 200
_TOO_SLOW: Final = 408  # to be heard at all
_TOO_OFTEN: Final = 429
_SERVER_ERRORS: Final = 500
_FAULT: Final = "internal"


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a service is. The key is shown to nobody else."""

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
    """What is read of a problem."""

    detail: str = ""
    code: str = ""


class RequestNotSent(StoreUnavailable):
    """Nobody has heard the request, so it may be made again, whatever it asks for."""


class RequestTimedOut(StoreUnavailable):
    """Nobody has answered in time: the request may be done yet."""


class ServiceClient:
    """The servers of one service. Any thread may ask; after a fork the child has connections of its own.
    They are shared by all who `hold` it, and closed when the last one lets go."""

    def __init__(self, address: ServiceAddress) -> None:
        self.address = address
        self._is_forebay = False  # whether somebody has answered as a service of ours does
        self.chosen: int = 0  # the server that answered last; the others are asked when it does not
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._users = 0
        self._client: httpx2.Client | None = None

    def acquire(self) -> None:
        """Somebody is about to ask."""
        with self._current_lock():
            self._users += 1

    def release(self) -> None:
        """Somebody asks no more."""
        with self._current_lock():
            self._users -= 1
            client = self._client if self._users <= 0 else None
            if client is not None:
                self._client = None
                client.close()

    def _current_lock(self) -> Lock:
        if self._pid != os.getpid():
            # A fork: what was inherited is the parent's to close, and its lock may be taken for ever.
            self._start_over()
        return self._lock

    def call(self, operation: str, body: bytes, *, may_repeat: bool = False) -> bytes:
        """The answer to a call. It goes to the next server, and round again after a pause, as long as nobody
        has heard it; with `may_repeat` also when an answer got lost. Raises StoreUnavailable at last.

        Where there are others, a server that is silent is given up soon, but in the last round: they may all
        have much to do."""
        is_impatient = may_repeat and len(self.address.urls) > 1
        ends = time.monotonic() + self.address.response_timeout
        for pause in (*PAUSES, None):
            for _ in self.address.urls:
                chosen = self.chosen
                try:
                    return self._call_server(operation, body, chosen, is_impatient and pause is not None)
                except StoreBusy:
                    raise  # any other server of this service meets the same transaction
                except StoreUnavailable as exc:
                    lost = exc
                    self.fail_over(chosen)
                    if not (may_repeat or isinstance(exc, RequestNotSent)):
                        raise
            if pause is None or time.monotonic() + pause >= ends:
                raise lost
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - so that not all come back at once
        raise AssertionError("the last pause is None")

    def fail_over(self, chosen: int) -> None:
        """Ask another server than the chosen one from now on. Two threads may find out about the same one:
        the second must not pass over the server that the first has gone on to."""
        with self._current_lock():
            if self.chosen == chosen:
                self.chosen += 1

    def _call_server(self, operation: str, body: bytes, chosen: int, is_impatient: bool) -> bytes:
        with self.stream(operation, body, chosen, is_impatient=is_impatient) as response:
            with _translate_errors(str(response.url)):
                content = response.read()
            if response.status_code != _OK:
                raise self._build_error(response, content)
            self._is_forebay = True
            return content

    @contextmanager
    def stream(
        self, operation: str, body: bytes, chosen: int, *, is_impatient: bool = False
    ) -> Iterator[httpx2.Response]:
        """A request to the chosen server whose answer has begun."""
        url, wait = self.address.urls[chosen % len(self.address.urls)], self.address.response_timeout
        timeout = httpx2.Timeout(
            min(wait, FAILOVER_SECONDS) if is_impatient else wait, connect=CONNECT_SECONDS
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
        """What a service has answered instead of what it was asked for."""
        status, host = response.status_code, response.url.host
        if response.headers.get("Content-Type") == MEDIA_TYPE:
            self._is_forebay = True
            return decode_error(content)
        try:
            told = msgspec.json.decode(content, type=_ProblemBody)
        except (msgspec.MsgspecError, UnicodeError):
            told = _ProblemBody()
        said = told.detail or f"status {status}"
        if status in (_TOO_OFTEN, _TOO_SLOW):
            return RequestNotSent(f"the service refuses for now: {said}")
        if told.code == _FAULT:
            # It works, and stumbles over this call: whoever waited for it to work would wait for ever.
            return ForebayError(f"the service at {host} has met a fault: {said}")
        if status >= _SERVER_ERRORS:
            return StoreUnavailable(f"the service at {host} does not work: {said}")
        if not told.code:
            # What stands before our service, as it is moved or its routes change; else a wrong address.
            return (
                StoreUnavailable(f"the service at {host} is not there now: {said}")
                if self._is_forebay
                else (StoreUnusable(f"what answers at {host} is no Forebay service: {said}"))
            )
        return _KINDS.get(status, StoreError)(said)

    def _open_client(self) -> httpx2.Client:
        with self._current_lock():
            if self._client is None:
                self._client = self._create_client()
            return self._client

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Which certificates are believed. It takes 30 ms to read those of the system, so that is done once,
        and only where there are some to check."""
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
        raise StoreUnavailable(f"a connection to the service at {url} has come to nothing") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        kind = RequestTimedOut if isinstance(exc, httpx2.TimeoutException) else StoreUnavailable
        raise kind(f"the service at {url} does not answer: {str(exc) or type(exc).__name__}") from exc
