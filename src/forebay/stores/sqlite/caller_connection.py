"""Connection of the caller, for work in the caller's transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.errors import ConfigError, StoreError
from forebay.stores.shared.caller_connections import BEGIN_FIRST, driver_connection, qualified_name
from forebay.stores.sqlite.errors import DRIVER_ERRORS, translate_error


class CallerConnection:
    """Caller's connection with our statements on it. Its settings and its transaction stay its own."""

    def __init__(self, connection: object, database: Path) -> None:
        raw = driver_connection(connection)
        if not isinstance(raw, sqlite3.Connection):
            given_type = (
                qualified_name(connection)
                if raw is connection
                else f"{qualified_name(connection)} on {qualified_name(raw)}"
            )
            raise ConfigError(
                f"the store in {database} joins the transactions of a sqlite3.Connection, of SQLAlchemy's "
                f"Session and Connection on it, and of Django's connection on it, not of {given_type}"
            )
        if not _in_transaction(raw):
            raise ConfigError(BEGIN_FIRST)
        self._raw = raw
        self._database = database

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object] = ()) -> sqlite3.Cursor:
        cursor = self._raw.cursor()
        cursor.row_factory = None  # the caller's connection may have a row factory
        return cursor.execute(statement, values)

    @contextmanager
    def run_atomically(self) -> Iterator[None]:
        """Run the block completely or not at all; the rest of the caller's transaction is untouched."""
        texts, self._raw.text_factory = self._raw.text_factory, str
        try:
            self._check_file()
            self.execute("savepoint forebay")
            try:
                yield
            except BaseException:
                # A full disk makes SQLite undo the caller's whole transaction; then no savepoint is left.
                if self._raw.in_transaction:
                    self.execute("rollback to forebay")
                    self.execute("release forebay")
                raise
            self.execute("release forebay")
        except DRIVER_ERRORS as exc:
            raise self._translate_error(exc) from exc
        finally:
            self._raw.text_factory = texts

    def _translate_error(self, exc: Exception) -> StoreError:
        error = translate_error(str(self._database), exc)
        if self._raw.in_transaction:
            return error
        return type(error)(f"{error}; your transaction was rolled back")

    def _check_file(self) -> None:
        rows = self.execute("pragma database_list").fetchall()
        file = next((file for _, name, file in rows if name == "main"), "")
        if not file or not os.path.exists(self._database) or not os.path.samefile(file, self._database):
            raise ConfigError(
                f"this connection is to {file or 'no file'}, and the jobs are in {self._database}"
            )


def _in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError as exc:
        raise ConfigError(f"this connection cannot be used: {exc}") from exc
