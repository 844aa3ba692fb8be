"""One connection to a Redis server: its settings, errors in our words, and calls of scripts."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from forebay.errors import ConfigError, StoreError, StoreRefused, StoreUnavailable, StoreUnusable
from forebay.stores.redis.circuit_breaker import ConnectBreaker
from forebay.stores.redis.keys import DEFAULT_NAMESPACE, tag
from forebay.stores.redis.scripts import Script, load_scripts

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
# The same for what keeps leases: a third of the usual one, after which they are renewed.
RENEWAL_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 1.0
# How often a handle looks whether a newer program has changed the layout under it.
SCHEMA_SECONDS: Final = 5.0
# History lies in memory here, so besides its time it has a number.
MAX_KEPT: Final = 10_000
REDIRECTIONS: Final = 5
LOADS: Final = 10  # of a script that the server forgets again and again
_PORT: Final = re.compile(r":[0-9]+\Z")

# What an error means to the caller; the first that fits.
_MEANING: Final[tuple[tuple[type[redis.RedisError], type[StoreError], str], ...]] = (
    (redis.exceptions.AuthenticationError, StoreUnusable, "does not accept this user"),
    (redis.exceptions.NoPermissionError, StoreUnusable, "does not let this user do that: grant it our keys"),
    (redis.exceptions.OutOfMemoryError, StoreUnavailable, "has no memory left: raise maxmemory or prune"),
    (
        redis.exceptions.ReadOnlyError,
        StoreUnavailable,
        "is read-only now: a replica, or a failover is under way",
    ),
    (redis.exceptions.BusyLoadingError, StoreUnavailable, "is loading its data"),
    (redis.exceptions.MasterDownError, StoreUnavailable, "is a replica that has lost its master"),
    (redis.exceptions.ClusterDownError, StoreUnavailable, "is a cluster that is down"),
    (redis.exceptions.TryAgainError, StoreUnavailable, "is moving our keys to another server"),
    (redis.exceptions.TimeoutError, StoreUnavailable, "did not answer in time"),
    (redis.exceptions.ConnectionError, StoreUnavailable, "cannot be reached"),
)
# Errors that have no class of their own, by the word that they begin with.
_ERROR_PREFIXES: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("MISCONF", StoreUnavailable, "cannot write its own files and refuses to change anything"),
    ("BUSY", StoreUnavailable, "is busy with another script"),
    ("NOREPLICAS", StoreUnavailable, "has too few replicas to accept anything"),
    ("WRONGTYPE", StoreUnusable, "has keys of another program in our namespace: choose another one"),
)


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is: a server as redis-py writes it, and a namespace there. Several hosts, with commas
    between them, are nodes of one cluster, or servers of which one is there.

    With `master` the hosts are Sentinels, which are asked who is the master of this name.

    `accepts_loss` says that its owner knows that the server forgets everything when it ends; `max_kept` is
    how many jobs of each queue and final state stay and `max_bytes_kept` how much memory they may take, 0 for
    any
    number; after `response_timeout` seconds without a word a server is given up; `clock` is for tests."""

    url: str
    master: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    accepts_loss: bool = False
    max_kept: int = MAX_KEPT
    max_bytes_kept: int = 0
    response_timeout: float = ANSWER_SECONDS
    clock: str | None = None

    @property
    def location(self) -> str:
        """The same text for all addresses of one store; without user and password."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}?namespace={self.namespace}"
        hosts = [host if _PORT.search(host) else f"{host or 'localhost'}:6379" for host in self._hosts]
        name = "" if self.master is None else f"{self.master}/"
        return f"redis://{','.join(hosts)}/{name}{parts.path.strip('/') or 0}?namespace={self.namespace}"

    @property
    def tag(self) -> str:
        return tag(self.namespace)

    @property
    def urls(self) -> list[str]:
        """The address of each host by itself."""
        if self.url.startswith("unix:"):
            return [self.url]
        return [self.url_of(host) for host in self._hosts]

    @property
    def sentinels(self) -> list[str]:
        """The address of each Sentinel: they have neither our user nor databases."""
        scheme = urlsplit(self.url).scheme
        return [f"{scheme}://{host if _PORT.search(host) else f'{host}:26379'}" for host in self._hosts]

    def url_of(self, host: str) -> str:
        """The address of a host that the server has named, with the same user and settings."""
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{host}"))

    @property
    def _hosts(self) -> list[str]:
        return urlsplit(self.url).netloc.rpartition("@")[2].split(",")


def open_connection(
    address: RedisAddress, last: str | None = None, answer_seconds: float | None = None
) -> Any:
    """A connection of the driver's to the store's server: the one that was used last, or the first of the
    address that can be reached, or the one that a Sentinel names. It never sends anything twice by itself:
    what was not answered may have happened."""
    answer_seconds = answer_seconds or address.response_timeout
    if address.master is not None:
        return _connect_first(address, [_find_master(address, address.master)], answer_seconds)
    return _connect_first(address, [*([] if last is None else [last]), *address.urls], answer_seconds)


def _find_master(address: RedisAddress, name: str) -> str:
    """The address of the master, by the first Sentinel that knows one."""
    for url in address.sentinels:
        with suppress(redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            raw = _connect_first(address, [url], CONNECT_SECONDS)
            try:
                raw.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
                found = raw.read_response()
            finally:
                raw.disconnect()
            if found is not None:
                return address.url_of(f"{found[0].decode()}:{found[1].decode()}")
    raise redis.exceptions.ConnectionError(f"no Sentinel names a master {name}")


def _connect_first(address: RedisAddress, urls: Iterable[str], answer_seconds: float) -> Any:
    problem: redis.RedisError | None = None
    for url in dict.fromkeys(urls):
        raw = _build_connection(address, url)
        try:
            raw.connect()
            # Not before: a server that hangs lets in, and answers to the first words no more.
            raw.update_current_socket_timeout(answer_seconds)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as exc:
            if isinstance(exc, redis.exceptions.AuthenticationError):
                raise
            problem = exc
        else:
            return raw
    raise problem or redis.exceptions.ConnectionError("there is no host")


def _build_connection(address: RedisAddress, url: str) -> Any:
    # A socket of the same machine needs no probes, and its connection takes no such setting.
    probes = {} if url.startswith("unix:") else {"socket_keepalive": True}
    wait = min(CONNECT_SECONDS, address.response_timeout)
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_connect_timeout=wait,
            socket_timeout=wait,
            **probes,
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


def translate_error(location: str, exc: Exception) -> StoreError:
    """An error of the driver in our words."""
    if isinstance(exc.__context__, ssl.SSLCertVerificationError):
        return StoreUnusable(
            f"{location} has a certificate that is not trusted: name the one that has signed it in "
            f"ssl_ca_certs "
            f"({exc})"
        )
    for kind, error, text in _MEANING:
        if isinstance(exc, kind):
            return error(f"{location} {text} ({exc})")
    word = str(exc).partition(" ")[0]
    for start, error, text in _ERROR_PREFIXES:
        if word == start:
            return error(f"{location} {text} ({exc})")
    return StoreError(f"{location}: {exc}")


def _unwritable_error(exc: UnicodeEncodeError) -> StoreRefused:
    return StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}")


def is_full(error: StoreError) -> bool:
    """Whether the server has refused a call because it has no memory left."""
    return isinstance(error.__cause__, redis.exceptions.OutOfMemoryError)


class Connection:
    """A connection that is opened with its first call, and again after it was lost."""

    def __init__(self, address: RedisAddress, breaker: ConnectBreaker) -> None:
        self.address = address
        self._breaker = breaker
        self._raw: Any = None
        self._url: str | None = None
        self._response_timeout = address.response_timeout
        self._key = address.tag.encode()
        self._scripts = load_scripts(address.clock)
        self._is_closed = False
        # A job has ended that others depend on, and `propagate` was not called since.
        self.has_outbox_entries: bool = False
        self._used_at = monotonic()
        self._schema_check: Callable[[Connection], None] | None = None
        self._checked_at = self._used_at

    def run(self, name: str, params: dict[str, Any], *arguments: bytes | str) -> Any:
        """Call a script with a request."""
        try:
            request = msgspec.msgpack.encode(params)
        except UnicodeEncodeError as exc:
            raise _unwritable_error(exc) from exc
        answer = self.call(name, request, *arguments)
        if type(answer) is list and answer and answer[0] == b"has_outbox_entries":
            self.has_outbox_entries = True
            return answer[1]
        return answer

    def call(self, name: str, *arguments: bytes | str) -> Any:
        """Call a script with these arguments. One that the server does not know, because it was restarted or
        its scripts were flushed, has not run; so it is loaded and called again."""
        if self._raw is None or monotonic() - self._checked_at >= SCHEMA_SECONDS:
            self._check_schema()
        try:
            return self._eval_script(self._scripts[name], (b"1", self._key, *arguments))
        except UnicodeEncodeError as exc:  # before anything was sent
            raise _unwritable_error(exc) from exc
        except redis.RedisError as exc:
            raise translate_error(self.address.location, exc) from exc

    def execute(self, *parts: bytes | str | int) -> Any:
        """One command and its answer, errors in our words."""
        try:
            return self._command(*parts)
        except UnicodeEncodeError as exc:  # as above
            raise _unwritable_error(exc) from exc
        except redis.RedisError as exc:
            raise translate_error(self.address.location, exc) from exc

    def watch_schema(self, check: Callable[[Connection], None]) -> None:
        """Look at the layout with each new connection and every few seconds. `check` raises if it has
        outgrown this program."""
        self._schema_check = check
        self._checked_at = monotonic()

    def _check_schema(self) -> None:
        # A refusal is repeated, since it leaves the time of the last look alone.
        if self._schema_check is not None:
            self._schema_check(self)
        self._checked_at = monotonic()

    @contextmanager
    def short_timeouts(self) -> Iterator[None]:
        """Leases run out while we wait. Where no answer comes, it may be that somebody on its way
        has forgotten the connection: given up in time, the leases are kept over another one."""
        usual = self._response_timeout
        self._wait_for(min(RENEWAL_SECONDS, usual))
        try:
            yield
        finally:
            self._wait_for(usual)

    def _wait_for(self, seconds: float) -> None:
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
                # Not EVAL: a server may forget scripts that came that way as it likes. It may be told to
                # forget this one too before we come back.
                self._command("SCRIPT", "LOAD", script.text)
        return self._command(b"EVALSHA", script.digest, *request)

    def _command(self, *parts: bytes | str | int) -> Any:
        """One command and its answer, from whichever node of a cluster has our keys; raises the driver's
        errors."""
        for _ in range(REDIRECTIONS):
            try:
                return self._roundtrip(*parts)
            except redis.exceptions.AskError as moved:
                # MOVED is one of these, and the node that was asked has done nothing. ASK comes while our
                # slot is being moved: then nodes send us to and fro, and we are told to come later.
                self._disconnect()
                self._url = self.address.url_of(f"{moved.host}:{moved.port}")
            except redis.exceptions.ReadOnlyError:
                self._disconnect()  # a replica by now; the next call looks for its master again
                raise
        raise redis.exceptions.ConnectionError("the nodes of the cluster send us round in a circle")

    def _roundtrip(self, *parts: bytes | str | int) -> Any:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")
        if self._raw is not None and monotonic() - self._used_at > IDLE_SECONDS:
            self._drop_if_closed()
        if not _is_connected(self._raw):
            self._raw = self._connect()
        self._raw.send_command(*parts)
        answer = self._raw.read_response()
        self._used_at = monotonic()
        return answer

    def _connect(self) -> Any:
        with self._breaker.attempt():
            raw = open_connection(self.address, self._url, self._response_timeout)
        self._checked_at = -inf  # this may be another server; where the call knew before, it has looked
        # What was shared with all that had not got through; from now on this handle's attempts are its own.
        self._breaker = ConnectBreaker(self._breaker.reachability)
        return raw

    def _drop_if_closed(self) -> None:
        """Let go of a connection that was closed while nobody used it: a call that is sent there is lost, and
        its caller could not know whether it has happened."""
        try:
            is_over = _is_connected(self._raw) and self._raw.can_read(0)
        except redis.RedisError:
            is_over = True
        if is_over:
            self._disconnect()

    def _disconnect(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.disconnect()
