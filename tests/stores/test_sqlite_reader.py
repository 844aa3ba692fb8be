"""Long lists and long logs: looks that stay short, and housekeeping that delays no call."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from forebay.domain.job import Job, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.settlement import Settlement
from forebay.errors import StoreError
from forebay.stores.contract.store import Store
from forebay.stores.sqlite import reader as reader_module
from forebay.stores.sqlite import store as store_module
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.reader import SqliteReader
from forebay.stores.sqlite.schema_setup_and_check import load_sqlite_statements
from forebay.stores.sqlite.store import SqliteStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import problems, raw
from tests.stores.support import SWEEPER, WORKER, claim, complete, everything, fail, new_job

DAY: Final = 86_400_000
MAIL: Final = QueueName("mail")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def engine(path: Path, clock: ManualClock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(str(path), clock=clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def reader(engine: SqliteEngine) -> Iterator[SqliteReader]:
    reader = engine.reader()
    yield reader
    reader.close()


# Search


def fill(store: Store) -> None:
    """30 jobs by turns in all three tables, of which every tenth is rare."""
    for number in range(30):
        store.insert([new_job(task="rare" if number % 10 == 0 else "t", queue=f"q{number % 3}")])
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 10, QueueName("q1"))])
    store.settle_and_claim(WORKER, [fail_for_good(job) for job in claim(store, 10, QueueName("q2"))])


def fail_for_good(job: Job) -> Settlement:
    return replace(fail(job), state=JobState.DEAD, reason="on purpose")


@pytest.mark.parametrize("rows", [1, 2, 7, 29, 30, 31, 1_000])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_a_look_at_few_rows_goes_on_until_all_jobs_were_seen(
    store: Store, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch, rows: int, limit: int
) -> None:
    fill(store)
    right = [job.id for job in everything(reader)]
    rare = [job.id for job in everything(reader, JobQuery(tasks=("rare",)))]

    monkeypatch.setattr(reader_module, "ROWS_PER_SCAN", rows)

    assert [job.id for job in everything(reader, limit=limit)] == right
    assert [job.id for job in everything(reader, JobQuery(tasks=("rare",)), limit=limit)] == rare
    assert (len(right), len(rare)) == (30, 3)


@pytest.mark.parametrize("states", [(JobState.PENDING,), (JobState.COMPLETED,), (JobState.DEAD,)])
def test_a_look_counts_only_rows_of_the_tables_it_needs(
    store: Store, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch, states: tuple[JobState, ...]
) -> None:
    fill(store)
    monkeypatch.setattr(reader_module, "ROWS_PER_SCAN", 10)

    page = reader.search(JobQuery(states=states))

    assert len(page.jobs) == 10
    assert {job.state for job in page.jobs} == set(states)


def test_a_page_on_which_nothing_fits_still_leads_on(
    store: Store, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    monkeypatch.setattr(reader_module, "ROWS_PER_SCAN", 5)

    page = reader.search(JobQuery(tasks=("rare",)))

    assert page.jobs == ()
    assert page.after is not None
    assert page.scanned_back_to is not None


def test_a_look_reads_no_more_rows_than_it_may(
    store: Store, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        store.insert([new_job()] * 1_000)
    steps: list[int] = []
    reader._connection._raw.set_progress_handler(lambda: steps.append(1), 1_000)

    def cost(rows: int) -> int:
        monkeypatch.setattr(reader_module, "ROWS_PER_SCAN", rows)
        steps.clear()
        reader.search(JobQuery(tasks=("nothing fits",)))
        return len(steps)

    few, many = cost(100), cost(20_000)
    reader._connection._raw.set_progress_handler(None, 0)

    assert many > 20 * max(few, 1)


def look_in_vain(reader: SqliteReader, name: str) -> None:
    """A look that ends as SQLite ends one when the disk cannot be read: rolled back, with an error."""
    error = sqlite3.OperationalError("on purpose")
    error.sqlite_errorname = name
    with reader._open_snapshot():
        reader._connection.execute("rollback")
        raise error


@pytest.mark.parametrize("name", ["SQLITE_IOERR_READ", "SQLITE_CORRUPT"])
def test_an_error_after_which_sqlite_has_rolled_back_is_not_hidden(reader: SqliteReader, name: str) -> None:
    with pytest.raises(StoreError, match=r"look at its disk|restore it from a backup"):
        look_in_vain(reader, name)

    assert reader.counts() == {}


# Housekeeping


def finished(store: Store, clock: ManualClock, n: int) -> None:
    """Jobs that ended so long ago that they may be forgotten."""
    store.save_queue(QueueName("default"), {"keep_finished_ms": DAY})
    store.insert([new_job(payload=b"x" * 1_000)] * n)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, n)])
    clock.advance(ms=2 * DAY)


@pytest.mark.shows("R-STORE-20")
def test_pruning_brings_a_large_log_back_into_the_file(
    store: SqliteStore, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(store, clock, 500)
    log = Path(f"{path}-wal")
    small_enough = store.prune(limit=100), log.stat().st_size
    monkeypatch.setattr(store_module, "LARGE_WAL", 10_000)

    pruned = store.prune(limit=100)

    assert small_enough[0] == pruned == 100
    assert small_enough[1] > 10_000
    assert log.stat().st_size == 0


@pytest.mark.shows("R-STORE-20", "R-STORE-21")
def test_a_reader_in_the_way_of_a_checkpoint_is_no_error(
    store: SqliteStore, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(store, clock, 300)
    monkeypatch.setattr(store_module, "LARGE_WAL", 10_000)

    with raw(path) as other:
        other.execute("begin")
        other.execute("select count(*) from forebay_finished").fetchone()
        while_it_reads = store.prune(limit=100)
        (still_seen,) = other.execute("select count(*) from forebay_finished").fetchone()
        other.execute("rollback")
    after = store.prune(limit=100)

    assert (while_it_reads, still_seen, after) == (100, 300, 100)
    assert Path(f"{path}-wal").stat().st_size == 0


@pytest.mark.shows("R-EDGE-85")
def test_between_the_batches_of_a_prune_others_write(
    engine: SqliteEngine, store: SqliteStore, clock: ManualClock
) -> None:
    finished(store, clock, 250)
    other = SqliteEngine(store._connection.path, clock=clock, lock_timeout_ms=0).store()

    pruned: list[int] = []
    claimed: list[Job] = []
    while not pruned or pruned[-1]:
        pruned.append(store.prune(limit=100))
        other.insert([new_job()])
        claimed += claim(other, 1)
    other.close()

    assert pruned == [100, 100, 50, 0]
    assert len(claimed) == 4


@pytest.mark.shows("R-STORE-20")
def test_the_room_of_pruned_jobs_is_used_again(store: SqliteStore, path: Path, clock: ManualClock) -> None:
    sizes = []
    for _ in range(4):
        finished(store, clock, 300)
        store.prune()
        store._connection.checkpoint()
        sizes.append(path.stat().st_size)

    assert max(sizes) < 1.2 * sizes[0]


def test_a_sweep_looks_for_jobs_of_dropped_queues_only_while_there_are_some(store: SqliteStore) -> None:
    store.insert([new_job(queue="mail")])
    store.save_queue(MAIL, state=QueueState.DROPPED)
    statements: list[str] = []
    store._connection._raw.set_trace_callback(statements.append)
    names = ("dropped_queue_jobs", "dropped_queue_delayed")
    # A traced statement has values in the place of parameters.
    starts = tuple(load_sqlite_statements()[name].partition(":")[0] for name in names)

    def looks() -> int:
        statements.clear()
        store.sweep(SWEEPER)
        return sum(statement.startswith(starts) for statement in statements)

    first, second = looks(), looks()
    store._connection._raw.set_trace_callback(None)

    assert (first > 0, second) == (True, 0)
