"""Plain jobs are accepted in one statement, and only while their queue is what the handle thinks it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from math import inf
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.rank import compute_rank
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import DuplicateJob, InvalidJob, QueueClosed, QueueFull, StoreBusy, StoreUnavailable
from forebay.stores.postgres import insert, insert_fast
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.prepared_statement import PreparedStatement, execute_pipelined
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import end_connections, make_engine, problems, raw
from tests.stores.sqlite_support import in_thread, probe
from tests.stores.support import WORKER, claim, complete, counting_ids, new_job

DEFAULT = QueueName("default")
FIRST = JobId("first")
HOLD = OnFailure.HOLD


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock, new_id=counting_ids())


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    """A handle that knows its queue."""
    opened = engine.store()
    opened.make_queues([DEFAULT])
    opened.insert([new_job(id=FIRST)])
    yield opened
    opened.close()


@pytest.fixture
def other(engine: PostgresEngine) -> Iterator[PostgresStore]:
    opened = engine.store()
    yield opened
    opened.close()


def takes_the_slow_path(store: PostgresStore, jobs: list[NewJob], monkeypatch: pytest.MonkeyPatch) -> bool:
    ways: list[str] = []
    # Not that of the connection: where the commit takes long, a word to those who listen may follow it.
    write = store._write

    def noted(work: Any, **how: Any) -> Any:
        ways.append("long")
        return write(work, **how)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write", noted)
        store.insert(jobs)
    return bool(ways)


def records(engine: PostgresEngine, ids: list[JobId | None]) -> list[Job]:
    reader = engine.reader()
    try:
        return [job for job in reader.jobs([one or JobId("") for one in ids]) if job is not None]
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("jobs", "is_slow"),
    [
        ([new_job()], False),
        ([new_job(priority=7, tags=("a",), expires_at=4_000_000_000_000)], False),
        ([new_job(payload=b"1"), new_job(payload=b"2", metadata={"k": 1})], False),
        ([new_job(), new_job(task="other")], False),
        (
            [
                new_job(),
                new_job(depends_on=dependencies_of([1])),
                new_job(depends_on=dependencies_of([1, 2])),
            ],
            False,
        ),
        ([new_job(), new_job(depends_on=dependencies_of([FIRST]))], True),
        (
            [
                new_job(),
                new_job(depends_on=dependencies_of([1])),
                new_job(depends_on=dependencies_of([2], HOLD)),
            ],
            True,
        ),
        ([new_job(delay_ms=5), new_job(depends_on=dependencies_of([1]))], True),
        ([new_job(), new_job(priority=1)], True),
        ([new_job(id="mine")], True),
        ([new_job(unique_key="k")], True),
        ([new_job(idempotency_key="k")], True),
        ([new_job(delay_ms=5)], True),
        ([new_job(run_at=5)], True),
        ([new_job(deadline_at=4_000_000_000_000)], True),
        ([new_job(queue=QueueName("unknown"))], True),
    ],
)
def test_only_jobs_with_nothing_special_take_the_fast_path(
    store: PostgresStore, jobs: list[NewJob], is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert takes_the_slow_path(store, jobs, monkeypatch) is is_slow


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": -3, "expires_at": 4_000_000_000_000, "payload": b"\x00\xff"},
        {"tags": ("a", "b"), "metadata": {"k": [1]}, "policy": RetryPolicy(max_retries=9)},
        {"correlation_id": "c", "parent_id": "p", "timeout_ms": None, "lease_ms": 5_000},
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_both_ways_write_the_same(engine: PostgresEngine, fields: dict[str, Any], jobs: int) -> None:
    store = engine.store()
    store.make_queues([DEFAULT])

    long = store.insert([new_job(**fields)] * jobs)
    short = store.insert([new_job(**fields)] * jobs)

    written = records(engine, [receipt.id for receipt in [*long, *short]])
    seqs = [job.seq for job in written]
    assert seqs == sorted(set(seqs))
    assert [replace(job, id=JobId(""), seq=0) for job in written] == [
        replace(written[0], id=JobId(""), seq=0)
    ] * (2 * jobs)
    assert [(receipt.is_new, receipt.state) for receipt in short] == [(True, JobState.PENDING)] * jobs
    assert claimed_in_order(store, 2 * jobs) == [receipt.id for receipt in [*long, *short]]
    assert problems(engine) == ()
    store.close()


GRAPH = [
    new_job(task="split", tags=("a",)),
    new_job(depends_on=dependencies_of([1], HOLD), expires_at=None, payload=b"1"),
    new_job(depends_on=dependencies_of([2], HOLD), metadata={"k": 1}),
    new_job(task="join", depends_on=dependencies_of([2, 1, 3], HOLD)),
    new_job(task="aside"),
]
NARROW = {
    "jobs": "queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, age_capped,"
    " rescore_at, expires_at, payload, has_dependants",
    "ready": "queue, age_capped, rank, expires_at",
    "blocked": "queue, run_at, unmet, expires_at",
}


def written_rows(engine: PostgresEngine, ids: list[JobId | None]) -> list[Any]:
    """All that was written for these jobs, with their places among them instead of ids."""
    schema = engine.address.schema
    with raw() as observer:
        rows: list[Any] = [
            observer.execute(
                f"select array_position(%(ids)s::text[], id), {columns} from {schema}.{table}"
                " where id = any(%(ids)s) order by seq",
                {"ids": ids},
            ).fetchall()
            for table, columns in NARROW.items()
        ]
        edges = observer.execute(
            "select array_position(%(ids)s::text[], child_id), position,"
            " array_position(%(ids)s::text[], parent_id), on_failure, state"
            f" from {schema}.dependencies where child_id = any(%(ids)s) order by child_id, position",
            {"ids": ids},
        )
        return [*rows, edges.fetchall()]


def test_both_ways_write_the_same_graph(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(insert_fast, "graph_of", lambda _: None)
        long = store.insert(GRAPH)
    short = store.insert(GRAPH)

    both = [written_rows(engine, [receipt.id for receipt in receipts]) for receipts in (long, short)]
    assert both[0] == both[1]
    assert [len(rows) for rows in both[0]] == [5, 2, 3, 5]
    assert [receipt.state for receipt in short] == [receipt.state for receipt in long]
    assert problems(engine) == ()
    tasks = [job.task for _ in range(3) for job in run_all(store)]
    assert len(tasks) == 1 + 2 * len(GRAPH)
    assert tasks[-2:] == ["join", "join"]
    assert problems(engine) == ()


def run_all(store: PostgresStore) -> list[Job]:
    """Claim what can be, and complete it."""
    jobs = claim(store, 99)
    store.settle_and_claim(WORKER, [complete(job) for job in jobs])
    return jobs


def test_a_graph_for_a_queue_that_another_session_has_closed_leaves_nothing_behind(
    engine: PostgresEngine, store: PostgresStore, other: PostgresStore
) -> None:
    other.save_queue(DEFAULT, state=QueueState.DRAINING)

    with pytest.raises(QueueClosed):
        store.insert(GRAPH)

    with raw() as observer:
        for table in ("jobs", "ready", "blocked", "dependencies"):
            rows = observer.execute(f"select 1 from {engine.address.schema}.{table}").fetchall()
            assert len(rows) == (table in {"jobs", "ready"})  # the one that was there before
    assert problems(engine) == ()


def test_a_parent_before_the_first_job_is_refused_as_ever(store: PostgresStore) -> None:
    with pytest.raises(InvalidJob, match="2 places before it"):
        store.insert([new_job(), new_job(depends_on=dependencies_of([2]))])


def test_more_edges_than_a_statement_takes_are_written_all_the_same(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert_fast, "GROUP_BYTES", 50)

    assert takes_the_slow_path(store, [new_job(), new_job(depends_on=dependencies_of([1]))], monkeypatch)
    assert problems(engine) == ()


def claimed_in_order(store: PostgresStore, jobs: int) -> list[JobId]:
    return [job.id for job in claim(store, jobs)]


def test_the_order_of_many_is_the_order_of_their_numbers(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    receipts = store.insert([new_job(payload=b"%d" % number) for number in range(300)])

    written = records(engine, [receipt.id for receipt in receipts])

    assert [job.payload for job in sorted(written, key=lambda job: job.seq)] == [
        b"%d" % n for n in range(300)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"aging_ms": 1_000},
        {"mode": "strict"},
        {"default_priority": 9},
        {"max_aging_bonus": 0.0},  # every job is capped from the start
    ],
)
def test_settings_that_another_session_has_changed_hold_at_once(
    engine: PostgresEngine, store: PostgresStore, other: PostgresStore, changes: dict[str, Any]
) -> None:
    changed = other.save_queue(DEFAULT, changes).settings

    [receipt] = store.insert([new_job(priority=None if "default_priority" in changes else 3)])

    [job] = records(engine, [receipt.id])
    where = compute_rank(
        changed.scoring,
        ready_at=job.ready_at,
        priority=9 if "default_priority" in changes else 3,
        failures=0,
        deadline_at=None,
        now=job.created_at,
    )
    assert (job.rank, job.age_capped) == (where.rank, where.age_capped)


@pytest.mark.parametrize("state", [QueueState.DRAINING, QueueState.DROPPED])
def test_a_queue_that_another_session_has_closed_takes_no_jobs(
    engine: PostgresEngine, store: PostgresStore, other: PostgresStore, state: QueueState
) -> None:
    other.save_queue(DEFAULT, state=state)

    with pytest.raises(QueueClosed):
        store.insert([new_job()])
    other.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert store.insert([new_job()])[0].is_new
    assert problems(engine) == ()


@pytest.mark.parametrize(
    ("changes", "job", "error"),
    [
        ({"max_length": 1}, new_job(), QueueFull),
        ({"max_priority": 5}, new_job(priority=6), InvalidJob),
    ],
)
def test_limits_that_another_session_has_set_hold_at_once(
    store: PostgresStore, other: PostgresStore, changes: dict[str, Any], job: NewJob, error: type[Exception]
) -> None:
    store.insert([new_job(priority=3)])
    other.save_queue(DEFAULT, changes)

    with pytest.raises(error):
        store.insert([job])


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_what_is_too_much_for_a_statement_is_written_by_several_and_still_whole(
    engine: PostgresEngine, store: PostgresStore, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "GROUP_BYTES", 5)
    monkeypatch.setattr(insert_fast, "GROUP_BYTES", 5)
    jobs = [new_job(payload=b"%d" % number) for number in range(10, 20)]
    jobs += [new_job(unique_key=key) for key in keys]

    receipts = store.insert(jobs)
    with pytest.raises(DuplicateJob):
        store.insert([*jobs[:9], new_job(id="first")])

    written = records(engine, [receipt.id for receipt in receipts])
    assert [job.payload for job in sorted(written, key=lambda job: job.seq)] == [job.payload for job in jobs]
    assert len(claim(store, 99)) == 1 + len(jobs)
    assert problems(engine) == ()


def test_an_id_that_is_made_twice_is_an_error_and_no_job_is_overwritten(
    engine: PostgresEngine, clock: ManualClock
) -> None:
    twice = PostgresEngine(engine.address, new_id=lambda: JobId("same")).store()
    twice.make_queues([DEFAULT])
    twice.insert([new_job(id="first")])

    twice.insert([new_job(payload=b"kept")])
    with pytest.raises(StoreBusy):  # each try makes other ids, but for this maker
        twice.insert([new_job(payload=b"lost")])

    assert [job.payload for job in records(engine, [JobId("same")])] == [b"kept"]
    assert problems(engine) == ()
    twice.close()


def test_statements_that_were_let_go_of_are_prepared_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert([new_job()])
    with pytest.raises(DuplicateJob):
        store.insert([new_job(id="first")])  # undone, and with it goes what was prepared
    store._connection.open().execute("deallocate all")

    assert not takes_the_slow_path(store, [new_job()], monkeypatch)


def test_of_those_that_go_together_one_may_have_been_prepared_again_before_the_others(
    store: PostgresStore,
) -> None:
    session = store._connection.open()
    one, other = (
        PreparedStatement("one", b"select 1::bigint"),
        PreparedStatement("other", b"select 2::bigint"),
    )
    execute_pipelined(session, [one, other], {})
    session.execute("deallocate all")  # as the driver does after a rollback
    assert one(session, {}) == 1

    assert execute_pipelined(session, [one, other], {}) == [[(1,)], [(2,)]]


def test_a_connection_that_is_lost_is_told_and_made_again(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.postgres.connection.IDLE_SECONDS", inf)  # however busy the machine is
    store.insert([new_job()])
    end_connections()

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.insert([new_job()])

    assert store.insert([new_job()])[0].is_new
    assert problems(engine) == ()


def test_a_server_that_is_not_there_is_an_error_of_ours(store: PostgresStore) -> None:
    store.insert([new_job()])
    store._connection.drop()
    store._connection.address = replace(store._connection.address, dsn="postgresql://127.0.0.1:1/postgres")

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.insert([new_job()])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where the tests were started in the background, and SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_insert_can_be_interrupted_and_the_handle_is_as_good_as_before(
    engine: PostgresEngine, store: PostgresStore, interruptible: None
) -> None:
    # Not to give up before it is interrupted, however busy the machine is.
    store._connection.open().execute("set lock_timeout = '60s'")
    store.insert([new_job()])
    with raw() as connection, raw() as observer:
        connection.execute("begin")
        connection.execute(f"lock table {engine.address.schema}.jobs in exclusive mode")

        def interrupt() -> None:
            probe(lambda: waits_for_a_lock(observer), "the insert waits")
            os.kill(os.getpid(), signal.SIGINT)

        interrupted = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.insert([new_job()])
        interrupted()
        connection.execute("rollback")

    assert store.insert([new_job()])[0].is_new
    assert len(claim(store, 9)) == 3
    assert problems(engine) == ()


def test_an_insert_that_is_interrupted_before_a_caller_waits_for_it_does_not_happen_later(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not to give up before it is interrupted, however busy the machine is.
    store._connection.open().execute("set lock_timeout = '60s'")
    store.insert([new_job()])
    with raw() as connection, raw() as observer:
        connection.execute("begin")
        connection.execute(f"lock table {engine.address.schema}.jobs in exclusive mode")

        def interrupted(*_: object) -> None:
            probe(lambda: waits_for_a_lock(observer), "the insert waits")
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("forebay.stores.postgres.prepared_statement.generators.execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.insert([new_job()])
        connection.execute("rollback")

    assert store.insert([new_job()])[0].is_new
    assert len(claim(store, 9)) == 3
    assert problems(engine) == ()


def waits_for_a_lock(observer: psycopg.Connection[Any]) -> bool:
    rows = observer.execute(
        "select 1 from pg_stat_activity where application_name like 'forebay%' and wait_event_type = 'Lock'"
    )
    return rows.fetchone() is not None
