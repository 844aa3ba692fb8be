"""Cheap statements, each a transaction by itself: those of idle workers, and one after each propagation."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.stores.postgres.binary_parameters import Packed
from forebay.stores.postgres.connection import Connection, RetryTransaction, Statements
from forebay.stores.postgres.prepared_statement import PreparedStatement
from forebay.stores.shared.rows import Row


class AutocommitStatements:
    """Statements by name, each a transaction by itself: 28 us of the caller's time instead of 285."""

    def __init__(self, connection: Connection, statements: Statements, *names: str) -> None:
        self._connection = connection
        self._statements = {name: PreparedStatement(name, statements[name]) for name in names}

    def all(self, name: str, values: Mapping[str, Packed]) -> list[Row] | None:
        """Return the rows of a statement; None if it has to run in an explicit transaction."""
        # A pooler may send the next statement to a session in which it is not prepared.
        if self._connection.address.pooled:
            return None
        try:
            return self._connection.call(lambda raw: self._statements[name].rows(raw, values))
        except RetryTransaction:
            return None
