"""What should never be is found and said, and stops no other job; and what the tables themselves forbid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from forebay.domain.job import JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Failed, Interrupted
from forebay.domain.progress import LogLine, ProgressUpdate
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable, StoreUnusable
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.servers import Postgres
from tests.stores.contract.steps import T0
from tests.stores.postgres_support import make_engine, problems, raw
from tests.stores.sqlite_support import probe
from tests.stores.support import WORKER, claim, new_job

CLIENTS: Final = "select count(*) from pg_stat_activity where backend_type = 'client backend'"


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


def put(store: PostgresStore, **changes: object) -> JobId:
    [receipt] = store.insert([new_job(**changes)])
    assert receipt.id is not None
    return receipt.id


@pytest.mark.parametrize(
    ("spoiled", "expected_problem"),
    [
        ("delete from {s}.ready", "waits nowhere"),
        ("insert into {s}.delayed select id, queue, run_at, seq, 'retrying' from {s}.jobs", "has two states"),
        ("delete from {s}.jobs", "is no job and in ready"),
        ("update {s}.jobs set rank = rank + 1", "does not stand where it says"),
        ("delete from {s}.queues", "is in no known queue"),
        ("update {s}.queue_count_deltas set jobs = 5", "counts 5 pending jobs and has 1"),
        ("delete from {s}.job_keys", "does not hold its unique key"),
        ("update {s}.job_keys set key = 'other'", "is held by no live job"),
    ],
)
def test_rows_that_do_not_agree_are_named(
    store: PostgresStore, engine: PostgresEngine, spoiled: str, expected_problem: str
) -> None:
    put(store, unique_key="k")

    with raw() as connection:
        connection.execute(spoiled.format(s=engine.address.schema))

    assert [problem for problem in problems(engine) if expected_problem in problem]


def test_options_that_cannot_be_read_are_shown_as_such_and_stop_no_worker(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    spoiled = put(store, tags=("a",), metadata={"k": 1})
    sound = put(store, tags=("a",))
    with raw() as connection:
        connection.execute(f"update {engine.address.schema}.jobs set options = '{{' where id = %s", [spoiled])
    reader = engine.reader()

    found = reader.search(JobQuery(tags=("a",)))
    [job] = [job for job in claim(store, 2) if job.id == spoiled]

    assert [each.id for each in found.jobs] == [sound]
    assert job.metadata == {"unreadable": "{"}
    assert store.renew(WORKER, [Lease(job.id, job.attempt)]).refused == ()
    assert store.settle_and_claim(WORKER, [decide(job, Interrupted(started=False), 0.0)]).settled == (
        spoiled,
    )
    [back] = reader.jobs([spoiled])
    assert back is not None
    assert back.metadata == {"unreadable": "{"}
    reader.close()


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize("body", [b"{", b"[]", b'{"text": "\xff"}'])
def test_damaged_progress_and_words_of_workers_are_shown_and_hide_nothing(
    store: PostgresStore, engine: PostgresEngine, body: bytes
) -> None:
    job_id = put(store)
    [job] = claim(store)
    lines = (LogLine(at=1, level="info", text="one"),)
    store.settle_and_claim(WORKER, updates=[ProgressUpdate(lease=Lease(job.id, job.attempt), lines=lines)])
    store.heartbeat(WorkerInfo(id=WORKER, slots=4))
    with raw() as connection:
        connection.execute(f"update {engine.address.schema}.job_progress set body = %s", [body])
        connection.execute(f"update {engine.address.schema}.workers set details = '{{', queues = '7'")
    reader = engine.reader()

    notes = reader.progress(job_id)
    [worker] = reader.workers()
    reader.close()

    assert [(line.level, line.text) for line in notes.lines] == [
        ("unreadable", body.decode(errors="replace"))
    ]
    assert (worker.id, worker.slots, worker.queues) == (WORKER, 0, ())


@pytest.mark.shows("R-STORE-28")
def test_an_attempt_cannot_be_recorded_twice(store: PostgresStore, engine: PostgresEngine) -> None:
    put(store)
    [job] = claim(store)
    store.settle_and_claim(WORKER, [decide(job, Failed(AttemptError(type="Boom"), 0), 0.0)])

    table = f"{engine.address.schema}.failed_attempts"
    again = f"insert into {table} select * from {table}"
    with raw() as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(again)


@pytest.mark.shows("R-BUG-18", "R-STORE-27")
def test_the_order_and_the_due_times_have_their_index_and_none_depends_on_the_time(
    engine: PostgresEngine,
) -> None:
    with raw() as connection:
        rows = connection.execute(
            "select indexdef from pg_indexes where schemaname = %s", [engine.address.schema]
        ).fetchall()

    definitions = [definition for (definition,) in rows]
    assert [each for each in definitions if each.endswith("ready USING btree (queue, age_capped, rank, seq)")]
    assert [each for each in definitions if each.endswith("delayed USING btree (queue, run_at, seq)")]
    assert [each for each in definitions if "now" in each] == []


@pytest.mark.shows("R-STORE-29", "R-LEASE-51", "R-EDGE-30")
def test_all_times_are_those_of_the_server_whatever_this_machine_thinks(
    store: PostgresStore, engine: PostgresEngine, clock: ManualClock
) -> None:
    # The server's clock is in 2027 here, and this machine's is not.
    later = put(store, delay_ms=5_000)
    put(store)

    [job] = claim(store)
    clock.advance(ms=5_000)
    [then] = claim(store)

    assert (job.created_at, job.started_at, job.lease_expires_at) == (T0, T0, T0 + 30_000)
    assert (then.id, then.run_at, then.started_at) == (later, T0 + 5_000, T0 + 5_000)
    clock.advance(ms=25_000)
    assert [swept.id for swept in store.sweep(WORKER)] == [job.id]
    reader = engine.reader()
    timeline = reader.history(job.id)
    assert timeline is not None
    assert [(event.kind, event.occurred_at) for event in timeline.events] == [(EventKind.SWEPT, T0 + 30_000)]
    reader.close()


@pytest.mark.shows("R-EDGE-70")
def test_a_server_without_a_free_connection_says_so() -> None:
    server = Postgres(shared_buffers="16MB", max_connections="5", superuser_reserved_connections="0")
    held: list[psycopg.Connection[Any]] = []
    try:
        engine = PostgresEngine(PostgresAddress(dsn=server.url()))
        engine.store().close()
        held.append(psycopg.connect(server.url(), autocommit=True))
        # Closed by us, and gone for the server a moment later.
        probe(lambda: held[0].execute(CLIENTS).fetchone() == (1,), "the store's connection is still there")
        held += [psycopg.connect(server.url()) for _ in range(4)]

        with pytest.raises(StoreUnavailable, match="too many clients"):
            engine.store()

        held.pop().close()
        open_when_free(engine)
    finally:
        for connection in held:
            connection.close()
        server.close()


def open_when_free(engine: PostgresEngine) -> None:
    """A server takes a moment to let go of a connection."""
    for _ in range(1_000):
        try:
            engine.store().close()
        except StoreUnavailable:
            continue
        return
    raise AssertionError("no connection has become free")


def test_a_schema_that_was_dropped_under_a_handle_is_named(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    with raw() as connection:
        connection.execute(f"alter table {engine.address.schema}.ready rename to gone")
        try:
            with pytest.raises(StoreUnusable, match="forebay migrate"):
                put(store)
        finally:
            connection.execute(f"alter table {engine.address.schema}.gone rename to ready")
