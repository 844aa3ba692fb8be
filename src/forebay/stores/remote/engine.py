"""Remote engine: opens handles of one service."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final, cast

from forebay.domain.job import NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.engine import Features
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups
from forebay.stores.remote.http_client import ServiceAddress, ServiceClient
from forebay.stores.remote.store import RemoteHandle, RemoteStore
from forebay.stores.remote.wakeups import RemoteWakeups

NO_TRANSACTIONS: Final = (
    "a store behind a service has no transactions to join; that takes a connection to its database"
)


class RemoteEngine:
    """Engine for one service, on one or several servers."""

    # The service's own store is unknown before the first call, so the features must not depend on it. The
    # service repeats a wake-up if its store delays them.
    features: Features = Features(
        name="remote", is_durable=True, is_shared=True, joins_transactions=False, runs_maintenance=True
    )

    def __init__(self, address: ServiceAddress) -> None:
        self._client = ServiceClient(address)

    def store(self) -> Store:
        return cast(Store, RemoteStore(self._client))

    def reader(self) -> Reader:
        return cast(Reader, RemoteHandle(self._client))

    @property
    def location(self) -> str:
        return ",".join(sorted(self._client.address.urls))

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        with closing(self.reader()) as reader:
            reader.now()

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

    def wakeups(self) -> Wakeups:
        return RemoteWakeups(self._client)
