"""Statements on the connection of a caller, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol, TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from forebay.errors import ConfigError, StoreBusy, StoreError
from forebay.stores.postgres.async_bridge import AsyncBridge
from forebay.stores.postgres.connection import (
    ID_TAKEN,
    PARTITION_CREATED,
    TRIES,
    RetryTransaction,
    Values,
    use_our_types,
)
from forebay.stores.postgres.errors import DRIVER_ERRORS, as_psycopg_error, translate_error
from forebay.stores.postgres.placeholders import number_placeholders
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.shared.caller_connections import (
    BEGIN_FIRST,
    driver_connection,
    driver_connection_async,
    is_from,
    qualified_name,
)
from forebay.stores.shared.rows import Row

T = TypeVar("T")


class ExecuteFn(Protocol):
    """Function that runs a statement."""

    def __call__(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]: ...


class StatementRunner(Protocol):
    """Blocking access to one kind of connection."""

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]: ...

    def undo(self, statement: bytes) -> None:
        """Run a clean-up statement, also after a cancel."""
        ...

    def pipeline(self) -> AbstractContextManager[object]:
        """Allow statements to be sent without waiting for their results while the block runs."""
        ...


class CallerConnection:
    """Connection of a caller; its settings and its transaction stay the caller's."""

    def __init__(self, runner: StatementRunner, address: PostgresAddress) -> None:
        self._runner = runner
        self._address = address
        self.execute: ExecuteFn = runner.execute

    def run_atomically(self, work: Callable[[], T], *, is_fenced: bool = False) -> T:
        """Run the work in a savepoint; the rest of the caller's transaction is untouched.

        It is run again if another transaction has taken a key or an id meanwhile. In a transaction with one
        snapshot for all statements that does not help and is an error; with `is_fenced` at once.
        """
        try:
            self._check(is_fenced=is_fenced)
            for _ in range(TRIES):
                try:
                    return self._run_in_savepoint(work)
                except (RetryTransaction, PARTITION_CREATED, ID_TAKEN):
                    continue
        except DRIVER_ERRORS as exc:
            raise self._translate_error(exc) from exc
        raise StoreBusy(
            f"{self._address.location} is too busy: other transactions took the same keys {TRIES} times; "
            "roll back and begin again"
        )

    def _check(self, *, is_fenced: bool) -> None:
        """Raise ConfigError for a connection to another database or a snapshot isolation level.

        It may be the first statement of the caller's transaction: then the driver begins it here, before our
        savepoint.
        """
        [(here, isolation)] = self.execute(
            b"select current_database()::text, current_setting('transaction_isolation')"
        ).fetchall()
        there = psycopg.conninfo.conninfo_to_dict(self._address.dsn).get("dbname")
        if there and here != there and not self._address.pooled:
            raise ConfigError(f"this connection is to database {here}, and the jobs are in {there}")
        if is_fenced and isolation in ("repeatable read", "serializable"):
            # A renewal after its snapshot would make it fail, though the lease is held.
            raise ConfigError(f"a job is completed in a READ COMMITTED transaction, not {isolation}")

    def _run_in_savepoint(self, work: Callable[[], T]) -> T:
        try:
            with self._runner.pipeline():
                self.execute(b"savepoint forebay")
                result = work()
                self.execute(b"release savepoint forebay")
        except BaseException:
            # The caller should see the first error, not that the connection is lost too.
            with suppress(*DRIVER_ERRORS):
                self._runner.undo(b"rollback to savepoint forebay")
                self._runner.undo(b"release savepoint forebay")
            raise
        return result

    def _translate_error(self, exc: Exception) -> StoreError:
        return translate_error(self._address.location, exc)


def wrap_connection(connection: object, address: PostgresAddress) -> CallerConnection:
    """Wrap a blocking connection of a caller; raise ConfigError for another kind."""
    raw = driver_connection(connection)
    if isinstance(raw, psycopg.Connection):
        _check_psycopg(raw)
        return CallerConnection(PsycopgRunner(raw), address)
    if isinstance(raw, psycopg.AsyncConnection) or is_from("asyncpg", raw):
        raise ConfigError(
            f"{qualified_name(connection)} lives on an event loop: await the method that ends in _async"
        )
    raise ConfigError(
        f"{address.location} joins the transactions of a psycopg.Connection, of SQLAlchemy's Session and "
        f"Connection on psycopg, and of Django's connection on psycopg 3, not of "
        f"{_describe_connection(connection, raw)}"
    )


