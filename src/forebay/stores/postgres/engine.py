"""PostgreSQL engine: opens handles and joins caller transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from math import inf
from time import monotonic

from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.contract.claims_and_results import InsertResult, OnConflict
from forebay.stores.contract.engine import Features
from forebay.stores.id_generator import new_id as next_id
from forebay.stores.postgres.caller_connection import (
    CallerConnection,
    run_with_connection_async,
    wrap_connection,
)
from forebay.stores.postgres.connection import SCHEMA_SECONDS, Connection
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.reader import PostgresReader
from forebay.stores.postgres.schema_setup_and_check import (
    check_caller_schema,
    check_schema,
    migrate,
    open_schema,
    statements_for,
    watch_schema,
)
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.postgres.settle import settle_all
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import HandleCache, Transaction
from forebay.stores.postgres.wakeups import PostgresNotifier, PostgresWakeups
from forebay.stores.shared.caller_connections import check_completed


class PostgresEngine:
    """Engine for one schema of a PostgreSQL database, shared by programs on any number of machines."""

    features: Features = Features(
        name="postgresql",
        is_durable=True,
        is_shared=True,
        joins_transactions=True,
        coalesces_wakeups=True,
    )

    def __init__(self, address: PostgresAddress, *, new_id: Callable[[], JobId] | None = None) -> None:
        self.address = address
        self._new_id = new_id or next_id
        self._statements = statements_for(address.schema)
        self._checked_at = -inf  # when a caller transaction last checked the schema
        self._queues: set[QueueName] = set()  # queues that caller transactions need not create

    @property
    def location(self) -> str:
        return self.address.location

    def store(self) -> PostgresStore:
        return PostgresStore(self._connect(reads=False), self._new_id)

    def reader(self) -> PostgresReader:
        return PostgresReader(self._connect(reads=True), self._statements)

    def wakeups(self) -> PostgresWakeups:
        return PostgresWakeups(self.address)

    def migrate(self) -> int:
        connection = Connection(self.address)
        try:
            migrate(connection, self._statements)
        finally:
            connection.close()
        with closing(self.store()) as store:
            return store.migrate()  # also creates the partitions of the next days

    def check_schema(self) -> None:
        connection = Connection(self.address)
        try:
            check_schema(connection, self._statements)
        finally:
            connection.close()

    def insert_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        caller = wrap_connection(connection, self.address)
        return self._insert_tx(caller, jobs, on_conflict) if jobs else []

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[InsertResult]:
        def insert(caller: CallerConnection) -> list[InsertResult]:
            return self._insert_tx(caller, jobs, on_conflict) if jobs else []

        return await run_with_connection_async(connection, self.address, insert)

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        self._complete_tx(wrap_connection(connection, self.address), worker, settlement)

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        def complete(caller: CallerConnection) -> None:
            self._complete_tx(caller, worker, settlement)

        await run_with_connection_async(connection, self.address, complete)

    def _insert_tx(
        self, caller: CallerConnection, jobs: Sequence[NewJob], on_conflict: OnConflict
    ) -> list[InsertResult]:
        def insert() -> list[InsertResult]:
            tx = self._open_in_caller(caller, {job.queue for job in jobs})
            rules = InsertRules(on_conflict=on_conflict, is_caller_tx=True)
            results = insert_all(tx, jobs, rules, atomic=True)
            finish(tx, self.address)
            return results

        return caller.run_atomically(insert)

    def _complete_tx(self, caller: CallerConnection, worker: WorkerId, settlement: Settlement) -> None:
        def complete() -> None:
            tx = self._open_in_caller(caller, {job.queue for job in settlement.follow_ups}, settlement.job_id)
            ended = settle_all(tx, worker, [settlement])
            ended.collect()
            check_completed(settlement, ended.settled, ended.refused)
            finish(tx, self.address)

        caller.run_atomically(complete, is_fenced=True)

    def _open_in_caller(
        self, caller: CallerConnection, queues: Collection[QueueName], completes: JobId | None = None
    ) -> Transaction:
        """Open a transaction inside the caller's for jobs of these queues, or to complete a job."""
        now = monotonic()
        if now - self._checked_at >= SCHEMA_SECONDS:
            check_caller_schema(caller, self.location, self._statements)
            self._checked_at = now
        tx = Transaction(
            caller, self._statements, self._new_id, HandleCache(), is_caller_tx=True, completes=completes
        )
        if queues:
            self._make_queues(tx, queues)
        return tx

    def _make_queues(self, tx: Transaction, names: Collection[QueueName]) -> None:
        """Create missing queues on a connection of our own; they stay if the caller rolls back.

        In the caller's transaction the new row would block every other insert into that queue.
        """
        unseen = [name for name in sorted(names) if name not in self._queues]
        if not unseen:
            return  # no queue disappears: a dropped one leaves its row
        tx.load_queues(unseen)
        new = [name for name in unseen if tx.queue(name) is None]
        if new:
            store = self.store()
            try:
                store.make_queues(new)
            finally:
                store.close()
        self._queues.update(unseen)
        # The insert loads them again, when `next_seqs` has made it visible to a change of scoring.
        tx.forget_queues(unseen)

    def _connect(self, *, reads: bool) -> Connection:
        connection = Connection(self.address, reads=reads)
        try:
            open_schema(connection, self._statements)
            watch_schema(connection, self._statements)
        except BaseException:
            connection.close()
            raise
        return connection


def finish(tx: Transaction, address: PostgresAddress) -> None:
    """Finish the part of Forebay in a caller's transaction: write counts and notify.

    It always notifies, since this handle does not learn when the caller commits.
    """
    tx.flush_counts()
    PostgresNotifier(address).send(tx)
