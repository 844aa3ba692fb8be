"""The caller's own connection, for jobs that are enqueued in the caller's transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.errors import ConfigError
from forebay.stores.sqlite.connection import DRIVER_ERRORS, translated


class Borrowed:
    """Statements of ours on a connection that is not ours; its settings and its transaction stay its own."""

    def __init__(self, connection: object, database: Path) -> None:
        if not isinstance(connection, sqlite3.Connection):
            kind = type(connection).__name__
            raise ConfigError(f"jobs of {database} are enqueued within a sqlite3.Connection, not a {kind}")
        if not connection.in_transaction:
            raise ConfigError(
                "begin a transaction first: jobs are enqueued within one, and come true with its commit"
            )
        _check_file(connection, database)
        self._raw = connection
        self._path = str(database)

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object] = ()) -> sqlite3.Cursor:
        cursor = self._raw.cursor()
        cursor.row_factory = None  # the caller may have its rows as something else
        return cursor.execute(statement, values)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All of what is done inside, or nothing of it; the rest of the caller's transaction is untouched."""
        try:
            self.execute("savepoint forebay")
            try:
                yield
            except BaseException:
                self.execute("rollback to forebay")
                raise
            finally:
                self.execute("release forebay")
        except DRIVER_ERRORS as exc:
            raise translated(self._path, exc) from exc


def _check_file(connection: sqlite3.Connection, database: Path) -> None:
    cursor = connection.cursor()
    cursor.row_factory = None
    file = next((file for _, name, file in cursor.execute("pragma database_list") if name == "main"), "")
    if not file or not os.path.exists(database) or not os.path.samefile(file, database):
        raise ConfigError(f"this connection is to {file or 'no file'}, and the jobs are in {database}")
