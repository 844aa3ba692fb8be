"""SQLite engine: opens handles to one database file, and works in callers' transactions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from forebay.clock import Clock, SystemClock
from forebay.domain.job import JobId, NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.engine import Features
from forebay.stores.shared.caller_connections import check_completed
from forebay.stores.sqlite.caller_connection import CallerConnection
from forebay.stores.sqlite.connection import Connection, Durability
from forebay.stores.sqlite.database_paths import DatabasePaths
from forebay.stores.sqlite.dependency_propagation import propagate
from forebay.stores.sqlite.file_system_check import check_file_system
from forebay.stores.sqlite.insert import InsertRules, insert_all
from forebay.stores.sqlite.reader import SqliteReader
from forebay.stores.sqlite.schema_setup_and_check import (
    check_file_schema,
    check_schema,
    load_sqlite_statements,
    migrate,
)
from forebay.stores.sqlite.settle import settle_all
from forebay.stores.sqlite.store import SqliteStore
from forebay.stores.sqlite.transaction import HandleCache, Transaction
from forebay.stores.sqlite.wakeups import SqliteWakeups

BLOCKING_CONNECTION: Final = (
    "a connection to a SQLite file blocks: use a sqlite3 connection and the method without _async"
)


class SqliteEngine:
    """Engine for a database file, embedded in the program or shared by several programs of one machine.

    `durability` decides which writes a power cut may lose. "default": no accepted job, but the last claims
    and settlements, so that a job may run again. "relaxed": also the last accepted jobs. "full": none. New
    files are readable by their user alone; with `is_for_group` by their group too.
    """

    features: Features = Features(
        name="sqlite",
        is_durable=True,
        is_shared=True,
        joins_transactions=True,
        notices_death=True,
        has_one_writer=True,
    )

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        new_id: Callable[[], JobId] | None = None,
        durability: Durability = "default",
        lock_timeout_ms: int = 30_000,
        is_for_group: bool = False,
    ) -> None:
        self._paths = DatabasePaths(path, is_for_group=is_for_group)
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._durability: Durability = durability
        self._lock_timeout_ms = lock_timeout_ms

    @property
    def location(self) -> str:
        return os.path.realpath(self._paths.database)

    def store(self) -> SqliteStore:
        return SqliteStore(self._connect(), self._paths, self._clock, self._new_id)

    def reader(self) -> SqliteReader:
        return SqliteReader(self._connect(), self._clock)

    def wakeups(self) -> SqliteWakeups:
        return SqliteWakeups(self._paths)

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        check_file_system(self._paths.database)
        check_file_schema(self._paths.database, load_sqlite_statements())

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        with self._open_in_caller(connection) as tx:
            return insert_all(tx, self._new_id, jobs, InsertRules(on_conflict=on_conflict), atomic=True)

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        raise ConfigError(BLOCKING_CONNECTION)

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        with self._open_in_caller(connection) as tx:
            tx.count_new()
            ended = settle_all(tx, self._new_id, worker, [settlement])
            check_completed(settlement, ended.settled, ended.refused)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(BLOCKING_CONNECTION)

    @contextmanager
    def _open_in_caller(self, connection: object) -> Iterator[Transaction]:
        """Open a transaction of ours inside the caller's."""
        caller = CallerConnection(connection, self._paths.database)
        statements = load_sqlite_statements()
        with caller.run_atomically():
            check_schema(caller, statements, self._paths.database)
            tx = Transaction(caller, statements, HandleCache(), self._clock.now_ms())
            yield tx
            if tx.has_outbox_entries:
                propagate(tx)
            tx.flush_counts()

    def _connect(self) -> Connection:
        check_file_system(self._paths.database)
        connection = Connection(
            self._paths, durability=self._durability, lock_timeout_ms=self._lock_timeout_ms
        )
        try:
            migrate(connection, load_sqlite_statements(), self._clock.now_ms())
        except BaseException:
            connection.close()
            raise
        return connection
