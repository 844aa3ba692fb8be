"""Redis engine: opens handles of one namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from forebay.domain.job import JobId, NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError
from forebay.stores import id_generator
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.engine import Features
from forebay.stores.redis.circuit_breaker import ConnectBreaker, ServerReachability
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.reader import RedisReader
from forebay.stores.redis.schema_setup_and_check import check_or_prepare, check_schema, prepare, refuse_newer
from forebay.stores.redis.server_address import RedisAddress
from forebay.stores.redis.server_check import check_server
from forebay.stores.redis.store import RedisStore
from forebay.stores.redis.wakeups import RedisWakeups

NO_TRANSACTIONS: Final = (
    "Redis cannot take part in a caller's transaction; use sqlite:/// or postgresql:// for that"
)


class RedisEngine:
    """Engine for one namespace on a Redis or Valkey server."""

    features: Features = Features(name="redis", is_durable=True, is_shared=True, joins_transactions=False)

    def __init__(self, address: RedisAddress, *, new_id: Callable[[], JobId] = id_generator.new_id) -> None:
        self.address = address
        self._new_id = new_id
        self._breaker = ConnectBreaker(ServerReachability())

    @property
    def location(self) -> str:
        return self.address.location

    def store(self) -> RedisStore:
        return RedisStore(self._connect(check_server, prepare), self._new_id)

    def reader(self) -> RedisReader:
        return RedisReader(self._connect(check_or_prepare))

    def wakeups(self) -> RedisWakeups:
        return RedisWakeups(self.address, self._breaker.reachability)

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        connection = Connection(self.address, self._breaker)
        try:
            check_schema(connection)
        finally:
            connection.close()

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        raise ConfigError(NO_TRANSACTIONS)

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        raise ConfigError(NO_TRANSACTIONS)

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NO_TRANSACTIONS)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NO_TRANSACTIONS)

    def _connect(self, *checks: Callable[[Connection], None]) -> Connection:
        connection = Connection(self.address, self._breaker)
        try:
            for check in checks:
                check(connection)
            connection.watch_schema(refuse_newer)
        except BaseException:
            connection.close()
            raise
        return connection
