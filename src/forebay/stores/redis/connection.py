"""Connection to a Redis server: settings and script calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from forebay.errors import ConfigError, StoreError
from forebay.stores.redis.circuit_breaker import ConnectBreaker
from forebay.stores.redis.errors import translate_error, unwritable_error
from forebay.stores.redis.lua_scripts import Script, load_scripts
from forebay.stores.redis.server_address import RedisAddress

CONNECT_SECONDS: Final = 5.0
# Time-out of renewals and heartbeats: leases run out while a call waits for an answer that never comes.
RENEWAL_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 1.0
# Interval of the check whether a newer program has changed the layout.
SCHEMA_SECONDS: Final = 5.0
REDIRECTIONS: Final = 5
LOADS: Final = 10  # attempts to load a script that the server drops again and again


def open_connection(
    address: RedisAddress, last: str | None = None, answer_seconds: float | None = None
) -> Any:
    """Open a connection of the driver: to the last host, or the first reachable one, or Sentinel's master.

    The driver's own retries are off: a command without a response may have been executed."""
    answer_seconds = answer_seconds or address.response_timeout
    if address.master is not None:
        return _connect_first(address, [_find_master(address, address.master)], answer_seconds)
    return _connect_first(address, [*([] if last is None else [last]), *address.urls], answer_seconds)


def _find_master(address: RedisAddress, name: str) -> str:
    """Return the URL of the master that the first knowing Sentinel names."""
    for url in address.sentinels:
        with suppress(redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            raw = _connect_first(address, [url], CONNECT_SECONDS)
            try:
                raw.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
                reply = raw.read_response()
            finally:
                raw.disconnect()
            if reply is not None:
                return address.url_of(f"{reply[0].decode()}:{reply[1].decode()}")
    raise redis.exceptions.ConnectionError(f"no Sentinel names a master {name}")


def _connect_first(address: RedisAddress, urls: Iterable[str], answer_seconds: float) -> Any:
    last_error: redis.RedisError | None = None
    for url in dict.fromkeys(urls):
        raw = _build_connection(address, url)
        try:
            raw.connect()
            # Only now: a hanging server accepts connections, and does not answer the first command.
            raw.update_current_socket_timeout(answer_seconds)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as exc:
            if isinstance(exc, redis.exceptions.AuthenticationError):
                raise
            last_error = exc
        else:
            return raw
    raise last_error or redis.exceptions.ConnectionError("there is no host")


def _build_connection(address: RedisAddress, url: str) -> Any:
    # A Unix socket needs no keep-alive, and its connection class takes no such setting.
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    timeout = min(CONNECT_SECONDS, address.response_timeout)
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_connect_timeout=timeout,
            socket_timeout=timeout,
            **keepalive,
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            protocol=2,
            client_name="forebay",
        )
        return pool.make_connection()
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"{address.location}: {exc}") from exc


def _is_connected(raw: Any) -> bool:
    """Return whether a connection of the driver is open. redis-py 7 has no `is_connected`; the attribute
    behind it is the same in 7 and 8."""
    return raw is not None and raw._sock is not None


