"""Limits: saved, removed and shown."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from forebay.domain.limits import Limit
from forebay.stores.redis.connection import Connection

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisLimits:
    """The part of a handle to write that keeps limits."""

    _connection: Connection

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        numbers = (limit.concurrency, limit.rate, limit.per_ms, limit.burst, limit.most_at_once)
        ask = {"scope": limit.scope, "limit": [one or False for one in numbers], "actor": actor}
        # A limit without a rate has no burst, and 0 is a number that scripts can count with.
        ask["limit"][-1] = limit.most_at_once
        self._connection.run("save_limit", ask)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return bool(self._connection.run("drop_limit", {"scope": scope, "actor": actor}))


class LooksAtRedisLimits:
    """The part of a handle to look that shows limits."""

    _connection: Connection

    def limits(self) -> list[Limit]:
        found = self._connection.ask("HGETALL", f"{self._connection.address.tag}:limits")
        kept = dict(zip(found[::2], map(_decode, found[1::2]), strict=True))
        return [_limit(scope.decode(), kept[scope]) for scope in sorted(kept)]


def _limit(scope: str, stored: list[Any]) -> Limit:
    concurrency, rate, per_ms, burst, *_ = (one or None for one in stored)
    return Limit(scope=scope, concurrency=concurrency, rate=rate, per_ms=per_ms or 1, burst=burst)
