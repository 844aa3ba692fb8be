"""How fast each client may ask: a token bucket for each, in the memory of this process.

Servers know nothing of each other, so behind n of them a client may ask n times as fast, if it reaches all of
them. We prefer that to a write in the store for each request: the bucket is there to keep one client from
holding up the others of this process, and a refusal that costs a write would not. What must hold for all
servers together, how many jobs a client may enqueue, is a setting of the queue (`client_rate`) and is counted
by the store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from forebay.clock import Clock
from forebay.domain.limits import Bucket, Limit
from forebay.errors import TooManyRequests

# Beyond that the bucket that was not used for the longest time is forgotten; it will be full when made anew.
MOST_CLIENTS: Final = 10_000


class Allowance(NamedTuple):
    """What a client has left: of `limit` requests at once so many, and after how many seconds all of them."""

    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> dict[str, str]:
        """As it is told with every answer."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(self.reset_seconds),
        }


class Rates:
    """The buckets of all clients. `usual` is for those whose key says nothing; None lets them ask freely."""

    def __init__(self, usual: Limit | None, clock: Clock) -> None:
        self._usual = usual
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str, own: Limit | None = None) -> Allowance | None:
        """One request of this client; None where nobody counts. Raises TooManyRequests, which costs the
        client nothing."""
        limit = own or self._usual
        if limit is None:
            return None
        now = round(self._clock.monotonic() * 1_000)
        bucket = limit.filled(self._buckets.get(client, limit.full(now)), now)
        if limit.tokens(bucket, now) < 1:
            left = _allowance(limit, bucket, now)
            raise TooManyRequests(
                f"{client} asks too often: {limit.rate} requests a second are allowed",
                limit=left.limit,
                retry_after=limit.wait_ms(bucket, now) / 1_000,
                reset_seconds=left.reset_seconds,
            )
        bucket = limit.spent(bucket, 1, now)
        self._buckets[client] = bucket
        self._buckets.move_to_end(client)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return _allowance(limit, bucket, now)


def _allowance(limit: Limit, bucket: Bucket, now: int) -> Allowance:
    missing = limit.full(now).parts - bucket.parts
    seconds = -(-missing // ((limit.rate or 1) * 1_000))
    return Allowance(limit.most_at_once, limit.tokens(bucket, now), seconds)
