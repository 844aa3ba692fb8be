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
from forebay.stores.postgres.connection import Connection
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
        self._prefix = ""  # until a connection has told it
        self._sight = Sight()

    def store(self) -> HybridStore:
        connection = self._opened(reads=False)
        link = self._linked(connection)
        order = HotOrder(link, self._hot, is_eager=self._is_eager)
        return HybridStore(connection, self._new_id, link, order)

    def reader(self) -> HybridReader:
        connection = self._opened(reads=True)
        return HybridReader(connection, self._statements, self._linked(connection))

    def wakeups(self) -> Wakeups:
        listener = RedisWakeups(self.redis, self._sight, self._channel)
        return HybridWakeups(PostgresWakeups(self.address), listener)

    def _linked(self, connection: Connection) -> Link:
        try:
            link = Link(self.redis, self._prefix_by(connection), self._sight)
            link.open()
        except BaseException:
            connection.close()
            raise
        return link

    def _prefix_by(self, connection: Connection) -> str:
        if not self._prefix:
            self._prefix = prefix(self.redis.tag, connection)
        return self._prefix

    def _channel(self) -> str:
        """What to listen on; by a connection of its own where no handle was opened before."""
        connection = Connection(self.address, reads=True)
        try:
            return channel(self._prefix_by(connection))
        finally:
            connection.close()
