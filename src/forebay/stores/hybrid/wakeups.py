"""Hints that work may have come, over both servers."""

from __future__ import annotations

from collections.abc import Callable

from forebay.stores.postgres.wakeups import PostgresWakeups
from forebay.stores.redis.wakeups import RedisWakeups


class HybridWakeups:
    """Listens to Redis for what our programs tell, and to PostgreSQL for what came in the transactions of
    callers, and for everything while Redis is away."""

    def __init__(self, postgres: PostgresWakeups, redis: RedisWakeups) -> None:
        self._parts = (postgres, redis)

    def start(self, poke: Callable[[], None]) -> None:
        for part in self._parts:
            part.start(poke)

    def close(self) -> None:
        for part in self._parts:
            part.close()
