"""Mutants of PostgreSQL's statements are statements. One that is not would be caught by every test."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Final

import psycopg

from forebay.stores.postgres.connection import for_schema
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from tests.stores.postgres_support import new_schema, server
from tools.mutate import all_mutants
from tools.statements import read_source

UNKNOWN: Final = 0  # type oids of the server; the driver sends that of integers
BIGINT: Final = 20


def test_the_server_prepares_every_mutant() -> None:
    schema = new_schema()
    PostgresEngine(PostgresAddress(dsn=server().url(), schema=schema)).store().close()
    mutants = [each for each in all_mutants() if each.engine == "postgres" and each.path.suffix == ".sql"]

    with closing(psycopg.connect(server().url(), autocommit=True)) as connection:
        refused = {
            mutant.name: reason
            for mutant in mutants
            if (reason := prepare(connection, for_schema(mutant.apply(read_source(mutant.path)), schema)))
        }
        connection.execute(f"drop schema {schema} cascade".encode())

    assert len(mutants) > 500
    assert refused == {}


def prepare(connection: psycopg.Connection[tuple[object, ...]], text: str) -> str | None:
    """Return why the server refuses a statement, or None."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", text)))
    numbered = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", text).replace(
        "%%", "%"
    )
    types = [BIGINT if name in ("now", "lease_ms") else UNKNOWN for name in names]
    result = connection.pgconn.prepare(b"", numbered.encode(), types)
    return result.error_message.decode() if result.error_message else None
