"""Jobs enqueued in the caller's own sqlite3 transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.job import Dependency, JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, DuplicateJob, RateLimited, SchemaNewer, StoreUnavailable
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.sqlite.engine import SqliteEngine
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    engine = SqliteEngine(str(tmp_path / "app.db"))
    engine.store().close()
    return engine


@pytest.fixture
def connection(engine: SqliteEngine, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("create table orders (name text)")
    yield connection
    connection.close()


def test_a_job_comes_true_with_the_commit(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    store, reader = engine.store(), engine.reader()
    connection.execute("begin")
    connection.execute("insert into orders values ('tea')")
    [receipt] = engine.insert_tx(connection, [new_job()])
    before = reader.counts()

    connection.execute("commit")

    assert before == {}
    assert [job.id for job in claim(store)] == [receipt.id]
    assert reader.health().problems == ()
    store.close()
    reader.close()


def test_a_job_vanishes_with_the_rollback(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    reader = engine.reader()
    connection.execute("begin")
    connection.execute("insert into orders values ('tea')")
    [receipt] = engine.insert_tx(connection, [new_job()])

    connection.execute("rollback")

    assert receipt.id is not None
    assert reader.jobs([receipt.id]) == [None]
    assert reader.counts() == {}
    reader.close()


def test_a_refused_job_leaves_the_rest_of_the_transaction_as_it_was(
    engine: SqliteEngine, connection: sqlite3.Connection
) -> None:
    connection.execute("begin")
    connection.execute("insert into orders values ('tea')")
    engine.insert_tx(connection, [new_job(unique_key="k")])

    with pytest.raises(DuplicateJob):
        engine.insert_tx(connection, [new_job(), new_job(unique_key="k")], on_conflict="raise")

    connection.execute("commit")
    reader = engine.reader()
    assert reader.counts()[new_job().queue].pending == 1
    assert connection.execute("select count(*) from orders").fetchone()[0] == 1
    assert reader.health().problems == ()
    reader.close()


def test_a_rate_is_taken_from_with_the_commit(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    store = engine.store()
    store.save_queue(QueueName("slow"), {"enqueue_rate": 1, "enqueue_burst": 200})
    jobs = [new_job(queue="slow")] * 200  # a second time, they would have to wait for minutes
    connection.execute("begin")
    engine.insert_tx(connection, jobs)
    with pytest.raises(RateLimited):
        engine.insert_tx(connection, jobs)
    connection.execute("rollback")

    receipts = store.insert(jobs)

    assert all(receipt.is_new for receipt in receipts)
    with pytest.raises(RateLimited):
        store.insert(jobs)
    store.close()


def test_keys_and_delays_work_as_ever(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    connection.execute("begin")
    [first, second, later] = engine.insert_tx(
        connection, [new_job(unique_key="k"), new_job(unique_key="k"), new_job(delay_ms=60_000)]
    )
    connection.execute("commit")

    assert (second.id, second.is_new) == (first.id, False)
    assert later.state is JobState.SCHEDULED


def test_without_a_transaction_it_is_refused(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    with pytest.raises(ConfigError, match="begin a transaction"):
        engine.insert_tx(connection, [new_job()])


def test_a_connection_to_another_file_is_refused(engine: SqliteEngine, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    other.execute("begin")

    with pytest.raises(ConfigError, match=r"other\.db"):
        engine.insert_tx(other, [new_job()])

    other.close()


def test_a_connection_of_another_kind_is_refused(engine: SqliteEngine) -> None:
    with pytest.raises(ConfigError, match=r"sqlite3\.Connection"):
        engine.insert_tx(object(), [new_job()])


def test_a_file_without_our_tables_is_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    connection.execute("create table orders (name text)")
    connection.execute("begin")

    with pytest.raises(ConfigError, match="has no tables for jobs yet"):
        SqliteEngine(str(tmp_path / "new.db")).insert_tx(connection, [new_job()])

    connection.close()


def test_memory_has_no_transactions_to_join() -> None:
    with pytest.raises(ConfigError, match="no transactions"):
        MemoryEngine().insert_tx(object(), [new_job()])


def test_a_file_whose_schema_is_too_new_is_refused(
    engine: SqliteEngine, connection: sqlite3.Connection
) -> None:
    connection.execute("update forebay_schema set oldest = 99")
    connection.execute("begin")

    with pytest.raises(SchemaNewer):
        engine.insert_tx(connection, [new_job()])


def test_a_closed_connection_is_refused(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    connection.close()

    with pytest.raises(ConfigError, match="cannot be used"):
        engine.insert_tx(connection, [new_job()])


def test_texts_as_bytes_make_no_difference(engine: SqliteEngine, connection: sqlite3.Connection) -> None:
    connection.text_factory = bytes
    connection.execute("begin")
    [receipt] = engine.insert_tx(connection, [new_job(unique_key="k")])
    [again] = engine.insert_tx(connection, [new_job(unique_key="k")])

    connection.execute("commit")

    assert (again.id, again.is_new) == (receipt.id, False)


def test_a_full_disk_says_that_the_transaction_is_gone(
    engine: SqliteEngine, connection: sqlite3.Connection
) -> None:
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count = {pages}")
    connection.execute("begin")

    with pytest.raises(StoreUnavailable, match="no room left"):
        engine.insert_tx(connection, [new_job(payload=b"x" * 500_000)])

    reader = engine.reader()
    assert reader.counts() == {}
    reader.close()


def test_the_id_of_a_job_whose_end_still_goes_round_is_refused_until_that_is_over(
    engine: SqliteEngine, connection: sqlite3.Connection
) -> None:
    store, root = engine.store(), JobId("root")
    store.insert([new_job(id=root)])
    store.insert([new_job(depends_on=(Dependency(root),))] * (3 * PROPAGATION_BATCH))
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    store.delete([root])

    connection.execute("begin")
    with pytest.raises(StoreUnavailable, match="job id root was just deleted"):
        engine.insert_tx(connection, [new_job(id=root)])
    connection.execute("rollback")
    while store.promote():
        pass
    connection.execute("begin")
    [receipt] = engine.insert_tx(connection, [new_job(id=root)])
    connection.execute("commit")

    assert (receipt.id, receipt.is_new) == (root, True)
    store.close()
