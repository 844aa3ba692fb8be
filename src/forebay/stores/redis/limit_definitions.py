"""Definitions of limits in Redis, and their usage. The scripts count slots and tokens."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, LimitUsage, usage_of
from forebay.stores.redis.connection import Connection

_PARTS: Final = 5  # L_PARTS of the scripts, counted from 0
_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisLimitStore:
    """Write side of limits."""

    _connection: Connection

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        rate = (limit.rate or False, limit.per_ms, limit.burst or False, limit.burst_size)
        params = {"scope": limit.scope, "limit": [limit.concurrency or False, *rate], "actor": actor}
        self._connection.run("save_limit", params)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return bool(self._connection.run("drop_limit", {"scope": scope, "actor": actor}))


class RedisLimitReader:
    """Read side of limits."""

    _connection: Connection

    def limits(self) -> list[Limit]:
        fields = self._connection.execute("HGETALL", f"{self._connection.address.tag}:limits")
        stored = dict(zip(fields[::2], map(_decode, fields[1::2]), strict=True))
        return [_limit(scope.decode(), stored[scope]) for scope in sorted(stored)]

    def limit_usages(self) -> list[LimitUsage]:
        now, rows = self._connection.run("limit_usages", {})
        return [
            _usage(scope.decode(), _decode(stored), running, now) for scope, stored, running in sorted(rows)
        ]


def _limit(scope: str, stored: list[Any]) -> Limit:
    concurrency, rate, per_ms, burst, *_ = (value or None for value in stored)
    return Limit(scope=scope, concurrency=concurrency, rate=rate, per_ms=per_ms or 1, burst=burst)


def _usage(scope: str, stored: list[Any], running: int, now: int) -> LimitUsage:
    parts, at = stored[_PARTS : _PARTS + 2]
    return usage_of(_limit(scope, stored), Bucket(int(parts or 0), int(at or 0)), running, now)
