"""Wake-ups over LISTEN and NOTIFY: with the commit, across lost connections, and never needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from forebay.domain.job import QueueName
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import StoreError
from forebay.stores.postgres import wakeups
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import end_connections, make_engine, raw, server
from tests.stores.sqlite_support import DEADLINE, in_thread, probe
from tests.stores.support import WORKER, claim, new_job
from tests.threads import started_threads


class WakeupCount:
    """Counts wake-ups, and waits for them."""

    def __init__(self) -> None:
        self.count = 0
        self._came = threading.Semaphore(0)

    def __call__(self) -> None:
        self.count += 1
        self._came.release()

    def wait(self, seconds: float = DEADLINE) -> bool:
        return self._came.acquire(timeout=seconds)


@contextmanager
def listening(engine: PostgresEngine) -> Iterator[WakeupCount]:
    """A listener that is there: the wake-up that says so has been heard."""
    notified = WakeupCount()
    listener = engine.wakeups()
    listener.start(notified)
    try:
        assert notified.wait()
        yield notified
    finally:
        listener.close()


# A commit that fails.
REFUSING = """
create or replace function {schema}.refuse() returns trigger language plpgsql
  as $$ begin raise exception 'no'; end $$;
create constraint trigger refuse after insert on {schema}.jobs
  deferrable initially deferred for each row execute function {schema}.refuse();