class Connection:
    """Connection that opens with its first call, and again after it was lost."""

    def __init__(self, address: RedisAddress, breaker: ConnectBreaker) -> None:
        self.address = address
        self._breaker = breaker
        self._raw: Any = None
        self._url: str | None = None
        self._response_timeout = address.response_timeout
        self._key = address.tag.encode()
        self._scripts = load_scripts(address.clock)
        self._is_closed = False
        # A job with dependants has ended, and `propagate` was not called since.
        self.has_outbox_entries: bool = False
        self._used_at = monotonic()
        self._schema_check: Callable[[Connection], None] | None = None
        self._checked_at = self._used_at

    def run(self, name: str, params: dict[str, Any], *arguments: bytes | str) -> Any:
        """Call a script with a request, packed as MessagePack."""
        try:
            request = msgspec.msgpack.encode(params)
        except UnicodeEncodeError as exc:
            raise unwritable_error(exc) from exc
        reply = self.call(name, request, *arguments)
        if type(reply) is list and reply and reply[0] == b"has_outbox_entries":
            self.has_outbox_entries = True
            return reply[1]
        return reply

    def call(self, name: str, *arguments: bytes | str) -> Any:
        """Call a script with these arguments.

        A script that the server does not know, after a restart or a flush, has not run. So it is loaded and
        called again."""
        if self._raw is None or monotonic() - self._checked_at >= SCHEMA_SECONDS:
            self._check_schema()
        try:
            return self._eval_script(self._scripts[name], (b"1", self._key, *arguments))
        except UnicodeEncodeError as exc:  # before anything was sent
            raise unwritable_error(exc) from exc
        except redis.RedisError as exc:
            raise translate_error(self.address.location, exc) from exc

    def execute(self, *parts: bytes | str | int) -> Any:
        """Send one command and return its reply, with translated errors."""
        try:
            return self._command(*parts)
        except UnicodeEncodeError as exc:  # as above
            raise unwritable_error(exc) from exc
        except redis.RedisError as exc:
            raise translate_error(self.address.location, exc) from exc

    def watch_schema(self, check: Callable[[Connection], None]) -> None:
        """Check the layout with each new connection and every few seconds.

        `check` raises if the layout is too new for this program."""
        self._schema_check = check
        self._checked_at = monotonic()

    def _check_schema(self) -> None:
        # A refusal is repeated, since it does not update the time of the last check.
        if self._schema_check is not None:
            self._schema_check(self)
        self._checked_at = monotonic()

    @contextmanager
    def short_timeouts(self) -> Iterator[None]:
        """Use shorter time-outs for calls that renew leases.

        A NAT or proxy may have dropped the connection, and leases run out meanwhile. Given up early, they are
        renewed over a new connection."""
        timeout = self._response_timeout
        self._set_timeout(min(RENEWAL_SECONDS, timeout))
        try:
            yield
        finally:
            self._set_timeout(timeout)

    def _set_timeout(self, seconds: float) -> None:
        self._response_timeout = seconds
        if _is_connected(self._raw):
            self._raw.update_current_socket_timeout(seconds)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._disconnect()

    def _eval_script(self, script: Script, request: tuple[bytes | str, ...]) -> Any:
        for _ in range(LOADS):
            try:
                return self._command(b"EVALSHA", script.digest, *request)
            except redis.exceptions.NoScriptError:
                # Not EVAL: a server may evict scripts that came that way. Even this one may be flushed before
                # the next call.
                self._command("SCRIPT", "LOAD", script.text)
        return self._command(b"EVALSHA", script.digest, *request)

    def _command(self, *parts: bytes | str | int) -> Any:
        """Send one command to the node that has the keys, and return its reply; raise the driver's errors."""
        for _ in range(REDIRECTIONS):
            try:
                return self._roundtrip(*parts)
            except redis.exceptions.AskError as redirect:
                # MOVED is a subclass; the node has executed nothing. ASK comes while the slot is being moved:
                # the nodes redirect to and fro, and finally refuse the call for now.
                self._disconnect()
                self._url = self.address.url_of(f"{redirect.host}:{redirect.port}")
            except redis.exceptions.ReadOnlyError:
                self._disconnect()  # a replica by now; the next call searches for its master
                raise
        raise redis.exceptions.ConnectionError("the nodes of the cluster redirect in a circle")

    def _roundtrip(self, *parts: bytes | str | int) -> Any:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")
        if self._raw is not None and monotonic() - self._used_at > IDLE_SECONDS:
            self._drop_if_closed()
        if not _is_connected(self._raw):
            self._raw = self._connect()
        self._raw.send_command(*parts)
        reply = self._raw.read_response()
        self._used_at = monotonic()
        return reply

    def _connect(self) -> Any:
        with self._breaker.attempt():
            raw = open_connection(self.address, self._url, self._response_timeout)
        self._checked_at = -inf  # this may be another server
        # Handles share a breaker until they connect; from now on this handle counts its own attempts.
        self._breaker = ConnectBreaker(self._breaker.reachability)
        return raw

    def _drop_if_closed(self) -> None:
        """Drop a connection that the server closed while it was idle.

        A call over it would be lost, and its caller could not know whether it was executed."""
        try:
            is_closed = _is_connected(self._raw) and self._raw.can_read(0)
        except redis.RedisError:
            is_closed = True
        if is_closed:
            self._disconnect()

    def _disconnect(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.disconnect()