async def run_with_connection_async(
    connection: object, address: PostgresAddress, work: Callable[[CallerConnection], T]
) -> T:
    """Run blocking work with a caller's connection that lives on this event loop."""
    raw = await driver_connection_async(connection)
    runner: StatementRunner
    bridge = AsyncBridge()
    if isinstance(raw, psycopg.AsyncConnection):
        _check_psycopg(raw)
        runner = AsyncPsycopgRunner(raw, bridge)
    elif is_from("asyncpg", raw):
        _check_asyncpg(raw)
        runner = AsyncpgRunner(raw, bridge)
    elif isinstance(raw, psycopg.Connection):
        raise ConfigError(f"{qualified_name(connection)} blocks: call the method without _async")
    else:
        raise ConfigError(
            f"{address.location} joins the transactions of a psycopg.AsyncConnection, of an "
            f"asyncpg.Connection, "
            f"and of SQLAlchemy's AsyncSession and AsyncConnection on these, not of "
            f"{_describe_connection(connection, raw)}"
        )
    return await bridge.run(lambda: work(CallerConnection(runner, address)))


def _describe_connection(connection: object, raw: object) -> str:
    return (
        qualified_name(connection)
        if raw is connection
        else f"{qualified_name(connection)} on {qualified_name(raw)}"
    )


def _check_psycopg(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if raw.closed:
        raise ConfigError("this connection cannot be used: it is closed")
    status = raw.info.transaction_status
    if status is TransactionStatus.IDLE and raw.autocommit:
        raise ConfigError(BEGIN_FIRST)
    if status is TransactionStatus.INERROR:
        raise ConfigError("this transaction has failed: roll it back first")


def _check_asyncpg(raw: Any) -> None:
    if not hasattr(raw, "is_in_transaction"):
        raise ConfigError(f"acquire a connection first: {qualified_name(raw)} is none")
    if raw.is_closed():
        raise ConfigError("this connection cannot be used: it is closed")
    if not raw.is_in_transaction():
        raise ConfigError(BEGIN_FIRST)


class PsycopgRunner:
    """Runner for a blocking psycopg connection."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        # Not the connection's own `execute`: the caller may have set another row factory.
        cursor = psycopg.Cursor(self._raw, row_factory=tuple_row)
        use_our_types(cursor.adapters)
        return cursor.execute(statement, values, binary=binary)

    def undo(self, statement: bytes) -> None:
        self.execute(statement)

    def pipeline(self) -> AbstractContextManager[object]:
        return self._raw.pipeline()


class BufferedRows:
    """Fetched rows with the interface of a psycopg cursor."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


class AsyncPsycopgRunner:
    """Runner for a psycopg connection on an event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], bridge: AsyncBridge) -> None:
        self._raw = raw
        self._bridge = bridge

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        rows = self._bridge.wait_for(lambda: self._run(statement, values, binary))
        return cast("psycopg.Cursor[Row]", BufferedRows(rows))  # only these methods are used

    def undo(self, statement: bytes) -> None:
        self._bridge.wait_for(lambda: self._run(statement, None, False), even_if_cancelled=True)

    def pipeline(self) -> AbstractContextManager[object]:
        return nullcontext()  # each statement is waited for on the loop

    async def _run(self, statement: bytes, values: Values | None, binary: bool) -> list[Row]:
        cursor = psycopg.AsyncCursor(self._raw, row_factory=tuple_row)
        use_our_types(cursor.adapters)
        await cursor.execute(statement, values, binary=binary)
        return await cursor.fetchall() if cursor.description else []


class AsyncpgRunner:
    """Runner for an asyncpg connection, which takes numbered placeholders."""

    def __init__(self, raw: Any, bridge: AsyncBridge) -> None:
        self._raw = raw
        self._bridge = bridge

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        rows = self._bridge.wait_for(lambda: self._run(statement, values or {}))
        return cast("psycopg.Cursor[Row]", BufferedRows(rows))  # as above

    def undo(self, statement: bytes) -> None:
        self._bridge.wait_for(lambda: self._run(statement, {}), even_if_cancelled=True)

    def pipeline(self) -> AbstractContextManager[object]:
        return nullcontext()  # as above

    async def _run(self, statement: bytes, values: Values) -> list[Row]:
        text, names = number_placeholders(statement)
        try:
            records = await self._raw.fetch(text, *(values[name] for name in names))
        except Exception as exc:
            raise as_psycopg_error(exc) from exc
        return [tuple(record) for record in records]
