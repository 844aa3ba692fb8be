"""Finished jobs by day: days are made ahead, and dropped whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import DAY_MS, JobId, OnFailure, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.queue_counts import Counts
from forebay.errors import StoreError
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.factory import open_engine
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.partitions import drop_day, missing_days, name_of, remove_day_history, start_of
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, new_url, problems, raw, wait_for_a_lock
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job

DEFAULT = QueueName("default")
KEPT = {"keep_finished_ms": 2 * DAY_MS}


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    store.save_queue(DEFAULT, KEPT)
    yield store
    store.close()


def days(engine: PostgresEngine) -> list[str]:
    with raw() as connection:
        rows = connection.execute(
            "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
            " where i.inhparent = %s::regclass order by 1",
            [f"{engine.address.schema}.finished"],
        ).fetchall()
    return [name for (name,) in rows]


def rows_of(engine: PostgresEngine, table: str) -> int:
    with raw() as connection:
        [(count,)] = connection.execute(f"select count(*) from {engine.address.schema}.{table}").fetchall()
    return int(count)


def finish(store: PostgresStore, jobs: int) -> None:
    store.insert([new_job()] * jobs)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, jobs)])


def test_a_new_store_has_today_and_tomorrow_before_a_worker_ends_a_job(postgres: object) -> None:
    engine = open_engine(new_url())
    assert isinstance(engine, PostgresEngine)
    engine.store().close()

    with raw() as connection:
        [(now,)] = connection.execute("select floor(extract(epoch from now()) * 1000)::bigint").fetchall()
    made = [name for name in days(engine) if start_of(name) is not None]
    assert len(made) == 2
    assert name_of(now) in made


def test_a_day_that_has_begun_in_the_default_partition_is_not_made(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    finish(store, 1)

    # To try would be an error in the server's log each time, with all sessions waiting for the lock.
    assert [name_of(day) for day in store._write(missing_days)] == [
        f"finished_202701{day}" for day in range(16, 23)
    ]


def test_a_job_that_ends_while_its_day_is_made_is_settled(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    schema, day = engine.address.schema, clock.now_ms() - clock.now_ms() % DAY_MS
    table = f"{schema}.{name_of(day)}"
    store.insert([new_job()])
    [job] = claim(store)
    with raw() as connection:
        connection.execute(f"drop table if exists {table}")
        connection.execute("begin")
        connection.execute(f"create table {table} (like {schema}.finished including all)")
        span = f"for values from ({day}) to ({day + DAY_MS})"
        connection.execute(f"alter table {schema}.finished attach partition {table} {span}")
        # It has chosen the partition of jobs without a day, and waits for it.
        ended = in_thread(lambda: store.settle_and_claim(WORKER, [complete(job)]))
        wait_for_a_lock(schema)
        connection.execute("commit")

    assert ended().settled == (job.id,)
    assert rows_of(engine, name_of(day)) == 1


def test_days_are_made_ahead(engine: PostgresEngine, store: PostgresStore, clock: ManualClock) -> None:
    store.prune()

    made = [f"finished_202701{day}" for day in range(15, 23)]
    assert days(engine) == [*made, "finished_default"]
    clock.advance(ms=DAY_MS)
    store.prune()
    assert days(engine) == [*made, "finished_20270123", "finished_default"]
    finish(store, 3)
    assert rows_of(engine, "finished_20270116") == 3


def test_a_migration_makes_the_first_days(engine: PostgresEngine, store: PostgresStore) -> None:
    store.migrate()

    finish(store, 2)
    assert rows_of(engine, "finished_20270115") == 2


def test_a_day_of_which_the_default_has_jobs_stays_there(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    finish(store, 2)

    assert store.prune() == 0

    assert rows_of(engine, "finished_default") == 2
    assert "finished_20270115" not in days(engine)
    assert "finished_20270116" in days(engine)


@pytest.mark.shows("R-EXT-06", "R-STORE-31")
def test_a_day_that_no_session_keeps_is_dropped_with_all_that_is_left_of_it(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.prune()
    finish(store, 5)
    store.insert([new_job()])
    [job] = claim(store)
    store.record_events([Event(kind=EventKind.COMMENT, job_id=job.id, detail="x")])
    store.settle_and_claim(WORKER, [complete(job)])
    clock.advance(ms=4 * DAY_MS)

    # One by one, and the rest with its day.
    assert store.prune(limit=2) == 6

    assert "finished_20270115" not in days(engine)
    reader = engine.reader()
    assert reader.counts()[DEFAULT] == Counts()
    assert rows_of(engine, "events where job_id is not null") == 0
    reader.close()


@pytest.mark.shows("R-HIST-27")
def test_actions_on_jobs_of_a_day_that_is_dropped_stay_in_the_audit_log(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.prune()
    [receipt] = store.insert([new_job()])
    store.cancel([JobId(receipt.id or "")], actor="mallory")
    clock.advance(ms=4 * DAY_MS)

    assert store.prune(limit=1) == 1
    store.prune()

    assert "finished_20270115" not in days(engine)
    reader = engine.reader()
    assert [event.actor_name for _, event in reader.audit() if event.job_id == receipt.id] == ["mallory"]
    reader.close()


@pytest.mark.parametrize("change", [{"keep_finished_ms": 0}, {"archive": True}])
def test_a_queue_that_wants_its_jobs_one_by_one_keeps_the_days(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock, change: dict[str, object]
) -> None:
    store.save_queue(QueueName("other"), change)
    store.prune()
    finish(store, 5)
    clock.advance(ms=4 * DAY_MS)

    assert store.prune(limit=2) == 2

    assert rows_of(engine, "finished_20270115") == 3


def test_a_day_that_a_session_reads_is_dropped_the_next_time(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.prune()
    finish(store, 5)
    clock.advance(ms=4 * DAY_MS)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.finished").fetchall()

        assert store.prune(limit=2) == 2
        connection.execute("rollback")

    assert store.prune(limit=2) == 3


def test_a_reader_is_not_held_up_while_a_day_is_gone_through(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.prune()
    finish(store, 1)
    clock.advance(ms=4 * DAY_MS)

    def go_through(tx: Transaction) -> list[JobId]:
        remove_day_history(tx, engine.address.schema, "finished_20270115")
        return everything(engine)

    assert len(store._write(go_through, defines=True)) == 1


def everything(engine: PostgresEngine) -> list[JobId]:
    reader = engine.reader()
    try:
        return [job.id for job in reader.search(JobQuery()).jobs]
    finally:
        reader.close()


def dropped(store: PostgresStore, schema: str, day: str) -> int:
    while True:  # what has to wait for too long is left to the next time
        with suppress(StoreError):
            return store._write(lambda tx: drop_day(tx, schema, day), defines=True)


def test_a_reader_of_a_day_that_is_about_to_go_does_not_keep_it(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.prune()
    finish(store, 1)
    day, schema = name_of(clock.now_ms()), engine.address.schema
    read: list[list[JobId]] = []
    monkeypatch.setattr(Transaction, "add_to_outbox_if_affected", lambda *_: read.append(everything(engine)))

    assert dropped(store, schema, day) == 1

    assert {len(ids) for ids in read} == {1}
    assert everything(engine) == []


@pytest.mark.shows("R-DEP-11")
def test_what_comes_to_be_held_by_a_job_of_a_day_that_goes_is_cancelled_with_it(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.prune()
    [parent] = store.insert([new_job()])
    store.cancel([parent.id or JobId("")])
    day, schema, other = name_of(clock.now_ms()), engine.address.schema, engine.store()
    held = new_job(depends_on=dependencies_of([parent.id or JobId("")], OnFailure.HOLD))

    def insert(tx: Transaction) -> tuple[list[InsertResult], Callable[[], int]]:
        receipts = insert_all(tx, [held], InsertRules(), atomic=True)
        dropping = in_thread(lambda: dropped(store, schema, day))
        wait_for_a_lock(schema)
        return receipts, dropping

    [child], dropping = other._write(insert)

    assert dropping() == 1
    other.close()
    reader = engine.reader()
    [job] = reader.jobs([child.id or JobId("")])
    reader.close()
    assert job is not None
    assert (job.state, job.reason) == (
        JobState.CANCELLED,
        f"{parent.id}, which it depends on, was deleted",
    )
