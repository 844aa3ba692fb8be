"""Tasks that complete their job in a transaction of their own: the worker sees what has come of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import asyncpg
import psycopg
import pytest

from forebay import Forebay, current_job
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, InvalidJob, LeaseLost
from tests.urls import JOINING, url_of

PATIENCE = 120

Connect = Callable[[], Any]


@pytest.fixture(params=JOINING)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(url_of(request.param, tmp_path), defaults={"retries": 0}) as app:
        app.counts()  # the tables are there
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def connect(app: Forebay, tmp_path: Path) -> Connect:
    """Opens connections of the program's own to the database that holds the jobs."""

    def connect() -> Any:
        if app.engine.features.name == "sqlite":
            return sqlite3.connect(tmp_path / "jobs.db", check_same_thread=False)
        return psycopg.connect(app.engine.address.dsn)  # type: ignore[attr-defined]  # of this engine

    return connect


def test_a_job_is_completed_with_the_commit_of_its_task(app: Forebay, connect: Connect) -> None:
    more = app.task(name="more")(lambda: None)

    @app.task(name="serve")
    def serve() -> str:
        job = current_job()
        job.follow_up(more.job())
        with closing(connect()) as connection:
            connection.execute("create table served (name text)")
            connection.execute("insert into served values ('tea')")
            job.complete_tx(connection, "tea")
            with pytest.raises(InvalidJob, match="before complete_tx"):
                job.follow_up(more.job())
            with pytest.raises(ConfigError, match="too late"):
                job.step("late", str)
            connection.commit()
        return "this result is not read"

    with app.run_worker(threads=1):
        job = serve.enqueue()
        assert job.result(PATIENCE) == "tea"
        [found] = [one for one in app.search().jobs if one.task == "more"]
        assert app.job(found.id).wait(PATIENCE).parent_id == job.id

    with closing(connect()) as connection:
        assert connection.execute("select * from served").fetchall() == [("tea",)]
        connection.execute("drop table served")
        connection.commit()


def test_a_task_that_rolls_back_and_returns_has_failed(app: Forebay, connect: Connect) -> None:
    @app.task(name="serve")
    def serve() -> None:
        with closing(connect()) as connection:
            connection.execute("begin")
            current_job().complete_tx(connection, "tea")
            connection.rollback()

    with app.run_worker(threads=1):
        record = serve.enqueue().wait(PATIENCE)

    assert (record.state, record.reason) == (
        JobState.DEAD,
        "RolledBack: the task has completed its job in a transaction that was not committed",
    )


def test_a_task_that_raises_after_its_commit_has_completed(app: Forebay, connect: Connect) -> None:
    @app.task(name="serve")
    def serve() -> None:
        with closing(connect()) as connection:
            connection.execute("begin")
            current_job().complete_tx(connection, "tea")
            connection.commit()
        raise ValueError("too late")

    with app.run_worker(threads=1) as worker:
        record = serve.enqueue().wait(PATIENCE)
        worker.stop()

    assert (record.state, record.failures) == (JobState.COMPLETED, 0)


@pytest.mark.parametrize(
    ("ends", "raises", "state", "reason"),
    [
        ("commit", False, JobState.COMPLETED, None),
        ("commit", True, JobState.COMPLETED, None),
        ("rollback", False, JobState.DEAD, "RolledBack"),
        ("rollback", True, JobState.DEAD, "ValueError: too hot"),
    ],
)
def test_a_transaction_that_outlives_its_task_is_waited_for(
    app: Forebay, connect: Connect, ends: str, raises: bool, state: JobState, reason: str | None
) -> None:
    connection = connect()
    returned = Event()

    @app.task(name="serve")
    def serve() -> None:
        connection.execute("begin")
        current_job().complete_tx(connection, "tea")
        returned.set()
        if raises:
            raise ValueError("too hot")

    with closing(connection), app.run_worker(threads=1):
        job = serve.enqueue()
        assert returned.wait(PATIENCE)
        before = job.refresh().state
        getattr(connection, ends)()
        record = job.wait(PATIENCE)

        assert (before, record.state) == (JobState.RUNNING, state)
        assert (record.reason or "").startswith(reason or "")


def test_an_attempt_that_counts_no_more_is_told_before_it_commits(app: Forebay, connect: Connect) -> None:
    heard: list[str] = []

    @app.task(name="serve")
    def serve() -> None:
        app.client.cancel([current_job().id], force=True)
        with closing(connect()) as connection:
            connection.execute("begin")
            try:
                current_job().complete_tx(connection)
            except LeaseLost as exc:
                heard.append(str(exc))

    with app.run_worker(threads=1) as worker:
        record = serve.enqueue().wait(PATIENCE)
        worker.stop()

    assert record.state is JobState.DEAD
    assert "cannot be completed: " in heard[0]


def test_a_consumer_completes_in_its_own_transaction(app: Forebay, connect: Connect) -> None:
    app.enqueue("serve")
    consumer = app.consumer()
    [job] = consumer.claim()

    with closing(connect()) as connection:
        connection.execute("begin")
        consumer.complete_tx(connection, job, "milk")
        connection.rollback()
        connection.execute("begin")
        consumer.complete_tx(connection, job, "tea")
        connection.commit()
        connection.execute("begin")
        with pytest.raises(LeaseLost):
            consumer.complete_tx(connection, job, "cake")

    assert app.job(job.id).result(0) == "tea"
    consumer.close()


def test_a_coroutine_completes_its_job_in_its_own_transaction(postgres: object, tmp_path: Path) -> None:
    app = Forebay(url_of("postgresql", tmp_path))
    dsn = app.engine.address.dsn  # type: ignore[attr-defined]  # of this engine

    @app.task(name="serve")
    async def serve(name: str) -> None:
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await current_job().complete_tx_async(connection, name)
        await connection.close()

    with app, app.run_worker(coroutines=4):
        jobs = [serve.enqueue(name) for name in ("tea", "milk", "cake")]
        assert [job.result(PATIENCE) for job in jobs] == ["tea", "milk", "cake"]


def test_a_consumer_completes_in_a_transaction_on_its_event_loop(postgres: object, tmp_path: Path) -> None:
    with Forebay(url_of("postgresql", tmp_path)) as app:
        app.enqueue("serve")
        consumer = app.consumer()
        [job] = consumer.claim()

        async def program() -> None:
            dsn = app.engine.address.dsn  # type: ignore[attr-defined]  # of this engine
            async with await psycopg.AsyncConnection.connect(dsn) as connection:
                await consumer.complete_tx_async(connection, job, "tea")

        asyncio.run(program())

        assert app.job(job.id).result(0) == "tea"
        consumer.close()


def test_an_engine_without_transactions_says_so() -> None:
    with Forebay("memory://", defaults={"retries": 0}) as app:

        @app.task(name="serve")
        def serve() -> None:
            current_job().complete_tx(object())

        with app.run_worker(threads=1):
            assert "has no transactions to join" in str(serve.enqueue().wait(PATIENCE).reason)
