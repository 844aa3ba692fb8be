"""Behind a pooler that gives each transaction to any session: nothing is left in a session, and an address
that does not say so is told. The whole contract runs through one too, as the engine `postgresql-pooled`."""

from __future__ import annotations

import msgspec
import pytest

from forebay.errors import StoreUnusable
from forebay.stores.factory import open_engine
from forebay.stores.postgres.engine import PostgresEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.pooler import Pooler
from tests.stores.postgres_support import make_engine, raw, server
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock, pooled=True, notifies=False)


LEFT = """
select (select count(*) from pg_prepared_statements), current_setting('enable_seqscan'),
       current_setting('lock_timeout'), current_setting('statement_timeout'),
       (select count(*) from pg_listening_channels()), (select count(*) from pg_locks
        where locktype = 'advisory'), (select count(*) from pg_class where relpersistence = 't')
"""


def test_a_session_is_left_as_it_was_found(engine: PostgresEngine) -> None:
    # One session and nothing that makes it new, so that what is left in it can be seen.
    pooler = Pooler(server().port, sessions=1, reset=b"select 1")
    pooled = PostgresEngine(msgspec.structs.replace(engine.address, dsn=pooler.url))
    store, reader = pooled.store(), pooled.reader()
    store.migrate()
    store.insert([new_job(unique_key="k")] * 3)
    [job] = claim(store, 2)
    store.settle_and_claim(WORKER, [complete(job)])
    store.prune()
    reader.counts()
    with raw(pooler.url) as connection:
        left = connection.execute(LEFT).fetchone()
    store.close()
    reader.close()
    pooler.close()

    assert pooler.faults == []
    assert left == (0, "on", "0", "0", 0, 0, 0)


@pytest.mark.parametrize("ignores_options", [False, True])
def test_an_unnamed_pooler_is_named_by_the_error(engine: PostgresEngine, ignores_options: bool) -> None:
    pooler = Pooler(server().port, sessions=2, ignores_options=ignores_options)
    unnamed = PostgresEngine(msgspec.structs.replace(engine.address, dsn=pooler.url, pooled=False))

    with pytest.raises(StoreUnusable, match="add `pooler=transaction`"):
        use(unnamed)
    pooler.close()


def use(engine: PostgresEngine) -> None:
    store = engine.store()
    try:
        for _ in range(3):
            store.insert([new_job()])
    finally:
        store.close()


def test_no_listener_runs_behind_a_pooler(engine: PostgresEngine) -> None:
    notified: list[int] = []
    wakeups = engine.wakeups()

    wakeups.start(lambda: notified.append(1))
    wakeups.close()

    assert notified == []


def test_a_pooler_is_named_in_the_address() -> None:
    engine = open_engine("postgresql://ann@host/jobs?pooler=transaction")
    heard = open_engine("postgresql://ann@host/jobs?pooler=transaction&notify=on")

    assert isinstance(engine, PostgresEngine)
    assert isinstance(heard, PostgresEngine)
    assert (engine.address.pooled, engine.address.notifies) == (True, False)
    assert (heard.address.pooled, heard.address.notifies) == (True, True)
