"""What a user finds who opens the file with SQLite's own tools."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.retry_policy import RetryPolicy
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from tests.stores.support import claim, complete, fail, new_job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteEngine(str(tmp_path / "jobs.db")).store()
    yield store
    store.close()


@pytest.fixture
def database(store: SqliteStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    yield database
    database.close()


@pytest.mark.shows("R-STORE-15")
def test_each_kind_of_thing_has_a_table(database: sqlite3.Connection) -> None:
    names = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}

    kinds = (
        "jobs",
        "finished",
        "dead",
        "failed_attempts",
        "events",
        "job_keys",
        "queues",
        "queue_counts",
        "job_archive",
        "workers",
        "job_progress",
        "worker_commands",
    )
    assert names >= {f"forebay_{kind}" for kind in kinds}


@pytest.mark.shows("R-JOB-17", "R-STORE-18")
def test_times_are_whole_milliseconds_and_states_are_words(
    store: SqliteStore, database: sqlite3.Connection
) -> None:
    store.insert([new_job(), new_job(delay_ms=1_000)])
    claim(store)

    rows = database.execute(
        "select distinct typeof(created_at), typeof(updated_at), typeof(ready_at), typeof(run_at),"
        " typeof(state) from forebay_jobs"
    ).fetchall()
    (lease,) = database.execute(
        "select typeof(lease_expires_at) from forebay_jobs where state = 'running'"
    ).fetchone()
    assert rows == [("integer", "integer", "integer", "integer", "text")]
    assert lease == "integer"


@pytest.mark.shows("R-JOB-44")
@pytest.mark.parametrize("table", ["jobs", "finished", "dead"])
def test_a_state_that_does_not_exist_cannot_be_written(
    store: SqliteStore, database: sqlite3.Connection, table: str
) -> None:
    store.insert([new_job(), new_job(), new_job(policy=RetryPolicy(max_retries=0))])
    _, ended, failed = claim(store, 3)
    store.settle_and_claim(WorkerId(ended.worker or ""), [complete(ended), fail(failed)])

    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        database.execute(f"update forebay_{table} set state = 'lost in space'")

    assert database.execute(f"select count(*) from forebay_{table}").fetchone() == (1,)


@pytest.mark.shows("R-LEASE-30", "R-RETRY-09")
def test_a_lease_that_has_ended_is_off_the_row_and_its_holder_stays(
    store: SqliteStore, database: sqlite3.Connection
) -> None:
    store.insert([new_job()])
    [job] = claim(store)

    store.settle_and_claim(WorkerId(job.worker or ""), [fail(job)])

    row = database.execute("select state, lease_expires_at, worker from forebay_jobs").fetchone()
    assert row == ("retrying", None, job.worker)


@pytest.mark.shows("R-HIST-06")
def test_a_bad_attempt_has_a_row_of_its_own_and_a_good_one_is_on_the_job(
    store: SqliteStore, database: sqlite3.Connection
) -> None:
    store.insert([new_job(), new_job()])
    bad, good = claim(store, 2)

    store.settle_and_claim(WorkerId(bad.worker or ""), [fail(bad), complete(good)])

    assert database.execute("select job_id, attempt from forebay_failed_attempts").fetchall() == [(bad.id, 1)]
    assert database.execute("select id, attempt from forebay_finished").fetchall() == [(good.id, 1)]
