"""Rates and quotas of each client, in the memory of this process: token buckets and counters.

Servers do not share them, so a client that reaches n servers may make n times as many requests. That is
preferred to a write in the store for each request. The limits keep one client from delaying the others of
this process, and a refusal that costs a write would not. Limits for all servers together are settings of a
queue (`client_rate`) and counted by the store.

Clients without a key are known by their address. Their buckets have a table of their own: an attacker has any
number of addresses, which must not evict the buckets of keys. An IPv6 /64 counts as one address, because it
belongs to one network.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from math import ceil
from typing import Final, Generic, NamedTuple, TypeVar

from forebay.clock import Clock
from forebay.domain.api_key import NO_QUOTA, Quota
from forebay.domain.concurrency_and_rate_limits import Bucket, Limit
from forebay.errors import TooManyRequests

# Beyond this number the least recently used bucket is evicted; a new one is full.
MAX_CLIENTS: Final = 10_000
# Per client: each group of waiting claims costs a settle_and_claim of its own once a second.
MAX_GROUPS: Final = 100
# Per client, in memory at a time: two of the largest requests. A body has 30 s to arrive, and one key must
# not fill the memory of a server with bodies that never end.
MOST_BODY_BYTES: Final = 32 * 1_048_576
NETWORK_BITS: Final = 64
# A slot gets free when another request of the client ends, at a time that is not known.
RETRY_SECONDS: Final = 1

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class RateAllowance(NamedTuple):
    """Requests that a client has left: `remaining` of `limit` now, and all of them after `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> dict[str, str]:
        """Return the headers of every answer."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(self.reset_seconds),
        }


class Buckets(Generic[T]):
    """One bucket for each client; keys and addresses have separate tables."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, T] = OrderedDict()
        self._addresses: OrderedDict[str, T] = OrderedDict()

    def get(self, client: str, full: T) -> T:
        return self._table(client).get(client, full)

    def save(self, client: str, bucket: T) -> None:
        table = self._table(client)
        table[client] = bucket
        table.move_to_end(client)
        if len(table) > MAX_CLIENTS:
            table.popitem(last=False)

    def _table(self, client: str) -> OrderedDict[str, T]:
        return self._addresses if "@" in client else self._keys  # no name of a key has an @


class ByteBucket(NamedTuple):
    """Bytes that a client may still transfer, and the time of the count. The size of an answer is known only
    when it is sent, so the bytes may fall below zero; then the client waits."""

    left: float
    at: float

    def refill(self, rate: int, now: float) -> ByteBucket:
        return ByteBucket(min(rate, self.left + (now - self.at) * rate), now)


class Connection:
    """Open connection, and the clients whose requests came on it."""

    def __init__(self) -> None:
        self._releases: dict[str, Callable[[], None]] = {}

    def count_for(self, name: str, release: Callable[[], None]) -> None:
        self._releases[name] = release

    def counts_for(self, name: str) -> bool:
        return name in self._releases

    def close(self) -> None:
        """Count it for no client any more."""
        while self._releases:
            _, release = self._releases.popitem()
            release()


class ClientRateLimiter:
    """Usage of all clients. `default` and `quota` apply to keys without their own; None in them is no
    limit."""

    def __init__(self, default: Limit | None, clock: Clock, quota: Quota = NO_QUOTA) -> None:
        self._default = default
        self._clock = clock
        self._quota = quota
        self._requests: Buckets[Bucket] = Buckets()
        self._bytes: Buckets[ByteBucket] = Buckets()
        self._waits: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._bodies: Counter[str] = Counter()
        self._connections: Counter[str] = Counter()
        self._groups: dict[str, Counter[Hashable]] = {}

    def take(self, client: str, own: Limit | None = None) -> RateAllowance | None:
        """Take a token for one request of this client; None if requests are not limited. Raises
        TooManyRequests, which takes no token."""
        limit = own or self._default
        if limit is None:
            return None
        name, now = bucket_name(client), round(self._clock.monotonic() * 1_000)
        bucket = limit.refill(self._requests.get(name, limit.full_bucket(now)), now)
        if limit.tokens(bucket, now) < 1:
            left = _allowance(limit, bucket, now)
            raise TooManyRequests(
                f"{client} asks too often: {limit.rate} requests a second are allowed",
                limit=left.limit,
                retry_after=limit.wait_ms(bucket, now) / 1_000,
                reset_seconds=left.reset_seconds,
            )
        bucket = limit.spend(bucket, 1, now)
        self._requests.save(name, bucket)
        return _allowance(limit, bucket, now)

    def usage(self, client: str, own: Quota = NO_QUOTA) -> ClientUsage:
        """Return the usage of this client; raises TooManyRequests while it has transferred too many bytes."""
        quota = self._quota if own == NO_QUOTA else own.with_defaults(self._quota)
        if quota.bytes_rate is not None:
            self._check_bytes(client, quota.bytes_rate)
        return ClientUsage(client, quota, self)

    def _check_bytes(self, client: str, rate: int) -> None:
        left = self._byte_bucket(bucket_name(client), rate).left
        if left <= 0:
            raise TooManyRequests(
                f"{client} moves too many bytes: requests and answers may have {rate:,} a second together",
                limit=rate,
                retry_after=-left / rate,
                reset_seconds=ceil((rate - left) / rate),
            )

    def spend_bytes(self, client: str, rate: int, size: int) -> None:
        """Count bytes that a client has received or sent."""
        name = bucket_name(client)
        bucket = self._byte_bucket(name, rate)
        self._bytes.save(name, bucket._replace(left=bucket.left - size))

    def _byte_bucket(self, name: str, rate: int) -> ByteBucket:
        now = self._clock.monotonic()
        return self._bytes.get(name, ByteBucket(rate, now)).refill(rate, now)

    def hold_bytes(self, client: str, size: int) -> None:
        """Count bytes of a large request in flight; raises TooManyRequests."""
        name = bucket_name(client)
        if self._bodies[name] + size > MOST_BODY_BYTES:
            raise _quota_error(client, MOST_BODY_BYTES, "bytes of requests under way")
        self._bodies[name] += size

    def release_bytes(self, client: str, size: int) -> None:
        """Release these bytes: the request was answered."""
        if size:
            _decrement(self._bodies, bucket_name(client), size)

    def hold_connection(self, client: str, limit: int | None, connection: Connection) -> None:
        """Count a connection for this client until it is closed; raises TooManyRequests."""
        name = bucket_name(client)
        if connection.counts_for(name):
            return
        if limit is not None and self._connections[name] >= limit:
            raise _quota_error(client, limit, "open connections")
        self._connections[name] += 1
        connection.count_for(name, partial(_decrement, self._connections, name))

    def reserve_wait(self, client: str, limit: int | None, group: Hashable) -> AbstractContextManager[None]:
        """Count a waiting request while the block lasts; raises TooManyRequests."""
        return self._reserve(self._waits, client, limit, "requests that wait", group)

    def reserve_stream(self, client: str, limit: int | None, group: Hashable) -> AbstractContextManager[None]:
        """Count a stream while the block lasts; raises TooManyRequests."""
        return self._reserve(self._streams, client, limit, "open streams", group)

    @contextmanager
    def _reserve(
        self, counts: Counter[str], client: str, limit: int | None, noun: str, group: Hashable
    ) -> Iterator[None]:
        name = bucket_name(client)
        groups = self._groups.get(name) or Counter[Hashable]()
        if limit is not None and counts[name] >= limit:
            raise _quota_error(client, limit, noun)
        if group not in groups and len(groups) >= MAX_GROUPS:
            raise _quota_error(client, MAX_GROUPS, "groups of waiting claims, by queues, tasks and lease")
        self._groups[name] = groups
        counts[name] += 1
        groups[group] += 1
        try:
            yield
        finally:
            _decrement(counts, name)
            _decrement(groups, group)
            if not groups:
                del self._groups[name]


class ClientUsage:
    """Usage of one client, against its quota."""

    __slots__ = ("_client", "_quota", "_rates")

    def __init__(self, client: str, quota: Quota, rates: ClientRateLimiter) -> None:
        self._client = client
        self._quota = quota
        self._rates = rates

    @property
    def counts_bytes(self) -> bool:
        """Whether the client has a byte rate."""
        return self._quota.bytes_rate is not None

    def spend(self, size: int) -> None:
        """Count bytes of a request or an answer."""
        if self._quota.bytes_rate is not None:
            self._rates.spend_bytes(self._client, self._quota.bytes_rate, size)

    def hold_bytes(self, size: int) -> None:
        """Count bytes of a large request in flight; raises TooManyRequests."""
        self._rates.hold_bytes(self._client, size)

    def release_bytes(self, size: int) -> None:
        """Release these bytes: the request was answered."""
        self._rates.release_bytes(self._client, size)

    def hold_connection(self, connection: Connection) -> None:
        """Count the connection of a request until it is closed; raises TooManyRequests."""
        self._rates.hold_connection(self._client, self._quota.max_connections, connection)

    def reserve_wait(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a waiting request while the block lasts; raises TooManyRequests. Claims of one group share
        their polls."""
        return self._rates.reserve_wait(self._client, self._quota.max_waits, group)

    def reserve_stream(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a stream while the block lasts; raises TooManyRequests."""
        return self._rates.reserve_stream(self._client, self._quota.max_streams, group)


@lru_cache(maxsize=MAX_CLIENTS)
def bucket_name(client: str) -> str:
    """Return the name under which a client is counted: its key, its IPv4 address or its IPv6 network."""
    kind, at, text = client.partition("@")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return client
    if address.ipv4_mapped is not None:
        return f"{kind}{at}{address.ipv4_mapped}"
    # Without the zone, which names an interface of this machine.
    network = ipaddress.IPv6Network((int(address), NETWORK_BITS), strict=False)
    return f"{kind}{at}{network}"


def _decrement(counts: Counter[H], key: H, count: int = 1) -> None:
    counts[key] -= count
    if not counts[key]:
        del counts[key]


def _quota_error(client: str, limit: int, noun: str) -> TooManyRequests:
    return TooManyRequests(
        f"{client} has {limit:,} {noun}, and no more are allowed: end some, or come again later",
        limit=limit,
        retry_after=RETRY_SECONDS,
        reset_seconds=RETRY_SECONDS,
    )


def _allowance(limit: Limit, bucket: Bucket, now: int) -> RateAllowance:
    missing = limit.full_bucket(now).token_parts - bucket.token_parts
    seconds = -(-missing // ((limit.rate or 1) * 1_000))
    return RateAllowance(limit.burst_size, limit.tokens(bucket, now), seconds)
