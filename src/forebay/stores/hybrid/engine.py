"""PostgreSQL accelerated by Redis: what opens its handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from forebay.domain.job import JobId
from forebay.stores.hybrid.keys import channel, prefix
from forebay.stores.hybrid.link import ANSWER_SECONDS, Link
from forebay.stores.hybrid.order import HotOrder
from forebay.stores.hybrid.reader import HybridReader
from forebay.stores.hybrid.store import HybridStore
from forebay.stores.hybrid.wakeups import HybridWakeups
from forebay.stores.postgres.connection import Address as PostgresAddress
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.wakeups import PostgresWakeups
from forebay.stores.protocol import Features, Wakeups
from forebay.stores.redis.breaker import Sight
from forebay.stores.redis.connection import Address as RedisAddress
from forebay.stores.redis.wakeups import RedisWakeups

HOT: Final = 100_000


class HybridEngine(PostgresEngine):
    """A schema in a PostgreSQL database, with the hottest part of each queue's order and the hints in Redis.

    It is the same store with and without Redis: its place is PostgreSQL's. `hot` is how many places of a
    queue's order Redis holds; `is_eager` is for tests.
    """

    features: Features = Features(
        name="postgresql+redis",
        is_durable=True,
        is_shared=True,
        joins_transactions=True,
        holds_hints_back=True,
    )

    def __init__(
        self,
        address: PostgresAddress,
        redis: RedisAddress,
        *,
        hot: int = HOT,
        new_id: Callable[[], JobId] | None = None,
        is_eager: bool = False,
    ) -> None:
        super().__init__(address, new_id=new_id)
        self.redis: RedisAddress = replace(redis, answer_wait=ANSWER_SECONDS)
        self._hot = hot
        self._is_eager = is_eager
        self._prefix = prefix(address, redis)
        self._sight = Sight()

    def store(self) -> HybridStore:
        connection, link = self._opened(reads=False), self._linked()
        order = HotOrder(link, self._hot, is_eager=self._is_eager)
        return HybridStore(connection, self._new_id, link, order)

    def reader(self) -> HybridReader:
        return HybridReader(self._opened(reads=True), self._statements, self._linked())

    def wakeups(self) -> Wakeups:
        listener = RedisWakeups(self.redis, self._sight, channel(self._prefix))
        return HybridWakeups(PostgresWakeups(self.address), listener)

    def _linked(self) -> Link:
        link = Link(self.redis, self._prefix, self._sight)
        link.open()
        return link
