"""A lock time-out in a settle-and-claim: the server gives up a settlement, and the worker everything but
that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import psycopg
import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.stores.postgres.engine import PostgresEngine
from tests.urls import url_of

PATIENCE = 120


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(url_of("postgresql", tmp_path), defaults={"retries": 0}) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


def test_a_settlement_that_meets_a_lock_time_out_is_made_later_and_once(app: Forebay) -> None:
    """Some other session holds the row of a lease, and nothing tells of that before: the settle-and-claim
    waits for two seconds, as with users, and fails as a whole. Others are settled and claimed all the
    same."""
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    has_begun, may_end = Event(), Event()
    runs: list[str] = []

    @app.task(name="held")
    def held() -> None:
        runs.append("held")
        has_begun.set()
        assert may_end.wait(PATIENCE)

    @app.task(name="innocent")
    def innocent() -> None:
        runs.append("innocent")

    with app.run_worker(threads=3), closing(psycopg.connect(engine.address.dsn)) as other:
        job = held.enqueue()
        assert has_begun.wait(PATIENCE)
        schema = engine.address.schema
        other.execute(f"select 1 from {schema}.leases where id = %s for update", [job.id])
        may_end.set()
        others = [innocent.enqueue() for _ in range(10)]
        ended = [one.wait(PATIENCE).state for one in others]
        before = job.refresh().state
        other.rollback()
        after = job.wait(PATIENCE)

    assert (set(ended), before) == ({JobState.COMPLETED}, JobState.RUNNING)
    assert (after.state, after.attempt, after.crashes) == (JobState.COMPLETED, 1, 0)
    assert sorted(runs) == ["held", *["innocent"] * 10]
