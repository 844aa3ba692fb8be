"""Connections that are lost, servers that restart, locks that are held: errors in our words, nothing lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from math import inf

import psycopg
import pytest

from forebay.domain.job import QueueName
from forebay.errors import ConfigError, StoreBusy, StoreError, StoreRefused, StoreUnavailable, StoreUnusable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine
from forebay.stores.postgres import connection as module
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.testing.manual_clock import ManualClock
from tests.servers import Postgres
from tests.stores.postgres_support import (
    end_connections,
    hasty_locks,
    make_engine,
    problems,
    program,
    raw,
    server,
)
from tests.stores.sqlite_support import in_thread, probe
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server that a test may stop."""
    started = Postgres(shared_buffers="16MB")
    yield started
    started.close()


def test_a_session_that_was_ended_while_it_was_idle_is_made_again_before_it_is_used(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    reader.now()

    assert end_connections() >= 2

    assert store.insert([new_job()])[0].is_new
    assert reader.counts()[QueueName("default")].pending == 2
    store.close()
    reader.close()


def test_a_lost_connection_is_an_error_of_ours_and_the_next_call_has_a_new_one(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", inf)  # however busy the machine is
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    reader.now()

    assert end_connections() >= 2

    with pytest.raises(StoreUnavailable, match="cannot be reached") as lost:
        store.insert([new_job()])
    with pytest.raises(StoreUnavailable):
        reader.counts()
    assert lost.value.__cause__ is not None
    assert store.insert([new_job()])[0].is_new
    assert reader.counts()[QueueName("default")].pending == 2
    store.close()
    reader.close()


def test_nothing_is_lost_when_the_server_crashes_and_comes_back(own_server: Postgres) -> None:
    engine = PostgresEngine(PostgresAddress(dsn=own_server.url()))
    store = engine.store()
    store.insert([new_job()] * 3)
    [job, _] = claim(store, 2)

    # Closed in order, because these servers do not care for what a crash may take.
    own_server.stop(signal.SIGINT)
    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(WORKER, [complete(job)])
    with pytest.raises(StoreUnavailable):
        engine.store()
    own_server.start()

    assert store.settle_and_claim(WORKER, [complete(job)]).settled == (job.id,)
    assert len(claim(store, 5)) == 1
    assert problems(engine) == ()
    store.close()


def test_a_server_that_is_read_only_is_one_to_come_back_to(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", inf)  # however busy the machine is
    store = engine.store()
    with raw() as connection:
        connection.execute("alter system set default_transaction_read_only = on")
        connection.execute("select pg_reload_conf()")
        try:
            probe(lambda: newcomers_are_read_only("on"), "the server becomes read-only")
            end_connections()
            with pytest.raises(StoreUnavailable):
                store.insert([new_job()])
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.insert([new_job()])
        finally:
            connection.execute("set default_transaction_read_only = off")
            connection.execute("alter system reset default_transaction_read_only")
            connection.execute("select pg_reload_conf()")
            probe(lambda: newcomers_are_read_only("off"), "the server is as it was")

    # No server has ended a connection this time: it was let go of, since another server may be the primary.
    assert store.insert([new_job()])[0].is_new
    store.close()


def newcomers_are_read_only(expected: str) -> bool:
    """A server reads its settings again when it comes to that."""
    with raw() as connection:
        return connection.execute("show default_transaction_read_only").fetchone() == (expected,)


def test_a_lock_that_another_session_holds_is_not_waited_for_without_end(engine: PostgresEngine) -> None:
    store = engine.store()
    store.save_queue(QueueName("default"), {"max_length": 10})
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.queues for update")

        with hasty_locks(store), pytest.raises(StoreBusy, match="lock"):
            store.insert([new_job()])
        connection.execute("rollback")

    assert store.insert([new_job()])[0].is_new
    store.close()


def test_transactions_in_each_others_way_are_made_again(engine: PostgresEngine) -> None:
    schema, store = engine.address.schema, engine.store()
    store.insert([new_job(unique_key="a"), new_job(unique_key="b")])
    [one, two] = claim(store, 2)
    keys = {one.id: "a", two.id: "b"}
    first, second = sorted(keys)
    session = store._connection.open()
    # A busy machine takes its time: the deadlock is found before the lock time-out, and not too early.
    session.execute("set deadlock_timeout = '3s'; set lock_timeout = '60s'", prepare=False)
    with raw() as connection:
        connection.execute("begin")
        # Ours settles the first and waits for us with the second one's key; then we want the first. No call
        # changes a key while its job lives, so it is only locked here.
        connection.execute(f"select 1 from {schema}.job_keys where key = %s for update", [keys[second]])
        answer = in_thread(lambda: store.settle_and_claim(WORKER, [complete(one), complete(two)]))
        with raw() as other:
            waiting = (
                f"select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%{schema}%'"
            )
            while other.execute(waiting).fetchone() is None:
                pass
        connection.execute("set deadlock_timeout = '60s'")
        connection.execute(f"select 1 from {schema}.job_keys where key = %s for update", [keys[first]])
        connection.execute("commit")

    assert sorted(answer().settled) == [first, second]
    session.execute(
        "reset deadlock_timeout; reset lock_timeout", prepare=False
    )  # the session stays for other tests
    assert problems(engine) == ()
    store.close()


@pytest.mark.parametrize(
    ("url", "kind", "message"),
    [
        ("postgresql://unknown-user@127.0.0.1:{port}/postgres", StoreUnusable, "does not know this user"),
        ("postgresql://postgres@127.0.0.1:{port}/nowhere", StoreUnusable, "create it first"),
        ("postgresql://postgres@127.0.0.1:1/postgres", StoreUnavailable, "cannot be reached"),
        ("postgresql://postgres@no-such-host.invalid/postgres", StoreUnavailable, "cannot be reached"),
    ],
)
def test_an_address_that_leads_nowhere_says_so_without_its_password(
    url: str, kind: type[StoreError], message: str
) -> None:
    port = server().url().rsplit(":", 1)[1].split("/")[0]
    engine = open_engine(url.format(port=port).replace("@", ":secret@"))

    with pytest.raises(kind, match=message) as refused:
        engine.store()

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("schema=1st", "schema must be"),
        ("schema=", "schema must be"),
        ("pooler=some", "pooler must be session or transaction"),
        ("notify=1", "notify must be on or off"),
        ("schema=a&schema=b", "given twice"),
        ("color=red", "invalid URI query parameter"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_opened(options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        open_engine(f"postgresql://user:secret@host/jobs?{options}")

    assert "secret" not in str(refused.value)


def test_a_value_that_cannot_be_held_is_refused_and_undone(engine: PostgresEngine) -> None:
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)

    with pytest.raises(StoreRefused):
        store.cancel([job.id], reason="half \ud800")
    with pytest.raises(StoreRefused):
        store.cancel([job.id], reason="nothing \x00")

    assert reader.jobs([job.id])[0].cancel_reason is None  # type: ignore[union-attr]
    store.close()
    reader.close()


FORKED = """
store = engine.store()
store.insert([job()])
child = os.fork()
if child == 0:
    store.insert([job()])
    os._exit(0)
_, status = os.waitpid(child, 0)
store.insert([job()])
reader = engine.reader()
say(status, reader.counts()[DEFAULT].pending)
"""


def test_a_forked_process_has_a_connection_of_its_own_and_leaves_its_parents_alone(
    engine: PostgresEngine,
) -> None:
    with program(FORKED, engine) as forking:
        assert forking.hear() == "0 3"


def test_engines_of_one_store_have_one_place() -> None:
    one = open_engine("postgresql://ann:secret@host/jobs")

    assert one.location == open_engine("postgres://bob@host:5432/jobs?pooler=transaction&notify=off").location
    assert one.location != open_engine("postgresql://ann@host/jobs?schema=other").location
    assert one.location != open_engine("postgresql://ann@host/others").location
    assert "secret" not in one.location


def test_a_session_that_writes_plans_each_of_its_statements_once(engine: PostgresEngine) -> None:
    store = engine.store()
    for key in "abcdefgh":
        store.insert([new_job(unique_key=key)])
        [job] = store.settle_and_claim(WORKER, (), [QueueClaim(QueueName("default"), 1)], 1, known=()).jobs
        store.settle_and_claim(WORKER, [complete(job)], known=())

    anew, once = (
        store._connection.open()
        .execute("select sum(custom_plans), sum(generic_plans) from pg_prepared_statements")
        .fetchall()[0]
    )

    assert anew == 0
    assert once > 0
    store.close()


def test_a_closed_handle_is_not_used(engine: PostgresEngine) -> None:
    store, reader = engine.store(), engine.reader()
    store.close()
    store.close()
    reader.close()
    reader.close()

    with pytest.raises(StoreError, match="closed"):
        store.insert([new_job()])
    with pytest.raises(StoreError, match="closed"):
        reader.now()


def test_a_plain_role_counts_the_sessions_of_others(postgres: object) -> None:
    usage = statements_for("forebay")["server_usage"]
    with psycopg.connect(server().url()), psycopg.connect(server().url()) as connection:
        connection.execute("create role forebay_plain")
        connection.execute("set local role forebay_plain")
        row = connection.execute(usage).fetchone()
        connection.rollback()

    assert row is not None
    assert 2 <= row[0] <= row[1]
