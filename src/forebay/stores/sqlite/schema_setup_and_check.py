"""Schema of a database file: apply migrations, and refuse files of another version."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from forebay.errors import ConfigError, SchemaOutdated, StoreUnusable
from forebay.stores.shared.migration_loader import (
    NOTHING_APPLIED,
    AppliedSchema,
    Migration,
    load_migrations,
    pending_migrations,
)
from forebay.stores.shared.statement_loader import load_statements
from forebay.stores.sqlite.connection import Connection, check_fork
from forebay.stores.sqlite.errors import DRIVER_ERRORS, translate_error
from forebay.stores.sqlite.transaction import StatementExecutor

PACKAGE: Final = "forebay.stores.sqlite"

logger: logging.Logger = logging.getLogger(__name__)


def load_sqlite_statements() -> Mapping[str, str]:
    """Return all statements of this engine by name."""
    return load_statements(PACKAGE, to_sqlite)


def to_sqlite(text: str) -> str:
    """Rewrite a shared statement: tables have a prefix in place of a schema, and parameters need no types."""
    return re.sub(r"::\w+(\[\])?", "", text.replace("forebay.", "forebay_"))


def migrate(connection: Connection, statements: Mapping[str, str], now: int) -> int:
    """Apply the migrations that the file lacks and return the schema's number."""
    known = load_migrations(PACKAGE)
    try:
        with connection.wait_for_locks():
            number, steps = _load_steps(connection, statements, known)
    except DRIVER_ERRORS as exc:
        raise translate_error(connection.path, exc) from exc
    if not steps:
        return max(number, len(known))

    def catch_up(raw: sqlite3.Connection) -> bool:
        # Queried again under the write lock: another program may have migrated meanwhile.
        number, steps = _load_steps(connection, statements, known)
        raw.execute(statements["schema_create"])
        for migration in steps:
            _apply(raw, statements, migration, now)
        return number == 0

    if connection.write(catch_up, durable=True):
        # A program in another folder, or with a mistyped name, has a store of its own: let its log say so.
        logger.info("created a new, empty store at %s", connection.path)
    return len(known)


def check_schema(connection: StatementExecutor, statements: Mapping[str, str], path: Path) -> None:
    """Raise unless the file has the tables that this program writes. Creates nothing."""
    applied = _load_applied(connection, statements)
    if applied.number == 0:
        raise ConfigError(f"{path} has no tables for jobs yet: open its store once before")
    if pending_migrations(load_migrations(PACKAGE), applied, str(path)):
        raise SchemaOutdated(
            f"{path} has schema {applied.number}, which is too old: open its store once before"
        )


def check_file_schema(path: Path, statements: Mapping[str, str]) -> None:
    """Raise unless this file exists and has the tables that this program needs. Changes nothing in it.

    The file is opened to write, because the last reader of a write-ahead log without write access leaves its
    files behind; `query_only` prevents all other writes.
    """
    check_fork(str(path))
    if not path.exists():
        raise StoreUnusable(f"there is no store at {path}; `forebay migrate` creates it")
    try:
        address = f"file:{quote(str(path))}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=5)) as raw:
            raw.execute("pragma query_only = on")
            applied = _load_applied(raw, statements)
    except DRIVER_ERRORS as exc:
        raise translate_error(str(path), exc) from exc
    if applied.number == 0:
        raise StoreUnusable(f"{path} has no Forebay tables; `forebay migrate` makes them")
    if pending_migrations(load_migrations(PACKAGE), applied, str(path)):
        raise SchemaOutdated(
            f"{path} has schema {applied.number}, which is too old; `forebay migrate` brings it up to date"
        )


class SchemaGuard:
    """Check that refuses a file which a newer program has migrated since it was opened."""

    def __init__(self, path: str, statements: Mapping[str, str]) -> None:
        self._path = path
        self._statements = statements
        self._known = load_migrations(PACKAGE)
        self._version: int | None = None

    def check(self, raw: StatementExecutor) -> None:
        """Raise SchemaNewer if a newer program has migrated the file. Runs under the write lock, and after
        each commit of another connection: so none of our transactions follows a migration that we do not
        know."""
        (number,) = raw.execute(self._statements["schema_newest"]).fetchone()
        if number > len(self._known):
            pending_migrations(self._known, _read_applied(raw, self._statements), self._path)

    def check_if_changed(self, raw: StatementExecutor) -> None:
        """Do the same for a handle that only reads, if another connection has committed since."""
        (version,) = raw.execute("pragma data_version").fetchone()
        if version != self._version:
            self.check(raw)
            self._version = version


def schema_number(connection: StatementExecutor, statements: Mapping[str, str]) -> int:
    """Return the number of the schema of a file."""
    return _load_applied(connection, statements).number


def _load_steps(
    connection: Connection, statements: Mapping[str, str], known: Sequence[Migration]
) -> tuple[int, Sequence[Migration]]:
    """Return the schema's number and the migrations that it still needs."""
    applied = _load_applied(connection, statements)
    return applied.number, pending_migrations(known, applied, connection.path)


def _load_applied(connection: StatementExecutor, statements: Mapping[str, str]) -> AppliedSchema:
    if connection.execute(statements["schema_exists"]).fetchone() is None:
        return NOTHING_APPLIED
    return _read_applied(connection, statements)


def _read_applied(connection: StatementExecutor, statements: Mapping[str, str]) -> AppliedSchema:
    return AppliedSchema(*connection.execute(statements["schema_number"]).fetchone())


def _apply(raw: sqlite3.Connection, statements: Mapping[str, str], migration: Migration, now: int) -> None:
    for statement in split_statements(migration.script):
        raw.execute(statement)
    values = {
        "number": migration.number,
        "name": migration.name,
        "min_program": migration.min_program,
        "now": now,
    }
    raw.execute(statements["schema_add"], values)


def split_statements(script: str) -> Iterator[str]:
    """Yield the single statements of a script: `executescript` would commit our transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line and not line.startswith("--") for line in map(str.strip, statement.splitlines())):
        raise ValueError(f"a migration ends in the middle of a statement: {statement.strip()!r}")
