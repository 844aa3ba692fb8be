"""Schema of the store: create, migrate and check."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from psycopg import errors

from forebay.errors import ConfigError, SchemaOutdated, StoreUnusable
from forebay.stores.postgres.connection import (
    TRIES,
    Connection,
    Raw,
    Statements,
    for_schema,
    prepare_statements,
    quote_identifier,
)
from forebay.stores.postgres.errors import DRIVER_ERRORS, translate_error
from forebay.stores.postgres.partitions import first_days
from forebay.stores.postgres.transaction import StatementExecutor
from forebay.stores.shared.migration_loader import (
    NOTHING_APPLIED,
    AppliedSchema,
    Migration,
    load_migrations,
    pending_migrations,
)
from forebay.stores.shared.statement_loader import load_statements

PACKAGE: Final = "forebay.stores.postgres"
OLDEST_SERVER: Final = 150_000

logger: logging.Logger = logging.getLogger(__name__)


@cache
def statements_for(schema: str) -> Statements:
    """Return all statements of this engine, for one schema."""
    return prepare_statements(load_statements(PACKAGE, to_postgres), schema)


def to_postgres(text: str) -> str:
    """Rewrite the parameters of a shared statement from `:name` to the style of psycopg."""
    return re.sub(r"(?<![:\w]):([a-z]\w*)", r"%(\1)s", text.replace("%", "%%"))


def open_schema(connection: Connection, statements: Statements) -> None:
    """Create the tables in a new database; an older schema waits for `forebay migrate`."""
    number, steps = _read_schema(connection, statements)
    if number == 0:
        migrate(connection, statements)
    elif steps:
        raise _outdated_error(connection, number)


def check_schema(connection: Connection, statements: Statements) -> None:
    """Raise unless the database has the schema that this program needs; change nothing."""
    number, steps = _read_schema(connection, statements)
    if number == 0:
        raise StoreUnusable(f"{connection.location} has no Forebay tables; `forebay migrate` makes them")
    if steps:
        raise _outdated_error(connection, number)


def check_caller_schema(raw: StatementExecutor, location: str, statements: Statements) -> None:
    """Raise unless the database of a caller's connection has the schema that this program needs."""
    applied = _load_applied(raw, statements)
    if applied.number == 0:
        raise ConfigError(f"{location} has no tables for jobs yet: open its store once before")
    if pending_migrations(load_migrations(PACKAGE), applied, location):
        raise SchemaOutdated(
            f"{location} has schema {applied.number}, which is too old; run `forebay migrate`"
        )


def watch_schema(connection: Connection, statements: Statements) -> None:
    """Let a handle refuse statements once the schema is too new for this program."""
    known, location = load_migrations(PACKAGE), connection.location

    # Without the connection, which keeps the check: that would be a reference cycle.
    def check(raw: Raw) -> None:
        pending_migrations(known, _read_applied(raw, statements), location)

    connection.watch_schema(check)


def schema_number(raw: StatementExecutor, statements: Statements) -> int:
    """Return the number of the last applied migration."""
    return _load_applied(raw, statements).number


def migrate(connection: Connection, statements: Statements) -> int:
    """Apply missing migrations and return the number of the last one."""
    known = load_migrations(PACKAGE)
    number, steps = _read_schema(connection, statements)
    if steps:
        try:
            is_breaking = 0 < number < max(step.min_program for step in steps)
            number = _catch_up_with_retry(connection, statements, known)
            if is_breaking:
                # After the commit: an old program that connects again sees the migration, and is refused.
                connection.open().execute(
                    statements["sessions_end"], {"name": connection.address.application}
                )
        except DRIVER_ERRORS as exc:
            connection.drop()
            raise translate_error(connection.location, exc) from exc
    return max(number, len(known))


def _catch_up_with_retry(connection: Connection, statements: Statements, known: Sequence[Migration]) -> int:
    """Apply migrations, again after a deadlock: they lock whole tables in another order than programs do."""
    for _ in range(TRIES - 1):
        with suppress(errors.DeadlockDetected):
            return _catch_up(connection, statements, known)
    return _catch_up(connection, statements, known)


def _catch_up(connection: Connection, statements: Statements, known: Sequence[Migration]) -> int:
    """Apply missing migrations in one transaction.

    Programs that start at once take turns: the second one waits for the lock, reads the number again and
    finds nothing left to do.
    """
    raw = connection.open()
    with raw.long_timeout(None), raw.transaction():
        raw.execute(statements["schema_timeouts"])
        raw.execute(statements["schema_lock"])
        number, steps = _load_steps(connection, raw, statements, known)
        if number == 0:
            raw.execute(f"create schema if not exists {quote_identifier(connection.address.schema)}".encode())
            raw.execute(statements["schema_create"])
        for step in steps:
            raw.execute(for_schema(step.script, connection.address.schema).encode(), prepare=False)
            values = {"number": step.number, "name": step.name, "min_program": step.min_program}
            raw.execute(statements["schema_add"], values)
        if number == 0:
            # Before a job can end: one in the default partition prevents the partition of its day, and then
            # that day can only be pruned job by job.
            (now,) = raw.execute(statements["now"]).fetchone() or (0,)
            for statement in first_days(connection.address.schema, now):
                raw.execute(statement.encode())
    if number == 0:
        logger.info("created a new, empty store at %s", connection.location)
    return len(known)


def _read_schema(connection: Connection, statements: Statements) -> tuple[int, Sequence[Migration]]:
    try:
        raw = connection.open()
        check_version(raw.info.server_version, connection.location)
        return _load_steps(connection, raw, statements, load_migrations(PACKAGE))
    except DRIVER_ERRORS as exc:
        raise translate_error(connection.location, exc) from exc


def check_version(version: int, location: str) -> None:
    """Raise StoreUnusable for a server that is too old."""
    if version < OLDEST_SERVER:
        raise StoreUnusable(
            f"{location} is PostgreSQL {version // 10_000}; Forebay needs {OLDEST_SERVER // 10_000} or newer"
        )


def _load_steps(
    connection: Connection, raw: Raw, statements: Statements, known: Sequence[Migration]
) -> tuple[int, Sequence[Migration]]:
    """Return the number of the last applied migration, and the missing ones."""
    applied = _load_applied(raw, statements)
    return applied.number, pending_migrations(known, applied, connection.location)


def _load_applied(raw: StatementExecutor, statements: Statements) -> AppliedSchema:
    if raw.execute(statements["schema_exists"]).fetchone() != (True,):
        return NOTHING_APPLIED
    return _read_applied(raw, statements)


def _read_applied(raw: StatementExecutor, statements: Statements) -> AppliedSchema:
    return AppliedSchema(*(raw.execute(statements["schema_number"]).fetchone() or NOTHING_APPLIED))


def _outdated_error(connection: Connection, number: int) -> SchemaOutdated:
    return SchemaOutdated(
        f"{connection.location} has schema {number}, which is too old; `forebay migrate` brings it up to date"
    )