"""


@contextmanager
def heard(engine: PostgresEngine) -> Iterator[Callable[[], int]]:
    """Another listener; tells how many notifications have come since it was last asked."""
    with raw() as connection:
        connection.execute(f'listen "{engine.address.channel}"')

        def notifications() -> int:
            connection.execute("select 1")  # what was committed before has arrived with the answer
            return len(list(connection.notifies(timeout=0)))

        yield notifications


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


def test_a_new_job_notifies_every_listener(engine: PostgresEngine) -> None:
    store = engine.store()
    with listening(engine) as one, listening(engine) as other:
        store.insert([new_job()])

        assert one.wait()
        assert other.wait()
    store.close()


def test_whatever_is_worth_a_look_notifies(engine: PostgresEngine) -> None:
    store = engine.store()
    store.insert([new_job()] * 2)
    [job, other] = claim(store, 2)
    store.heartbeat(WorkerInfo(id=WORKER))
    with listening(engine) as notified:
        store.settle_and_claim(WORKER, [decide(job, Interrupted(), 0.0)])
        assert notified.wait()
        store.cancel([other.id])
        assert notified.wait()
        store.save_queue(QueueName("default"), {"weight": 2})
        assert notified.wait()
        store.send_command(CommandKind.PAUSE)
        assert notified.wait()
    store.close()


@pytest.mark.shows("R-STORE-30")
def test_a_wakeup_comes_with_the_commit_and_not_before(engine: PostgresEngine) -> None:
    store, other = engine.store(), engine.store()
    store.save_queue(QueueName("default"), {"max_length": 10})
    with listening(engine) as notified, raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.queues for update")
        inserted = in_thread(lambda: store.insert([new_job()]))
        # The last look of a worker before it goes to sleep.
        assert claim(other) == []
        before = notified.count
        connection.execute("commit")
        inserted()

        assert notified.wait()
        assert before == 1  # the one that said it is listening
        assert len(claim(other)) == 1
    store.close()
    other.close()


def test_a_listener_whose_connection_was_lost_notifies_when_it_is_back(engine: PostgresEngine) -> None:
    with listening(engine) as notified:
        assert end_connections() >= 1

        assert notified.wait()
        store = engine.store()
        store.insert([new_job()])
        assert notified.wait()
        store.close()


def test_what_comes_while_a_listener_connects_is_heard(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "CHECK_SECONDS", 0.0)

    with listening(engine) as notified, raw() as connection:
        for _ in range(10):
            connection.execute("select pg_notify(%s, '')", [engine.address.channel])

            assert notified.wait()


def test_a_listener_comes_when_the_server_does(engine: PostgresEngine) -> None:
    notified = WakeupCount()
    listener = PostgresEngine(PostgresAddress(dsn="postgresql://postgres@127.0.0.1:1/postgres")).wakeups()

    listener.start(notified)
    listener.close()

    assert notified.count == 0


def test_closing_twice_or_before_the_start_is_fine(engine: PostgresEngine) -> None:
    notified = WakeupCount()
    never = engine.wakeups()
    never.close()
    never.close()
    never.start(notified)

    with listening(engine):
        pass

    assert notified.count == 0
    listener = engine.wakeups()
    listener.start(notified)
    listener.start(notified)
    listener.close()
    listener.close()


def test_a_wakeup_may_close_its_own_listener(engine: PostgresEngine) -> None:
    listener = engine.wakeups()
    closed = threading.Event()

    def close() -> None:
        listener.close()
        closed.set()

    listener.start(close)

    assert closed.wait(DEADLINE)
    probe(lambda: not listening_threads(), "the listener still listens")


def test_stores_of_one_database_do_not_wake_each_other(engine: PostgresEngine, clock: ManualClock) -> None:
    other = make_engine(clock)
    store, others = engine.store(), other.store()
    with listening(engine) as notified, listening(other) as others_notified:
        others.insert([new_job()])
        assert others_notified.wait()
        store.insert([new_job()])
        assert notified.wait()

        assert notified.count == 2  # that it listens, and its own job
    store.close()
    others.close()


# ------------------------------------------------------------------ held back


def test_of_many_new_jobs_in_a_row_only_the_first_is_told(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 1_000)
    monkeypatch.setattr(wakeups, "COVERED_SECONDS", 1_000)
    store = engine.store()
    with heard(engine) as notifications:
        for _ in range(20):
            store.insert([new_job()])
        assert notifications() == 1

        store.save_queue(QueueName("default"), {"weight": 2})
        store.save_queue(QueueName("default"), {"weight": 3})
        assert notifications() == 2  # what is not about new jobs is always told
    store.close()


def test_each_producer_tells(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 1_000)
    stores = [engine.store() for _ in range(3)]
    with heard(engine) as notifications:
        for store in stores:
            store.insert([new_job()])
        assert notifications() == 3
    for store in stores:
        store.close()


def test_a_commit_that_comes_when_no_reader_looks_any_more_is_told_after_all(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 1_000)
    monkeypatch.setattr(wakeups, "COVERED_SECONDS", 0)
    store = engine.store()
    with heard(engine) as notifications:
        store.insert([new_job()])
        store.insert([new_job()])
        assert notifications() == 2
    store.close()


def test_a_transaction_that_was_undone_has_told_nothing(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 1_000)
    store = engine.store()
    store.insert([new_job()])
    with raw() as connection:
        # Refused at the very end, when the word was on its way.
        connection.execute(REFUSING.format(schema=engine.address.schema))
    other = engine.store()
    with heard(engine) as notifications:
        with pytest.raises(StoreError):
            other.insert([new_job()])
        with raw() as connection:
            connection.execute(f"drop trigger refuse on {engine.address.schema}.jobs")
        other.insert([new_job()])
        assert notifications() == 1
    store.close()
    other.close()


@pytest.mark.shows("R-STORE-30")
def test_in_a_transaction_of_the_caller_it_is_always_told(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 1_000)
    engine.store().close()
    with heard(engine) as notifications, psycopg.connect(server().url()) as connection:
        for _ in range(2):
            engine.insert_tx(connection, [new_job()])
            connection.commit()
        assert notifications() == 2


@pytest.mark.shows("R-STORE-30")
def test_where_notify_is_off_nothing_is_sent(clock: ManualClock, postgres: object) -> None:
    quiet = make_engine(clock, notifies=False)
    loud = PostgresEngine(PostgresAddress(dsn=server().url(), schema=quiet.address.schema))
    silent, talking = quiet.store(), loud.store()
    with listening(loud) as notified:
        silent.insert([new_job()])
        talking.insert([new_job()])
        assert notified.wait()

        assert notified.count == 2
    silent.close()
    talking.close()


def test_a_listener_leaves_no_connection_and_no_thread_behind(engine: PostgresEngine) -> None:
    with listening(engine):
        pass

    probe(lambda: listeners() == 0, "the server still has a listener")
    probe(lambda: not listening_threads(), "the listener still listens")


def listening_threads() -> list[threading.Thread]:
    return started_threads("forebay-listen")


def listeners() -> int:
    with raw() as connection:
        [(count,)] = connection.execute(
            "select count(*) from pg_stat_activity where application_name = 'forebay listener'"
        ).fetchall()
    return int(count)
