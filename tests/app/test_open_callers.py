"""Jobs that wait in a buffer or an outbox, of which one needs a key that an open transaction holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from forebay import Forebay
from forebay.app import busy_retry
from forebay.app import outage_buffer as buffer_module
from forebay.app.outage_buffer import Buffer
from forebay.app.task import ConfiguredTask, Task
from forebay.domain.job import JobId
from forebay.errors import JobNotFound, StoreBusy
from forebay.integrations.outbox.relay import RelayResult, outbox_stats, relay_batch
from forebay.integrations.outbox.table import Outbox
from forebay.payload.blob_stores import FolderBlobs
from forebay.stores.postgres.engine import PostgresEngine
from forebay.testing.fault_injection import Fault, FaultyStore, PlannedFaults, inject_faults
from tests.urls import url_of
from tests.worker.support import eventually

DEADLINE = 120.0


@pytest.fixture
def faults() -> PlannedFaults:
    return PlannedFaults()


@pytest.fixture
def app(tmp_path: Path, faults: PlannedFaults, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forebay]:
    monkeypatch.setattr(buffer_module, "MAX_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(busy_retry, "BUSY_RETRY_SECONDS", 0.05)
    with Forebay(url_of("postgresql", tmp_path)) as app:
        app.client.switch_store(
            inject_faults(app.engine, lambda store: FaultyStore(store, faults)), app.clock
        )
        app.counts()
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def work(app: Forebay) -> Task[[], None]:
    return app.task(name="work")(lambda: None)


@pytest.fixture
def keyed(work: Task[[], None]) -> ConfiguredTask[[], None]:
    return work.using(unique_key="daily")


@pytest.fixture
def caller(app: Forebay, keyed: ConfiguredTask[[], None]) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has taken the key, and is open."""
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    with closing(psycopg.connect(engine.address.dsn)) as connection:
        engine.insert_tx(connection, [keyed.job()])
        yield connection


def is_stored(app: Forebay, job_id: JobId) -> bool:
    try:
        app.job(job_id).refresh()
    except JobNotFound:
        return False
    return True


# A buffer


def test_a_buffer_raises_at_once_for_a_held_key_and_keeps_nothing(
    app: Forebay, work: Task[[], None], keyed: ConfiguredTask[[], None], caller: psycopg.Connection[Any]
) -> None:
    with Buffer(app) as buffer:
        with pytest.raises(StoreBusy, match="unique key 'daily'"):
            buffer.enqueue(keyed.job())
        other = buffer.enqueue(work.job())

        assert (len(buffer), is_stored(app, other.id)) == (0, True)


def test_of_the_jobs_in_a_buffer_only_the_one_whose_key_is_held_waits(
    app: Forebay,
    work: Task[[], None],
    keyed: ConfiguredTask[[], None],
    caller: psycopg.Connection[Any],
    faults: PlannedFaults,
) -> None:
    faults.is_away = True
    with Buffer(app) as buffer:
        first, busy, last = (buffer.enqueue(task.job()) for task in (work, keyed, work))
        assert len(buffer) == 3
        faults.is_away = False
        eventually(lambda: len(buffer) == 1, DEADLINE)
        meanwhile = [is_stored(app, job.id) for job in (first, busy, last)]
        later = buffer.enqueue(work.job())
        eventually(lambda: is_stored(app, later.id), DEADLINE)
        caller.rollback()
        eventually(lambda: len(buffer) == 0, DEADLINE)

    assert meanwhile == [True, False, True]
    assert is_stored(app, busy.id)


def test_a_buffer_that_is_closed_counts_the_job_whose_key_is_held_as_lost(
    app: Forebay,
    work: Task[[], None],
    keyed: ConfiguredTask[[], None],
    caller: psycopg.Connection[Any],
    faults: PlannedFaults,
) -> None:
    faults.is_away = True
    buffer = Buffer(app)
    other, busy = buffer.enqueue(work.job()), buffer.enqueue(keyed.job())
    faults.is_away = False
    lost = buffer.close(DEADLINE)

    assert (lost, is_stored(app, other.id), is_stored(app, busy.id)) == (1, True, False)


# An outbox


class Shop:
    """A database with an outbox, and the relay that carries its jobs to the queue."""

    def __init__(self, app: Forebay, folder: Path) -> None:
        self._app = app
        self._engine = create_engine(f"sqlite:///{folder}/shop.db")
        self._outbox = Outbox(app)
        self._outbox.create(self._engine)

    def write(self, *tasks: Task[[], None] | ConfiguredTask[[], None]) -> list[JobId]:
        with Session(self._engine) as session, session.begin():
            return [job.id for job in self._outbox.enqueue(session, [task.job() for task in tasks])]

    def carry(self) -> RelayResult:
        return relay_batch(self._outbox.table, self._engine, self._app.client)

    def rows(self) -> int:
        return outbox_stats(self._outbox.table, self._engine).rows

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture
def shop(app: Forebay, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(app, tmp_path)) as shop:
        yield shop


def test_of_the_jobs_in_an_outbox_only_the_one_whose_key_is_held_waits(
    app: Forebay,
    work: Task[[], None],
    keyed: ConfiguredTask[[], None],
    caller: psycopg.Connection[Any],
    shop: Shop,
) -> None:
    first, busy, last = shop.write(work, keyed, work)
    carried = shop.carry()
    meanwhile = [is_stored(app, job_id) for job_id in (first, busy, last)]
    later = shop.write(work)
    shop.carry()
    rows = shop.rows()
    caller.rollback()
    eventually(lambda: shop.carry().stored == 1, DEADLINE)

    assert (carried.stored, carried.refused, rows) == (2, 1, 1)
    assert meanwhile == [True, False, True]
    assert (shop.rows(), is_stored(app, busy), is_stored(app, later[0])) == (0, True, True)


def test_a_lock_time_out_of_a_whole_carry_does_not_keep_the_rows(
    app: Forebay, work: Task[[], None], shop: Shop, faults: PlannedFaults
) -> None:
    """A key behind the first sixteen of a transaction is only noticed by its lock, for the whole call."""
    jobs = shop.write(work, work, work)
    faults.plan("insert", Fault.BUSY)
    carried = shop.carry()

    assert (carried.stored, carried.refused, shop.rows()) == (3, 0, 0)
    assert all(is_stored(app, job_id) for job_id in jobs)


def test_an_enqueue_that_is_refused_as_busy_leaves_no_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_retry, "BUSY_RETRY_SECONDS", 0.05)
    folder = tmp_path / "blobs"
    folder.mkdir()
    url = url_of("postgresql", tmp_path)
    with Forebay(url, blob_store=FolderBlobs(folder)) as app:

        @app.task
        def report(text: str) -> None: ...

        report.enqueue("a")
        with psycopg.connect(url.partition("?")[0]) as caller:
            app.client.enqueue_tx(caller, [report.using(unique_key="daily").job("b")])
            with pytest.raises(StoreBusy):
                report.using(unique_key="daily").enqueue("x" * 500_000)
            caller.rollback()

    assert [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 100_000] == []
