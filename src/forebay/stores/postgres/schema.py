"""Bringing the schema of a database up to date."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from psycopg import errors

from forebay.errors import ConfigError, SchemaOutdated, StoreUnusable
from forebay.stores.migrations import NOTHING_APPLIED, Applied, Migration, load_migrations, missing
from forebay.stores.postgres.connection import (
    TRIES,
    Connection,
    Raw,
    Statements,
    for_schema,
    prepared,
    quoted,
)
from forebay.stores.postgres.meaning import DRIVER_ERRORS, translated
from forebay.stores.postgres.partitions import first_days
from forebay.stores.postgres.transaction import Runs
from forebay.stores.statements import load_statements

PACKAGE: Final = "forebay.stores.postgres"
OLDEST_SERVER: Final = 150_000

logger: logging.Logger = logging.getLogger(__name__)


@cache
def statements_for(schema: str) -> Statements:
    """All statements of this engine, for one schema."""
    return prepared(load_statements(PACKAGE), schema)


def open_schema(connection: Connection, statements: Statements) -> None:
    """Make the tables in a database that has none of ours; an older schema waits for `forebay migrate`."""
    number, steps = _look(connection, statements)
    if number == 0:
        migrate(connection, statements)
    elif steps:
        raise _outdated(connection, number)


def check_schema(connection: Connection, statements: Statements) -> None:
    """Raise unless the database has the tables that this program needs; nothing is changed in it."""
    number, steps = _look(connection, statements)
    if number == 0:
        raise StoreUnusable(f"{connection.place} has no Forebay tables; `forebay migrate` makes them")
    if steps:
        raise _outdated(connection, number)


def check_borrowed(raw: Runs, place: str, statements: Statements) -> None:
    """Raise unless the database of a caller's connection has the tables that this program writes."""
    applied = _applied(raw, statements)
    if applied.number == 0:
        raise ConfigError(f"{place} has no tables for jobs yet: open its store once before")
    if missing(load_migrations(PACKAGE), applied, place):
        raise SchemaOutdated(f"{place} has schema {applied.number}, which is too old; run `forebay migrate`")


def watch_schema(connection: Connection, statements: Statements) -> None:
    """Let a handle refuse to go on once the schema has outgrown this program."""
    known = load_migrations(PACKAGE)

    def check(raw: Raw) -> None:
        missing(known, _recorded(raw, statements), connection.place)

    connection.watch_schema(check)


def schema_number(raw: Runs, statements: Statements) -> int:
    """How far a schema is."""
    return _applied(raw, statements).number


def migrate(connection: Connection, statements: Statements) -> int:
    """Apply what is missing and answer the schema's number."""
    known = load_migrations(PACKAGE)
    number, steps = _look(connection, statements)
    if steps:
        try:
            is_breaking = 0 < number < max(step.oldest for step in steps)
            number = _caught_up(connection, statements, known)
            if is_breaking:
                # After the commit: an old program that connects again sees the step, and is refused.
                connection.opened().execute(
                    statements["sessions_end"], {"name": connection.address.application}
                )
        except DRIVER_ERRORS as exc:
            connection.drop()
            raise translated(connection.place, exc) from exc
    return max(number, len(known))


def _caught_up(connection: Connection, statements: Statements, known: Sequence[Migration]) -> int:
    """A step locks whole tables, in an order that is not that of programs at work: the server may end it to
    let them go on, and nothing of it has happened then."""
    for _ in range(TRIES - 1):
        with suppress(errors.DeadlockDetected):
            return _catch_up(connection, statements, known)
    return _catch_up(connection, statements, known)


def _catch_up(connection: Connection, statements: Statements, known: Sequence[Migration]) -> int:
    """Apply the steps in one transaction. Programs that start at once do so one after the other: who comes
    second has waited for the lock, looks again and finds nothing left to do."""
    raw = connection.opened()
    with raw.patient(None), raw.transaction():
        raw.execute(statements["schema_patience"])
        raw.execute(statements["schema_lock"])
        number, steps = _steps(connection, raw, statements, known)
        if number == 0:
            raw.execute(f"create schema if not exists {quoted(connection.address.schema)}".encode())
            raw.execute(statements["schema_create"])
        for step in steps:
            raw.execute(for_schema(step.script, connection.address.schema).encode(), prepare=False)
            values = {"number": step.number, "name": step.name, "oldest": step.oldest}
            raw.execute(statements["schema_add"], values)
        if number == 0:
            # Before anybody can end a job: one that has gone to the default partition keeps its day from
            # being made, and then that day can only be pruned job by job.
            (now,) = raw.execute(statements["now"]).fetchone() or (0,)
            for made in first_days(connection.address.schema, now):
                raw.execute(made.encode())
    if number == 0:
        logger.info("created a new, empty store at %s", connection.place)
    return len(known)


def _look(connection: Connection, statements: Statements) -> tuple[int, Sequence[Migration]]:
    try:
        raw = connection.opened()
        check_version(raw.info.server_version, connection.place)
        return _steps(connection, raw, statements, load_migrations(PACKAGE))
    except DRIVER_ERRORS as exc:
        raise translated(connection.place, exc) from exc


def check_version(version: int, place: str) -> None:
    """Raise StoreUnusable for a server that is older than those we test with."""
    if version < OLDEST_SERVER:
        raise StoreUnusable(
            f"{place} is PostgreSQL {version // 10_000}; Forebay needs {OLDEST_SERVER // 10_000} or newer"
        )


def _steps(
    connection: Connection, raw: Raw, statements: Statements, known: Sequence[Migration]
) -> tuple[int, Sequence[Migration]]:
    """The schema's number and the migrations it still needs."""
    applied = _applied(raw, statements)
    return applied.number, missing(known, applied, connection.place)


def _applied(raw: Runs, statements: Statements) -> Applied:
    if raw.execute(statements["schema_exists"]).fetchone() != (True,):
        return NOTHING_APPLIED
    return _recorded(raw, statements)


def _recorded(raw: Runs, statements: Statements) -> Applied:
    return Applied(*(raw.execute(statements["schema_number"]).fetchone() or NOTHING_APPLIED))


def _outdated(connection: Connection, number: int) -> SchemaOutdated:
    return SchemaOutdated(
        f"{connection.place} has schema {number}, which is too old; `forebay migrate` brings it up to date"
    )
