"""The caller's own connection, for jobs that are enqueued in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from forebay.errors import ConfigError, StoreError, StoreUnavailable
from forebay.stores.postgres.connection import (
    DRIVER_ERRORS,
    TRIES,
    Address,
    TryAgain,
    Values,
    translated,
    use_one_type_of_number,
)
from forebay.stores.rows import Row

T = TypeVar("T")


class Borrowed:
    """Statements of ours on a connection that is not ours; its settings and its transaction stay its own."""

    def __init__(self, connection: object, address: Address) -> None:
        if not isinstance(connection, psycopg.Connection):
            kind = type(connection).__name__
            raise ConfigError(
                f"jobs of {address.place} are enqueued within a psycopg.Connection, not a {kind}"
            )
        self._raw = connection
        self._address = address
        self._check()

    def _check(self) -> None:
        if self._raw.closed:
            raise ConfigError("this connection cannot be used: it is closed")
        status = self._raw.info.transaction_status
        if status is TransactionStatus.IDLE and self._raw.autocommit:
            raise ConfigError(
                "begin a transaction first: jobs are enqueued within one, and come true with its commit"
            )
        if status is TransactionStatus.INERROR:
            raise ConfigError("this transaction has failed: roll it back first")
        here, there = (
            self._raw.info.dbname,
            psycopg.conninfo.conninfo_to_dict(self._address.dsn).get("dbname"),
        )
        if there and here != there and not self._address.pooled:
            raise ConfigError(f"this connection is to database {here}, and the jobs are in {there}")

    def execute(
        self, statement: bytes, values: Values | None = None, *, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        # Not the connection's own `execute`: the caller may have its rows as something else.
        cursor = psycopg.Cursor(self._raw, row_factory=tuple_row)
        use_one_type_of_number(cursor.adapters)
        return cursor.execute(statement, values, binary=binary)

    def whole(self, work: Callable[[], T]) -> T:
        """All of what is done, or nothing of it; the rest of the caller's transaction is untouched.

        Where somebody else has taken what we wanted meanwhile, it is done again. In a transaction that sees
        everything as of its start that cannot help, and it is an error.
        """
        try:
            # The driver begins the caller's transaction with its first statement, and this may be it. A block
            # outside of a transaction would be one of its own, with a commit of its own.
            self.execute(b"select 1")
            for _ in range(TRIES):
                try:
                    with self._raw.transaction():
                        return work()
                except TryAgain:
                    continue
        except DRIVER_ERRORS as exc:
            raise self._translated(exc) from exc
        raise StoreUnavailable(
            f"{self._address.place} is too busy: others took the same keys {TRIES} times; "
            "roll back and begin again"
        )

    def _translated(self, exc: Exception) -> StoreError:
        return translated(self._address.place, exc)
