"""A change of scoring also reaches jobs that were being inserted while it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from forebay.domain.job import Job, JobId, QueueName
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems, raw
from tests.stores.support import new_job

DEFAULT: Final = QueueName("default")
QUICK: Final[dict[str, Any]] = {"aging_ms": 1_000}


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    opened = engine.store()
    opened.make_queues([DEFAULT])
    yield opened
    opened.close()


@pytest.fixture
def caller() -> Iterator[psycopg.Connection[Any]]:
    """A session with a transaction of its own, which has begun and goes on."""
    with raw() as connection:
        connection.execute("begin")
        yield connection


def job_of(engine: PostgresEngine, job_id: JobId | None) -> Job:
    reader = engine.reader()
    try:
        [job] = reader.jobs([job_id or JobId("")])
        assert job is not None
        return job
    finally:
        reader.close()


def is_reordering(engine: PostgresEngine) -> bool:
    reader = engine.reader()
    try:
        [queue] = reader.queues()
        return queue.is_rescoring
    finally:
        reader.close()


def rescored(store: PostgresStore, limit: int = 1_000) -> int:
    """Rescore until there is nothing to do for now."""
    return sum(iter(lambda: store.rescore(limit), 0))


@pytest.mark.shows("R-PRI-24")
@pytest.mark.parametrize("waiting", [0, 5])
def test_a_job_that_is_committed_after_the_change_gets_its_new_place(
    engine: PostgresEngine, store: PostgresStore, caller: psycopg.Connection[Any], waiting: int
) -> None:
    store.insert([new_job(priority=1)] * waiting)
    [late] = engine.insert_tx(caller, [new_job(priority=1)])
    store.save_queue(DEFAULT, QUICK)

    rescored(store, limit=2)
    assert is_reordering(engine)
    caller.execute("commit")
    rescored(store, limit=2)

    assert not is_reordering(engine)
    job = job_of(engine, late.id)
    assert job.rank == job.ready_at - 1_000
    assert problems(engine) == ()


def test_what_comes_after_the_change_is_not_waited_for(
    engine: PostgresEngine, store: PostgresStore, caller: psycopg.Connection[Any]
) -> None:
    store.insert([new_job()])
    engine.insert_tx(caller, [new_job()])
    store.save_queue(DEFAULT, QUICK)
    rescored(store)

    with raw() as other:
        other.execute("begin")
        [new] = engine.insert_tx(other, [new_job(priority=1)])
        caller.execute("commit")
        rescored(store)
        assert not is_reordering(engine)
        other.execute("commit")

    job = job_of(engine, new.id)
    assert job.rank == job.ready_at - 1_000


def test_another_change_while_one_is_waited_for_begins_anew(
    engine: PostgresEngine, store: PostgresStore, caller: psycopg.Connection[Any]
) -> None:
    [first] = store.insert([new_job(priority=1)])
    engine.insert_tx(caller, [new_job()])
    store.save_queue(DEFAULT, QUICK)
    rescored(store)

    store.save_queue(DEFAULT, {"aging_ms": 2_000})
    rescored(store)
    job = job_of(engine, first.id)
    caller.execute("rollback")
    rescored(store)

    assert job.rank == job.ready_at - 2_000
    assert not is_reordering(engine)


def test_the_last_walk_moves_only_what_stands_elsewhere(
    engine: PostgresEngine, store: PostgresStore, caller: psycopg.Connection[Any]
) -> None:
    store.insert([new_job(priority=1)] * 3)
    [late] = engine.insert_tx(caller, [new_job(priority=1)])
    store.save_queue(DEFAULT, QUICK)
    rescored(store)
    arrived = f"select id, inserted_xid::text from {engine.address.schema}.ready"
    caller.execute("commit")
    before = dict(caller.execute(arrived).fetchall())

    rescored(store)

    after = dict(caller.execute(arrived).fetchall())
    assert [job_id for job_id in after if after[job_id] != before[job_id]] == [late.id]
