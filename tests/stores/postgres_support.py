"""What tests of the PostgreSQL engine share: one server for all, schemas of their own, time at will."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any, Final
from unittest.mock import patch

import psycopg

from forebay.errors import StoreUnavailable
from forebay.stores.postgres import connection
from forebay.stores.postgres import engine as opening
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.reader import PostgresReader
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.clocks import FollowedClock
from tests.servers import Postgres
from tests.stores.pooler import Pooler
from tests.stores.postgres_sessions import KeepingEngine, end_kept
from tests.stores.sqlite_support import Program
from tests.stores.sqlite_support import program as any_program

_numbers: Final = count(1)

_free: Final[list[str]] = []
_taken: Final[list[str]] = []
_as_made: Final[dict[str, tuple[list[str], int]]] = {}
_KEPT: Final = ("schema", "test_clock", "finished_default")

# The store's clock as a test sets it, in the place of the server's own; as long as none does, the server's.
_FOR_TESTS: Final = """
create table {schema}.test_clock (now_ms bigint);
insert into {schema}.test_clock values (null);
create or replace function {schema}.now_ms() returns bigint language sql volatile as $$
  select coalesce(now_ms, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
  from {schema}.test_clock
$$;
-- No statement may update a row of `ready`: it would lie behind every cursor.
create function {schema}.forbid() returns trigger language plpgsql
  as $$ begin raise exception 'a row of ready was updated'; end $$;
create trigger forbid before update on {schema}.ready for each row execute function {schema}.forbid();
"""


@cache
def server() -> Postgres:
    """The server of this test process."""
    started = Postgres(max_prepared_transactions="5")
    atexit.register(started.close)
    atexit.register(end_kept)
    return started


@cache
def pooler() -> Pooler:
    """A pooler of transactions before that server."""
    started = Pooler(server().port)
    atexit.register(started.close)
    return started


@cache
def admin() -> psycopg.Connection[Any]:
    """A connection to prepare stores with, and to look behind them."""
    connection = psycopg.connect(server().url(), autocommit=True)
    atexit.register(connection.close)
    return connection


def new_schema() -> str:
    return f"forebay_{next(_numbers)}"


def new_url() -> str:
    """The address of a new store."""
    return f"{server().url()}?schema={new_schema()}"


def make_engine(clock: ManualClock, *, keeps_sessions: bool = False, **options: Any) -> PostgresEngine:
    """An engine with an empty schema of its own; `release` gives it back."""
    new_id = options.pop("new_id", None)
    engine = KeepingEngine if keeps_sessions else PostgresEngine
    schema = _take()
    if isinstance(clock, FollowedClock):
        clock.add_follower(
            lambda now_ms: admin().execute(f"update {schema}.test_clock set now_ms = {now_ms}")
        )
    dsn = pooler().url if options.get("pooled") else server().url()
    return engine(PostgresAddress(dsn=dsn, schema=schema, **options), new_id=new_id)


@contextmanager
def lent_url() -> Iterator[str]:
    """The address of an empty store for the time of a test, on the server's own clock."""
    schema = _take()
    admin().execute(f"update {schema}.test_clock set now_ms = null")
    try:
        with patch.object(opening, "PostgresEngine", KeepingEngine):
            yield f"{server().url()}?schema={schema}"
    finally:
        _give_back(schema)


def follow(clock: FollowedClock, url: str) -> None:
    """Give the store at an address that `lent_url` has made the time of a test."""
    schema = url.rpartition("schema=")[2]
    clock.add_follower(lambda now_ms: admin().execute(f"update {schema}.test_clock set now_ms = {now_ms}"))


def _take() -> str:
    schema = _free.pop() if _free else _made()
    _taken.append(schema)
    return schema


def _made() -> str:
    schema = new_schema()
    PostgresEngine(PostgresAddress(dsn=server().url(), schema=schema)).store().close()
    admin().execute(_FOR_TESTS.format(schema=schema))
    for day in {name for name in _state_of(schema)[0] if name.startswith("finished_")} - {*_KEPT}:
        admin().execute(f"drop table {schema}.{day}")  # by the server's clock, and not by the test's
    _as_made[schema] = _state_of(schema)
    return schema


def _state_of(schema: str) -> tuple[list[str], int]:
    """The tables of a store and how many steps made them."""
    tables = admin().execute("select tablename from pg_tables where schemaname = %s", [schema]).fetchall()
    [(steps,)] = admin().execute(f"select count(*) from {schema}.schema").fetchall()
    return sorted(name for (name,) in tables), steps


def release() -> None:
    """Empty the schemas of a test for the next one: to make one takes eighty times as long. One that is not
    as it was made, or that a test still holds, is left alone."""
    while _taken:
        _give_back(_taken[-1])


def _give_back(schema: str) -> None:
    _taken.remove(schema)
    tables, steps = _state_of(schema)
    as_made, steps_then = _as_made[schema]
    # A worker makes the days to come, by whatever clock it has.
    days = [name for name in tables if name not in as_made and name.startswith("finished_")]
    if ([name for name in tables if name not in days], steps) == (as_made, steps_then):
        with suppress(psycopg.Error):
            dropped = "".join(f"drop table {schema}.{name}; " for name in days)
            emptied = "; ".join(f"delete from {schema}.{name}" for name in as_made if name not in _KEPT)
            admin().execute(
                f"set lock_timeout = '5s'; {dropped}{emptied}; alter sequence {schema}.job_seq restart"
            )
            _free.append(schema)


# What every program beside a test begins with, after what all of them do; its arguments are URL and schema.
PRELUDE: Final = """
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.postgres.engine import PostgresEngine

engine = PostgresEngine(PostgresAddress(dsn=sys.argv[1], schema=sys.argv[2]))
"""


@contextmanager
def program(script: str, engine: PostgresEngine, *arguments: object) -> Iterator[Program]:
    """A program beside the test that has the same store as `engine`."""
    address = engine.address
    with any_program(PRELUDE + script, address.dsn, address.schema, *arguments) as started:
        yield started


@contextmanager
def raw(url: str | None = None) -> Iterator[psycopg.Connection[Any]]:
    """A plain connection, to look behind the store or to spoil it."""
    with psycopg.connect(url or server().url(), autocommit=True) as connection:
        yield connection


@contextmanager
def patient_locks() -> Iterator[None]:
    """Sessions that are made meanwhile wait a minute for a lock."""
    with patch.dict(connection._TIMEOUTS, {"lock_timeout": "60s"}):
        yield


@contextmanager
def hasty_locks(handle: PostgresStore) -> Iterator[None]:
    """A handle that waits only a moment for a lock. Its session stays for other tests."""
    session = handle._connection.open()
    session.execute("set lock_timeout = '200ms'", prepare=False)
    try:
        yield
    finally:
        session.execute("reset lock_timeout", prepare=False)


@contextmanager
def refused_at_commit(schema: str, table: str, code: str) -> Iterator[None]:
    """A transaction that inserts into a table, or deletes from it, fails with this code at its COMMIT."""
    with raw() as connection:
        connection.execute(
            f"create function {schema}.fault() returns trigger language plpgsql as"
            f" $$ begin raise exception 'no' using errcode = '{code}'; end $$;"
            f" create constraint trigger fault after insert or delete on {schema}.{table}"
            f" deferrable initially deferred for each row execute function {schema}.fault()"
        )
        try:
            yield
        finally:
            connection.execute(f"drop function {schema}.fault cascade")


def problems(engine: PostgresEngine) -> tuple[str, ...]:
    reader = engine.reader()
    try:
        return reader.health().problems
    finally:
        reader.close()


def problems_left(engine: PostgresEngine) -> tuple[str, ...]:
    """The same, by a reader that stays for the next test: a new one takes thirty milliseconds more."""
    reader = _reader(engine.address)
    try:
        return reader.health().problems
    except StoreUnavailable:  # the test has ended all connections
        return reader.health().problems


@cache
def _reader(address: PostgresAddress) -> PostgresReader:
    reader = PostgresEngine(address).reader()
    atexit.register(reader.close)
    return reader


def end_connections(url: str | None = None) -> int:
    """End all connections of stores, as an administrator or a failover would; how many there were."""
    with raw(url) as connection:
        rows = connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where application_name like 'forebay%' and pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


def wait_for_a_lock(schema: str, sessions: int = 1) -> None:
    """Until statements of so many sessions on this schema wait for a lock."""
    with raw() as connection:
        waiting = (
            "select 1 from pg_stat_activity"
            f" where wait_event_type = 'Lock' and query like '%{schema}%' having count(*) >= {sessions}"
        )
        while connection.execute(waiting).fetchone() is None:
            pass
