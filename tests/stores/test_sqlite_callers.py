"""Jobs in the transactions of frameworks that have the SQLite file open: SQLAlchemy, Django."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from forebay.errors import ConfigError, LeaseLost
from forebay.stores.sqlite.engine import SqliteEngine
from tests.stores.callers import ON_SQLITE, Undo, Way
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "app.db")
    SqliteEngine(path).store().close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (name text)")
    return path


def orders(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        [(found,)] = connection.execute("select count(*) from orders").fetchall()
    return int(found)


@pytest.mark.parametrize("way", ON_SQLITE.values(), ids=ON_SQLITE)
def test_a_job_comes_true_with_the_commit_and_vanishes_with_the_rollback(path: str, way: Way) -> None:
    engine = SqliteEngine(path)
    with way(path) as caller:
        [first] = engine.insert_tx(caller.connection, [new_job()])
        caller.run("insert into orders values ('tea')")
    with suppress(Undo), way(path) as caller:
        caller.run("insert into orders values ('milk')")
        engine.insert_tx(caller.connection, [new_job(), new_job()])
        raise Undo

    store, reader = engine.store(), engine.reader()
    assert [job.id for job in claim(store, 10)] == [first.id]
    assert orders(path) == 1
    assert reader.health().problems == ()
    store.close()
    reader.close()


@pytest.mark.parametrize("way", ON_SQLITE.values(), ids=ON_SQLITE)
def test_a_job_is_completed_with_the_commit_and_not_with_the_rollback(path: str, way: Way) -> None:
    engine = SqliteEngine(path)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job(unique_key="k")])
    [job] = claim(store)
    with suppress(Undo), way(path) as caller:
        caller.run("insert into orders values ('milk')")
        engine.complete_tx(caller.connection, WORKER, complete(job))
        raise Undo

    with way(path) as caller:
        caller.run("insert into orders values ('tea')")
        engine.complete_tx(caller.connection, WORKER, complete(job, b'"served"'))
    with way(path) as caller, pytest.raises(LeaseLost, match="completed before"):
        engine.complete_tx(caller.connection, WORKER, complete(job))

    [record] = reader.jobs([job.id])
    assert record is not None
    assert (record.state, record.result, orders(path)) == ("completed", b'"served"', 1)
    assert store.insert([new_job(unique_key="k")])[0].is_new
    assert reader.health().problems == ()
    store.close()
    reader.close()


def test_what_cannot_be_joined_is_refused_with_a_word_about_what_can(path: str) -> None:
    engine = SqliteEngine(path)
    framework = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool)

    with pytest.raises(ConfigError, match=r"sqlite3.Connection.*SQLAlchemy.*Django.*not of object"):
        engine.insert_tx(object(), [new_job()])
    with (
        framework.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(ConfigError, match="begin a transaction first"),
    ):
        engine.insert_tx(connection, [new_job()])
    with pytest.raises(ConfigError, match="without _async"):
        asyncio.run(engine.insert_tx_async(object(), [new_job()]))
