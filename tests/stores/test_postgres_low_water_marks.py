"""Maintenance tasks stay cheap while nothing can be vacuumed, and find all the same what lies below their
low-water marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from forebay.domain.job import DAY_MS, JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.stores.postgres import low_water_marks
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems, raw
from tests.stores.support import SWEEPER, WORKER, claim, complete, new_job

DEFAULT: Final = QueueName("default")
SECOND: Final = 1_000
MINUTE: Final = 60_000
DEAD_ROWS: Final = low_water_marks.COSTLY + 1_000
FEW: Final = low_water_marks.COSTLY // 2
KEPT: Final = {"keep_finished_ms": DAY_MS, "keep_dead_ms": DAY_MS, "keep_archive_ms": DAY_MS}

# What has come and gone, and cannot be vacuumed: in each index that maintenance tasks go through.
CHURN: Final = """
insert into {s}.jobs (
  id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, rescore_at, payload
) select 'j' || i, i, 'default', 't', 0, i, i, i, i, i, i, 'x' from generate_series(1, {n}) i;
insert into {s}.ready (queue, age_capped, rank, seq, id, expires_at)
select 'default', false, i, i, 'j' || i, i from generate_series(1, {n}) i;
insert into {s}.delayed select 'j' || i, 'default', i, i, 'scheduled' from generate_series(1, {n}) i;
insert into {s}.leases (
  id, seq, queue, attempt, worker, lease_expires_at, started_at, updated_at, lease_limit_at
)
select 'j' || i, i, 'default', 1, 'w', i, i, i, i from generate_series(1, {n}) i;
insert into {s}.finished (
  id, seq, queue, task, state, priority, attempt, failures, crashes, created_at, updated_at, ready_at, run_at,
  rank, age_capped, finished_at, payload
) select 'j' || i, i, 'default', 't', 'completed', 0, 1, 0, 0, i, i, i, i, i, false, i, 'x'
from generate_series(1, {n}) i;
insert into {s}.dead (
  id, seq, queue, task, state, priority, attempt, failures, crashes, created_at, updated_at, ready_at, run_at,
  rank, age_capped, finished_at, payload
) select 'j' || i, i, 'default', 't', 'dead', 0, 1, 0, 0, i, i, i, i, i, false, i, 'x'
from generate_series(1, {n}) i;
insert into {s}.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, attempt, failures, excerpt
)
select 'j' || i, 'default', 't', 'completed', i, i, '', 1, 0, '' from generate_series(1, {n}) i;
insert into {s}.job_keys
select 'default', 'idempotency', 'k' || i, 'j' || i, i from generate_series(1, {n}) i;
insert into {s}.events (kind, occurred_at, detail) select 'comment', i, '' from generate_series(1, {n}) i;
insert into {s}.queue_count_deltas (queue, state, jobs)
select 'default', 'pending', 0 from generate_series(1, {n}) i;
insert into {s}.dependency_outbox (job_id, event) select 'j' || i, 'completed' from generate_series(1, {n}) i;
select setval('{s}.job_seq', {n});
"""
CHURNED: Final = (
    "jobs", "ready", "delayed", "leases", "finished", "dead", "job_archive", "job_keys", "events",
    "queue_count_deltas", "dependency_outbox",
)  # fmt: skip


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    store.save_queue(DEFAULT, KEPT)
    yield store
    store.close()


@contextmanager
def churned(engine: PostgresEngine) -> Iterator[None]:
    """A store whose dead rows cannot be removed, because a transaction might still see them."""
    schema = engine.address.schema
    tables = ", ".join(f"{schema}.{table}" for table in CHURNED)
    with raw() as pin, raw() as connection:
        connection.execute(f"truncate {tables}")  # what other tests have left would be read, too
        pin.execute("begin isolation level repeatable read")
        pin.execute("select 1 from pg_class limit 1")
        connection.execute(CHURN.format(s=schema, n=DEAD_ROWS))
        # As it happens by itself: to the planner there is nothing in these tables now, however much it is,
        # and what it knows of their columns is of the time when they were full.
        connection.execute(f"analyze {tables}")
        connection.execute("; ".join(f"delete from {schema}.{table}" for table in CHURNED))
        connection.execute(f"analyze {tables}")
        yield


def do_all(store: PostgresStore) -> int:
    """Each maintenance task once; how many jobs they moved."""
    return store.promote() + len(store.sweep(SWEEPER)) + store.rescore() + store.prune()


def entries_read(engine: PostgresEngine, store: PostgresStore) -> dict[str, int]:
    """How many entries were read of each index so far."""
    store._connection.open().execute("select pg_stat_force_next_flush()")
    with raw() as connection:
        rows = connection.execute(
            "select indexrelname, idx_tup_read from pg_stat_user_indexes where schemaname = %s",
            [engine.address.schema],
        ).fetchall()
    return dict(rows)


def test_maintenance_tasks_read_few_entries_while_nothing_can_be_vacuumed(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with churned(engine):
        store.insert([new_job()])
        do_all(store)
        do_all(store)
        clock.advance(ms=3 * SECOND)
        store.insert([new_job(delay_ms=SECOND), new_job(expires_at=clock.now_ms() + SECOND)])
        assert len(claim(store)) == 1
        before = entries_read(engine, store)

        moved = 0
        for _ in range(5):
            clock.advance(ms=10 * SECOND)
            moved += do_all(store)
            claim(store)

        after = entries_read(engine, store)
        # A claim that finds too little looks from the head, too, as long as that is cheap.
        read = {name: after[name] - before[name] for name in after if name != "ready_pkey"}
        assert {name: entries for name, entries in read.items() if entries > FEW} == {}
    # One expired, one was due, and the first one's lease ended.
    assert moved >= 3


def test_keys_and_places_are_looked_up_one_by_one_while_nothing_can_be_vacuumed(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    with churned(engine):
        before = entries_read(engine, store)

        [receipt] = store.insert([new_job(unique_key="k")])
        store.cancel([receipt.id or JobId("")])

        after = entries_read(engine, store)
    read = {name: after[name] - before[name] for name in ("job_keys_pkey", "ready_inserted_xid")}
    assert {name: entries for name, entries in read.items() if entries > FEW} == {}


def test_without_dead_rows_no_floor_is_kept(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with raw() as connection:
        # A vacuum could not remove what other tests have left while a transaction is open.
        tables = ", ".join(f"{engine.address.schema}.{table}" for table in CHURNED)
        connection.execute(f"truncate {tables}")

    do_all(store)
    clock.advance(ms=SECOND)
    do_all(store)

    assert kept(engine) == {}


def kept(engine: PostgresEngine) -> dict[str, int]:
    with raw() as connection:
        rows = connection.execute(
            f"select name, scan_position from {engine.address.schema}.maintenance"
            " where name like 'low-water mark of %'"
        ).fetchall()
    return {name.removeprefix("low-water mark of "): low for name, low in rows}


def change(engine: PostgresEngine, statement: str, *values: object) -> None:
    with raw() as connection:
        connection.execute(statement.replace("forebay.", f"{engine.address.schema}."), list(values))


def late_due(engine: PostgresEngine, store: PostgresStore, now: int) -> None:
    [receipt] = store.insert([new_job(delay_ms=DAY_MS)])
    change(engine, "update forebay.delayed set run_at = %s", now - MINUTE)
    change(engine, "update forebay.jobs set run_at = %s where id = %s", now - MINUTE, receipt.id)


def late_lease(engine: PostgresEngine, store: PostgresStore, now: int) -> None:
    store.insert([new_job()])
    claim(store)
    change(engine, "update forebay.leases set lease_expires_at = %s", now - MINUTE)


def late_expiry(engine: PostgresEngine, store: PostgresStore, now: int) -> None:
    store.insert([new_job(expires_at=now - MINUTE)])


def late_end(engine: PostgresEngine, store: PostgresStore, now: int) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    store.settle_and_claim(WORKER, [complete(job)])
    change(engine, "update forebay.finished set finished_at = %s", now - DAY_MS - MINUTE)


Late = Callable[[PostgresEngine, PostgresStore, int], None]


@pytest.mark.parametrize("late", [late_due, late_lease, late_expiry, late_end])
def test_what_comes_in_below_a_floor_is_found_within_a_minute(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock, late: Late
) -> None:
    with churned(engine):
        do_all(store)
        late(engine, store, clock.now_ms())
        clock.advance(ms=SECOND)

        assert do_all(store) == 0

        clock.advance(ms=MINUTE)
        assert do_all(store) == 1


def test_due_jobs_behind_one_that_another_transaction_has_locked_are_not_passed(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with churned(engine), raw() as other:
        do_all(store)
        [first, *_] = store.insert([new_job(delay_ms=SECOND)] * 4)
        clock.advance(ms=10 * SECOND)
        other.execute("begin")
        other.execute(f"select * from {engine.address.schema}.delayed where id = %s for update", [first.id])

        promoted = [store.promote(limit=2), store.promote(), store.promote()]
        other.execute("rollback")

    assert promoted == [1, 2, 0]


def test_a_job_that_has_expired_below_the_floor_is_not_claimed(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with churned(engine):
        do_all(store)
        late_expiry(engine, store, clock.now_ms())

        assert claim(store) == []


def test_a_change_of_the_counts_that_is_committed_late_is_not_passed(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with churned(engine), raw() as late:
        late.execute("begin")
        late.execute(
            f"insert into {engine.address.schema}.queue_count_deltas (queue, state, jobs)"
            " values ('default', 'pending', 1), ('default', 'pending', -1)"
        )
        for _ in range(3):
            clock.advance(ms=SECOND)
            store.promote()
        late.execute("commit")
        store.insert([new_job()])
        assert pending(engine) == 1

        clock.advance(ms=MINUTE)
        for _ in range(3):
            store.promote()
        assert kept(engine)["counts"] > low_water_marks.COSTLY
        assert unfolded(engine) == []
        assert pending(engine) == 1


ADD_A_LINE: Final = "insert into forebay.dependency_outbox (job_id, event) values ('x', 'completed')"


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize(
    "hidden_by",
    [
        ("begin", ADD_A_LINE),  # a transaction of a caller who takes his time
        (ADD_A_LINE, "begin", "select 1 from forebay.dependency_outbox for update"),  # one who dies
    ],
)
def test_an_outbox_entry_that_no_other_worker_could_work_on_is_not_passed(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock, hidden_by: tuple[str, ...]
) -> None:
    schema = engine.address.schema
    with churned(engine), raw() as other:
        promote_some(store, clock)
        assert kept(engine)["outbox"] > low_water_marks.COSTLY
        for statement in hidden_by:
            other.execute(statement.replace("forebay.", f"{schema}."))
        # As if many others had come and gone.
        change(
            engine, "select count(nextval('forebay.dependency_outbox_id_seq')) from generate_series(1, 5000)"
        )
        promote_some(store, clock)
        other.execute("commit")

        store.promote()

        assert other.execute(f"select 1 from {schema}.dependency_outbox").fetchall() == []


def promote_some(store: PostgresStore, clock: ManualClock) -> None:
    for _ in range(4):
        clock.advance(ms=SECOND)
        store.promote()


def pending(engine: PostgresEngine) -> int:
    reader = engine.reader()
    try:
        return reader.counts()[DEFAULT].pending
    finally:
        reader.close()


def unfolded(engine: PostgresEngine) -> list[int]:
    with raw() as connection:
        rows = connection.execute(f"select id from {engine.address.schema}.queue_count_deltas order by 1")
        return [number for (number,) in rows.fetchall()]


def test_a_job_that_was_committed_late_still_moves_to_the_capped_class(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": MINUTE, "max_aging_bonus": 60})
    with churned(engine):
        store.insert([new_job()] * 2)
        do_all(store)
        assert kept(engine)["scan"] > 1
        # As if its seq had been drawn long before.
        change(
            engine,
            "with r as (delete from forebay.ready where seq = (select min(seq) from forebay.jobs)"
            " returning *)"
            " insert into forebay.ready select queue, age_capped, rank, 1, id, expires_at from r",
        )
        change(engine, "update forebay.jobs set seq = 1 where seq = (select min(seq) from forebay.jobs)")
        for _ in range(8):
            clock.advance(ms=10 * MINUTE)
            store.rescore()

    assert {job.age_capped for job in jobs(engine)} == {True}


def jobs(engine: PostgresEngine) -> list[Any]:
    reader = engine.reader()
    try:
        with raw() as connection:
            rows = connection.execute(f"select id from {engine.address.schema}.jobs").fetchall()
        return reader.jobs([JobId(job_id) for (job_id,) in rows])
    finally:
        reader.close()


def test_a_floor_that_is_ahead_of_the_clock_is_not_used(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    with churned(engine):
        do_all(store)
        change(
            engine,
            "update forebay.maintenance set scan_position = %s where name = 'low-water mark of delayed'",
            clock.now_ms() + DAY_MS,
        )
        store.insert([new_job(delay_ms=SECOND)])
        clock.advance(ms=2 * SECOND)

        assert store.promote() == 1

    [job] = jobs(engine)
    assert job.state is JobState.PENDING
