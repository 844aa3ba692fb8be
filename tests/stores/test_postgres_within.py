"""Jobs enqueued in the caller's own psycopg transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import Completed, Discarded, Outcome
from forebay.domain.settlement import decide
from forebay.domain.workflow import needs_of
from forebay.errors import ConfigError, DuplicateJob, InvalidJob, QueueFull, RateLimited, StoreUnavailable
from forebay.stores.postgres.connection import Address
from forebay.stores.postgres.store import PostgresEngine
from forebay.stores.protocol import Store
from forebay.testing.clock import ManualClock
from tests.stores.contract.steps import BOOM
from tests.stores.postgres_support import make_engine, new_schema, problems, server
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job

DEFAULT = QueueName("default")


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def connection(engine: PostgresEngine) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with psycopg.connect(server().url(), row_factory=dict_row) as connection:
        connection.execute("create temporary table orders (name text)")
        connection.commit()
        yield connection
        if not connection.closed:
            connection.rollback()


Caller = psycopg.Connection[dict[str, Any]]


def test_a_job_comes_true_with_the_commit(engine: PostgresEngine, connection: Caller) -> None:
    store, reader = engine.store(), engine.reader()
    connection.execute("insert into orders values ('tea')")
    [receipt] = engine.insert_within(connection, [new_job()])
    before = reader.counts()[DEFAULT].pending

    connection.commit()

    assert before == 0
    assert [job.id for job in claim(store)] == [receipt.id]
    store.close()
    reader.close()


def test_a_job_vanishes_with_the_rollback(engine: PostgresEngine, connection: Caller) -> None:
    reader = engine.reader()
    connection.execute("insert into orders values ('tea')")
    [receipt] = engine.insert_within(connection, [new_job(unique_key="k")])

    connection.rollback()

    assert receipt.id is not None
    assert reader.jobs([receipt.id]) == [None]
    assert reader.counts()[DEFAULT].total == 0
    reader.close()


def test_a_job_joins_a_block_of_a_connection_that_commits_by_itself(
    engine: PostgresEngine, connection: Caller
) -> None:
    connection.autocommit = True
    with connection.transaction():
        [receipt] = engine.insert_within(connection, [new_job()])

    store = engine.store()
    assert [job.id for job in claim(store)] == [receipt.id]
    store.close()


def test_a_refused_job_leaves_the_rest_of_the_transaction_as_it_was(
    engine: PostgresEngine, connection: Caller
) -> None:
    connection.execute("insert into orders values ('tea')")
    engine.insert_within(connection, [new_job(unique_key="k")])

    with pytest.raises(DuplicateJob):
        engine.insert_within(connection, [new_job(), new_job(unique_key="k")], on_conflict="raise")

    connection.commit()
    reader = engine.reader()
    assert reader.counts()[DEFAULT].pending == 1
    assert connection.execute("select count(*) as n from orders").fetchone() == {"n": 1}
    reader.close()


def test_keys_and_delays_work_as_ever(engine: PostgresEngine, connection: Caller) -> None:
    [first, second, later] = engine.insert_within(
        connection, [new_job(unique_key="k"), new_job(unique_key="k"), new_job(delay_ms=60_000)]
    )
    connection.commit()

    assert (second.id, second.is_new) == (first.id, False)
    assert later.state is JobState.SCHEDULED
    assert engine.insert_within(connection, []) == []


def test_other_producers_do_not_wait_for_a_transaction_that_is_left_open(
    engine: PostgresEngine, connection: Caller
) -> None:
    store = engine.store()
    store.save_queue(QueueName("short"), {"max_length": 3})
    engine.insert_within(connection, [new_job(queue="brand-new"), new_job(queue="short")])

    receipts = store.insert([new_job(queue="brand-new"), new_job(queue="short")])

    assert [receipt.is_new for receipt in receipts] == [True, True]
    connection.commit()
    engine.insert_within(connection, [new_job(queue="short")])
    with pytest.raises(QueueFull):
        engine.insert_within(connection, [new_job(queue="short")])
    store.close()


def test_a_rate_refuses_and_is_not_taken_from_so_that_nobody_waits_for_the_transaction(
    engine: PostgresEngine, connection: Caller
) -> None:
    store = engine.store()
    store.save_queue(QueueName("slow"), {"enqueue_rate": 1, "enqueue_burst": 2})
    engine.insert_within(connection, [new_job(queue="slow")] * 2)

    receipts = store.insert([new_job(queue="slow")] * 2)

    assert [receipt.is_new for receipt in receipts] == [True, True]
    with pytest.raises(RateLimited) as caught:
        engine.insert_within(connection, [new_job(queue="slow")])
    connection.commit()
    assert caught.value.retry_after == 1
    store.close()


def test_whoever_wants_the_same_key_waits_for_the_commit(engine: PostgresEngine, connection: Caller) -> None:
    store = engine.store()
    [ours] = engine.insert_within(connection, [new_job(unique_key="k")])

    theirs = in_thread(lambda: store.insert([new_job(unique_key="k")]))
    connection.commit()

    [receipt] = theirs()
    assert (receipt.id, receipt.is_new) == (ours.id, False)
    store.close()


def test_a_key_that_is_not_let_go_in_time_is_an_error_to_come_back_from(
    engine: PostgresEngine, connection: Caller
) -> None:
    store = engine.store()
    engine.insert_within(connection, [new_job(unique_key="k")])

    with pytest.raises(StoreUnavailable, match="lock"):
        store.insert([new_job(unique_key="k")])

    connection.rollback()
    assert store.insert([new_job(unique_key="k")])[0].is_new
    store.close()


def test_without_a_transaction_it_is_refused(engine: PostgresEngine, connection: Caller) -> None:
    connection.autocommit = True

    with pytest.raises(ConfigError, match="begin a transaction"):
        engine.insert_within(connection, [new_job()])


def test_a_transaction_that_has_failed_is_refused(engine: PostgresEngine, connection: Caller) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute("select nonsense")

    with pytest.raises(ConfigError, match="roll it back first"):
        engine.insert_within(connection, [new_job()])


def test_a_connection_of_another_kind_is_refused(engine: PostgresEngine) -> None:
    with pytest.raises(ConfigError, match=r"psycopg\.Connection"):
        engine.insert_within(object(), [new_job()])


def test_a_connection_to_another_database_is_refused(engine: PostgresEngine) -> None:
    with (
        psycopg.connect(server().url("template1")) as other,
        pytest.raises(ConfigError, match="database template1"),
    ):
        engine.insert_within(other, [new_job()])


def test_a_closed_connection_is_refused(engine: PostgresEngine, connection: Caller) -> None:
    connection.close()

    with pytest.raises(ConfigError, match="closed"):
        engine.insert_within(connection, [new_job()])


def test_a_database_without_our_tables_is_named(connection: Caller) -> None:
    nowhere = PostgresEngine(Address(dsn=server().url(), schema=new_schema()))

    with pytest.raises(ConfigError, match="has no tables for jobs yet"):
        nowhere.insert_within(connection, [new_job()])


@pytest.mark.shows("R-DEP-03", "R-EDGE-48")
@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (Completed(b"1"), JobState.PENDING, None),
        (Discarded(BOOM), JobState.CANCELLED, "{}, which it depends on, is dead"),
    ],
)
def test_a_parent_that_ends_before_the_commit_is_heard_of_after_it(
    engine: PostgresEngine, connection: Caller, outcome: Outcome, state: JobState, reason: str | None
) -> None:
    """Nobody is held for as long as the caller's transaction is open, so the parent's end cannot see the
    child; whoever promotes looks at the parent once the child is there."""
    store, reader = engine.store(), engine.reader()
    [parent] = store.insert([new_job()])
    assert parent.id is not None
    [child] = engine.insert_within(connection, [new_job(depends_on=needs_of([parent.id]))])
    assert child.id is not None
    [job] = claim(store)
    store.exchange(WORKER, [decide(job, outcome, 0.5)])

    connection.commit()
    [before] = reader.jobs([child.id])
    store.promote()
    [after] = reader.jobs([child.id])

    assert before is not None
    assert before.state is JobState.BLOCKED
    assert after is not None
    assert (after.state, after.reason) == (state, reason and reason.format(parent.id))
    store.close()
    reader.close()


@pytest.mark.shows("R-DEP-02")
def test_a_parent_that_ends_after_the_commit_releases_its_child(
    engine: PostgresEngine, connection: Caller
) -> None:
    store, reader = engine.store(), engine.reader()
    [parent] = store.insert([new_job()])
    assert parent.id is not None
    [child] = engine.insert_within(connection, [new_job(depends_on=needs_of([parent.id]))])
    assert child.id is not None
    connection.commit()
    store.promote()

    [job] = claim(store)
    store.exchange(WORKER, [complete(job)])

    assert [job.id for job in claim(store)] == [child.id]
    store.close()
    reader.close()


@pytest.mark.shows("R-EDGE-48")
def test_an_unknown_parent_is_refused_in_the_callers_transaction(
    engine: PostgresEngine, connection: Caller
) -> None:
    with pytest.raises(InvalidJob, match="there is no such job"):
        engine.insert_within(connection, [new_job(depends_on=needs_of([JobId("nobody")]))])


def test_a_job_with_a_parent_and_a_turn_waits_for_both_whoever_joins_its_sequence(
    engine: PostgresEngine, connection: Caller
) -> None:
    """It is on the list once for its parents and once for its turn, which it gets once."""
    store = engine.store()
    [parent] = store.insert([new_job()])
    assert parent.id is not None
    [child] = engine.insert_within(connection, [new_job(sequence="s", depends_on=needs_of([parent.id]))])
    connection.commit()
    store.promote()
    [last] = engine.insert_within(connection, [new_job(sequence="s")])
    connection.commit()
    store.promote()

    assert (child.id, last.id) == _run_all(store, first=parent.id)
    store.close()


def test_a_job_that_is_revived_before_it_has_its_turn_comes_after_others(
    engine: PostgresEngine, connection: Caller
) -> None:
    store = engine.store()
    [first] = store.insert([new_job(sequence="s")])
    [late] = engine.insert_within(connection, [new_job(sequence="s")])
    connection.commit()
    assert late.id is not None

    store.cancel([late.id])
    [verdict] = store.revive([late.id])
    store.promote()
    store.promote()

    assert verdict.state is JobState.BLOCKED
    assert first.id is not None
    assert (late.id,) == _run_all(store, first=first.id)
    store.close()


def _run_all(store: Store, *, first: JobId) -> tuple[JobId, ...]:
    """Run one job at a time, of which this is the first; which ones come then."""
    ran = []
    while jobs := claim(store, 5):
        [job] = jobs
        ran.append(job.id)
        store.exchange(WORKER, [complete(job)])
    assert ran[:1] == [first]
    return tuple(ran[1:])
