"""The caller's own connection, for what is done in the caller's transaction."""

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
    PostgresAddress,
    RetryTransaction,
    Values,
    use_our_types,
)
from forebay.stores.postgres.errors import DRIVER_ERRORS, translate_error
from forebay.stores.postgres.placeholders import as_psycopg_error, number_placeholders
from forebay.stores.shared.caller_transactions import (
    BEGIN_FIRST,
    driver_connection,
    driver_connection_async,
    is_from,
    qualified_name,
)
from forebay.stores.shared.rows import Row

T = TypeVar("T")


class ExecuteFn(Protocol):
    """Runs a statement."""

    def __call__(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]: ...


class StatementRunner(Protocol):
    """How statements get to one kind of connection, and their answers back; it blocks."""

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]: ...

    def undo(self, statement: bytes) -> None:
        """Run a statement that cleans up, whatever has happened."""
        ...

    def pipeline(self) -> AbstractContextManager[object]:
        """Inside, a statement may be waited for only where somebody looks at its answer."""
        ...


class CallerConnection:
    """Statements of ours on a connection that is not ours; its settings and its transaction stay its own."""

    def __init__(self, runner: StatementRunner, address: PostgresAddress) -> None:
        self._runner = runner
        self._address = address
        self.execute: ExecuteFn = runner.execute

    def run_atomically(self, work: Callable[[], T], *, is_fenced: bool = False) -> T:
        """All of what is done, or nothing of it; the rest of the caller's transaction is untouched.

        Where somebody else has taken what we wanted meanwhile, it is done again. In a transaction that sees
        everything as of its start that cannot help, and it is an error; where it `is_fenced`, at once.
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
            f"{self._address.location} is too busy: others took the same keys {TRIES} times; "
            "roll back and begin again"
        )

    def _check(self, *, is_fenced: bool) -> None:
        """Also the first statement of the caller's transaction, if there was none: then the driver begins it
        here, before our savepoint."""
        [(here, isolation)] = self.execute(
            b"select current_database()::text, current_setting('transaction_isolation')"
        ).fetchall()
        there = psycopg.conninfo.conninfo_to_dict(self._address.dsn).get("dbname")
        if there and here != there and not self._address.pooled:
            raise ConfigError(f"this connection is to database {here}, and the jobs are in {there}")
        if is_fenced and isolation in ("repeatable read", "serializable"):
            # A renewal after its snapshot would make it fail, however well the lease is held.
            raise ConfigError(f"a job is completed within a READ COMMITTED transaction, not {isolation}")

    def _run_in_savepoint(self, work: Callable[[], T]) -> T:
        try:
            with self._runner.pipeline():
                self.execute(b"savepoint forebay")
                answer = work()
                self.execute(b"release savepoint forebay")
        except BaseException:
            # What went wrong is what the caller should hear of, not that the connection is gone too.
            with suppress(*DRIVER_ERRORS):
                self._runner.undo(b"rollback to savepoint forebay")
                self._runner.undo(b"release savepoint forebay")
            raise
        return answer

    def _translate_error(self, exc: Exception) -> StoreError:
        return translate_error(self._address.location, exc)


def wrap_connection(connection: object, address: PostgresAddress) -> CallerConnection:
    """The caller's connection, if it is of a kind that we know and blocks."""
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
    """Do blocking work with a caller's connection that lives on this event loop."""
    raw = await driver_connection_async(connection)
    line: StatementRunner
    on_loop = AsyncBridge()
    if isinstance(raw, psycopg.AsyncConnection):
        _check_psycopg(raw)
        line = AsyncPsycopgRunner(raw, on_loop)
    elif is_from("asyncpg", raw):
        _check_asyncpg(raw)
        line = AsyncpgRunner(raw, on_loop)
    elif isinstance(raw, psycopg.Connection):
        raise ConfigError(f"{qualified_name(connection)} blocks: call the method without _async")
    else:
        raise ConfigError(
            f"{address.location} joins the transactions of a psycopg.AsyncConnection, of an "
            f"asyncpg.Connection, "
            f"and of SQLAlchemy's AsyncSession and AsyncConnection on these, not of "
            f"{_describe_connection(connection, raw)}"
        )
    return await on_loop.run(lambda: work(CallerConnection(line, address)))


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
    """A psycopg connection that blocks."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        # Not the connection's own `execute`: the caller may have its rows as something else.
        cursor = psycopg.Cursor(self._raw, row_factory=tuple_row)
        use_our_types(cursor.adapters)
        return cursor.execute(statement, values, binary=binary)

    def undo(self, statement: bytes) -> None:
        self.execute(statement)

    def pipeline(self) -> AbstractContextManager[object]:
        return self._raw.pipeline()


class BufferedRows:
    """Rows that have come, to be looked at as those of a psycopg cursor are."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


class AsyncPsycopgRunner:
    """A psycopg connection on an event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], bridge: AsyncBridge) -> None:
        self._raw = raw
        self._bridge = bridge

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        rows = self._bridge.wait_for(lambda: self._run(statement, values, binary))
        return cast("psycopg.Cursor[Row]", BufferedRows(rows))  # all that statements of ours are asked for

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
    """An asyncpg connection. The text of a statement is the same, with its values by number."""

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
