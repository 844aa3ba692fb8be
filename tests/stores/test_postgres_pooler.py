"""Behind a pooler that gives each transaction to any session: nothing is left in a session, all is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forebay.domain.job import Amendment, JobId, QueueName
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Failed
from forebay.domain.query import Counts, JobQuery
from forebay.domain.settlement import decide
from forebay.stores.opening import open_engine
from forebay.stores.postgres import connection as module
from forebay.stores.postgres.connection import Connection, Raw
from forebay.stores.postgres.store import PostgresEngine
from forebay.testing.clock import ManualClock
from tests.stores.postgres_support import make_engine, problems
from tests.stores.support import WORKER, claim, complete, new_job

DEFAULT = QueueName("default")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each session held when its transaction was over; then another one takes its place."""
    seen: list[dict[str, Any]] = []
    real = Connection.transaction

    def transaction(self: Connection, **_: Any) -> Any:
        return swapped(self, real, seen)

    monkeypatch.setattr(module.Connection, "transaction", transaction)
    return seen


def swapped(connection: Connection, real: Any, seen: list[dict[str, Any]]) -> Any:
    @contextmanager
    def whole() -> Iterator[Raw]:
        with real(connection) as raw:
            yield raw
        left = raw.execute(
            b"select (select count(*) from pg_prepared_statements), current_setting('enable_seqscan'),"
            b" current_setting('lock_timeout'), current_setting('forebay_tx.now', true)"
        ).fetchone()
        assert left is not None
        seen.append(dict(zip(("prepared", "seqscan", "lock_timeout", "now"), left, strict=True)))
        connection.drop()

    return whole()


@pytest.fixture
def engine(clock: ManualClock, postgres: object, sessions: list[dict[str, Any]]) -> PostgresEngine:
    return make_engine(clock, pooled=True, notifies=False)


def test_a_session_is_left_as_it_was_found(engine: PostgresEngine, sessions: list[dict[str, Any]]) -> None:
    store, reader = engine.store(), engine.reader()

    store.insert([new_job()] * 3)
    claim(store, 2)
    reader.counts()

    assert len(sessions) >= 3
    for left in sessions:
        assert left["prepared"] == 0
        assert (left["seqscan"], left["lock_timeout"]) == ("on", "0")
        assert not left["now"]
    store.close()
    reader.close()


def test_all_goes_well_with_another_session_for_each_transaction(
    engine: PostgresEngine, sessions: list[dict[str, Any]]
) -> None:
    store, reader = engine.store(), engine.reader()
    ids = [
        JobId(receipt.id or "") for receipt in store.insert([new_job(unique_key=f"k{n}") for n in range(6)])
    ]
    jobs = claim(store, 3)
    failed = decide(jobs[1], Failed(AttemptError(type="Boom"), 60_000), 0.0)
    answer = store.exchange(WORKER, [complete(jobs[0]), failed])

    assert answer.settled == (jobs[0].id, jobs[1].id)
    assert len(store.renew(WORKER, [Lease(jobs[2].id, jobs[2].attempt)]).renewed) == 1
    assert store.cancel([ids[3]])[0].done
    assert store.amend(ids[4], Amendment(priority=5)).done
    assert store.revive([ids[3]])[0].done
    assert store.promote() == 0
    assert len(reader.search(JobQuery()).jobs) == 6
    assert reader.counts()[DEFAULT] == Counts(pending=3, running=1, retrying=1, completed=1)
    assert problems(engine) == ()
    store.close()
    reader.close()


def test_nobody_listens_behind_a_pooler(engine: PostgresEngine) -> None:
    poked: list[int] = []
    wakeups = engine.wakeups()

    wakeups.start(lambda: poked.append(1))
    wakeups.close()

    assert poked == []


def test_a_pooler_is_named_in_the_address() -> None:
    engine = open_engine("postgresql://ann@host/jobs?pooler=transaction")
    heard = open_engine("postgresql://ann@host/jobs?pooler=transaction&notify=on")

    assert isinstance(engine, PostgresEngine)
    assert isinstance(heard, PostgresEngine)
    assert (engine.address.pooled, engine.address.notifies) == (True, False)
    assert (heard.address.pooled, heard.address.notifies) == (True, True)
