"""Inserts that meet others on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.job import QueueName
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems, raw, wait_for_a_lock
from tests.stores.sqlite_support import in_thread
from tests.stores.support import new_job

NEW_QUEUE = (
    "insert into {schema}.queues"
    " (name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at)"
    " select '{name}', state, settings, scoring_version, rescored_to_seq, created_at, updated_at"
    " from {schema}.queues where name = 'model'"
)


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.mark.shows("R-STORE-23")
def test_new_queues_are_made_in_one_order_so_that_two_inserts_cannot_wait_for_each_other(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    schema = engine.address.schema
    store.save_queue(QueueName("model"), {})
    with raw() as connection:
        connection.execute("begin")
        connection.execute(NEW_QUEUE.format(schema=schema, name="a"))
        inserted = in_thread(lambda: store.insert([new_job(queue="b"), new_job(queue="a")]))
        wait_for_a_lock(schema)

        # It waits for our queue a, and holds nothing that we could wait for.
        connection.execute("set local lock_timeout = '100ms'")
        connection.execute(NEW_QUEUE.format(schema=schema, name="b"))
        connection.execute("commit")

    assert [receipt.is_new for receipt in inserted()] == [True, True]
