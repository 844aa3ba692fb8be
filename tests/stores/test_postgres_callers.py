"""Jobs in the transactions of drivers and frameworks: psycopg, asyncpg, SQLAlchemy, Django."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import connections
from sqlalchemy.pool import NullPool

from forebay.domain.job import QueueName
from forebay.errors import ConfigError, DuplicateJob, StoreUnavailable
from forebay.stores.postgres.engine import PostgresEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.callers import AWAITED, BLOCKING, AsyncWay, Undo, Way, django_alias
from tests.stores.postgres_support import admin, make_engine, problems, server
from tests.stores.support import claim, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    admin().execute("create table if not exists orders (name text)")
    admin().execute("delete from orders")
    yield engine
    assert problems(engine) == ()


def orders() -> int:
    [(found,)] = admin().execute("select count(*) from orders").fetchall()
    return int(found)


@pytest.mark.parametrize("way", BLOCKING.values(), ids=BLOCKING)
def test_a_job_comes_true_with_the_commit_and_vanishes_with_the_rollback(
    engine: PostgresEngine, way: Way
) -> None:
    with way(server().url()) as caller:
        [first] = engine.insert_tx(caller.connection, [new_job(unique_key="k")])
        [taken] = engine.insert_tx(caller.connection, [new_job(unique_key="k")])
        caller.run("insert into orders values ('tea')")
    with suppress(Undo), way(server().url()) as caller:
        caller.run("insert into orders values ('milk')")
        engine.insert_tx(caller.connection, [new_job(), new_job()])
        raise Undo

    store = engine.store()
    assert (taken.id, taken.is_new) == (first.id, False)
    assert [job.id for job in claim(store, 10)] == [first.id]
    assert orders() == 1
    store.close()


@pytest.mark.parametrize("way", AWAITED.values(), ids=AWAITED)
def test_a_job_joins_a_transaction_on_an_event_loop(engine: PostgresEngine, way: AsyncWay) -> None:
    async def program() -> object:
        async with way(server().url()) as caller:
            [first] = await engine.insert_tx_async(caller.connection, [new_job(unique_key="k")])
            with pytest.raises(DuplicateJob):
                await engine.insert_tx_async(
                    caller.connection, [new_job(), new_job(unique_key="k")], on_conflict="raise"
                )
            await caller.run("insert into orders values ('tea')")
        with suppress(Undo):
            async with way(server().url()) as caller:
                await caller.run("insert into orders values ('milk')")
                await engine.insert_tx_async(caller.connection, [new_job(), new_job()])
                raise Undo
        return first.id

    first = asyncio.run(program())

    store = engine.store()
    assert [job.id for job in claim(store, 10)] == [first]
    assert orders() == 1
    store.close()


def test_all_that_an_insert_can_ask_for_works_with_values_by_number(engine: PostgresEngine) -> None:
    store = engine.store()
    store.save_queue(QueueName("short"), {"max_length": 1})
    store.close()

    async def program() -> None:
        connection = await asyncpg.connect(server().url())
        async with connection.transaction():
            receipts = await engine.insert_tx_async(
                connection,
                [
                    new_job(id="mine", delay_ms=5_000, deadline_at=1_900_000_000_000),
                    new_job(idempotency_key="o", tags=("a",)),
                    new_job(queue="short"),
                    new_job(queue="new"),
                ],
            )
            assert await engine.insert_tx_async(connection, []) == []
        assert [receipt.is_new for receipt in receipts] == [True] * 4
        await connection.close()

    asyncio.run(program())

    reader = engine.reader()
    assert {name: found.total for name, found in reader.counts().items()} == {
        "default": 2,
        "new": 1,
        "short": 1,
    }
    reader.close()


def test_a_coroutine_that_is_cancelled_leaves_nothing_half_done(engine: PostgresEngine) -> None:
    with psycopg.connect(server().url()) as first:
        engine.insert_tx(first, [new_job(unique_key="k")])

        async def program() -> None:
            second = await asyncpg.connect(server().url())
            async with second.transaction():
                await second.execute("insert into orders values ('tea')")
                waits = asyncio.create_task(
                    engine.insert_tx_async(second, [new_job(unique_key="j"), new_job(unique_key="k")])
                )
                while not _waits_for_a_lock():
                    await asyncio.sleep(0.01)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
                await second.execute("insert into orders values ('milk')")
            await second.close()

        asyncio.run(program())
        first.rollback()

    reader = engine.reader()
    assert (orders(), reader.counts()[QueueName("default")].total) == (2, 0)
    reader.close()


def _waits_for_a_lock() -> bool:
    [(waiting,)] = admin().execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
    return bool(waiting)


def test_what_cannot_be_joined_is_refused_with_a_word_about_what_can(engine: PostgresEngine) -> None:
    url = server().url()
    sqlalchemy_engine = sqlalchemy.create_engine(
        url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool
    )
    django = connections[django_alias(url)]

    with pytest.raises(ConfigError, match=r"psycopg.Connection.*SQLAlchemy.*Django.*not of object"):
        engine.insert_tx(object(), [new_job()])
    with pytest.raises(ConfigError, match=r"not a sqlalchemy\.engine\.base\.Engine"):
        engine.insert_tx(sqlalchemy_engine, [new_job()])
    with pytest.raises(ConfigError, match=r"begin a transaction first.*atomic"):
        engine.insert_tx(django, [new_job()])
    with (
        sqlalchemy_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(ConfigError, match="begin a transaction first"),
    ):
        engine.insert_tx(connection, [new_job()])
    with psycopg.connect(url) as blocking, pytest.raises(ConfigError, match="without _async"):
        asyncio.run(engine.insert_tx_async(blocking, [new_job()]))
    django.close()


def test_what_lives_on_an_event_loop_is_refused_with_a_word_about_how(engine: PostgresEngine) -> None:
    async def program() -> None:
        async with await psycopg.AsyncConnection.connect(server().url()) as connection:
            with pytest.raises(ConfigError, match="ends in _async"):
                engine.insert_tx(connection, [new_job()])
        connection = await asyncpg.connect(server().url())
        with pytest.raises(ConfigError, match="ends in _async"):
            engine.insert_tx(connection, [new_job()])
        with pytest.raises(ConfigError, match="begin a transaction first"):
            await engine.insert_tx_async(connection, [new_job()])
        with pytest.raises(ConfigError, match=r"asyncpg\.Connection.*not of object"):
            await engine.insert_tx_async(object(), [new_job()])
        await connection.close()
        with pytest.raises(ConfigError, match="closed"):
            await engine.insert_tx_async(connection, [new_job()])

    asyncio.run(program())


def test_an_error_of_asyncpg_means_what_it_means_elsewhere(engine: PostgresEngine) -> None:
    async def program() -> None:
        connection = await asyncpg.connect(server().url())
        async with connection.transaction(readonly=True):
            with pytest.raises(StoreUnavailable, match="read-only"):
                await engine.insert_tx_async(connection, [new_job()])
        await connection.close()

    asyncio.run(program())
