"""What is on the disk when a call returns: how commits are written, and what a killed writer leaves."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.job import DEFAULT_QUEUE, JobId
from forebay.domain.worker import WorkerInfo
from forebay.stores.sqlite.connection import Durability
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from tests.stores.sqlite_support import problems, program
from tests.stores.support import WORKER, claim, complete, new_job

NORMAL, FULL = 1, 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def levels(store: SqliteStore, call: Callable[[], object]) -> list[int]:
    """The `synchronous` in force at each commit that a call makes."""
    seen: list[int] = []
    raw = store._connection._raw

    def look(statement: str) -> None:
        if statement.lower() == "commit":
            raw.set_trace_callback(None)
            seen.append(raw.execute("pragma synchronous").fetchone()[0])
            raw.set_trace_callback(look)

    raw.set_trace_callback(look)
    call()
    raw.set_trace_callback(None)
    return seen


@pytest.mark.shows("R-STORE-11")
@pytest.mark.parametrize(
    ("durability", "accepting", "moving"),
    [("default", FULL, NORMAL), ("relaxed", NORMAL, NORMAL), ("full", FULL, FULL)],
)
def test_each_kind_of_durability_commits_as_it_promises(
    path: Path, durability: Durability, accepting: int, moving: int
) -> None:
    store = SqliteEngine(str(path), durability=durability).store()

    inserted = levels(store, lambda: store.insert([new_job()] * 3))
    claimed = levels(store, lambda: claim(store, 1))
    inserted_again = levels(store, lambda: store.insert([new_job()]))
    settled = levels(
        store, lambda: store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 2)])
    )
    beaten = levels(store, lambda: store.heartbeat(WorkerInfo(id=WORKER)))
    store.close()

    assert (inserted, inserted_again) == ([accepting], [accepting])
    assert (claimed, settled, beaten) == ([moving], [moving, moving], [moving])


def test_what_operators_put_back_is_as_durable_as_a_new_job(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    [receipt] = store.insert([new_job()])
    assert receipt.id is not None
    ids: list[JobId] = [receipt.id]
    store.cancel(ids)

    revived = levels(store, lambda: store.revive(ids))
    saved = levels(store, lambda: store.save_queue(claim(store)[0].queue, {"max_length": 10}))
    store.close()

    assert revived == [FULL]
    assert saved == [NORMAL, FULL]


@pytest.mark.shows("R-STORE-11")
def test_the_file_is_in_wal_mode_and_the_wait_for_its_lock_ends_after_30_s(path: Path) -> None:
    store = SqliteEngine(str(path)).store()

    assert store._connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert signature(SqliteEngine).parameters["lock_timeout_ms"].default == 30_000
    store.close()


@pytest.mark.shows("R-STORE-12")
def test_every_call_is_one_transaction_that_is_begun_to_write(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    calls: list[Callable[[], object]] = [
        lambda: store.insert([new_job()] * 100),
        lambda: store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 50)]),
        store.promote,
        store.prune,
        lambda: store.sweep(WORKER),
        lambda: store.heartbeat(WorkerInfo(id=WORKER)),
    ]
    statements: list[str] = []
    store._connection._raw.set_trace_callback(statements.append)

    for call in calls:
        call()
    store._connection._raw.set_trace_callback(None)
    in_transaction = store._connection._raw.in_transaction
    store.close()

    starts = [text.lower() for text in statements if text.lower().startswith(("begin", "commit", "rollback"))]
    assert starts == ["begin immediate", "commit"] * 7  # the second call claims first
    assert not in_transaction


INSERT_FOREVER: Final = """
store = SqliteEngine(path, durability=sys.argv[2]).store()
while True:
    receipts = store.insert([job() for _ in range(10)])
    say(*[receipt.id for receipt in receipts])
"""


@pytest.mark.shows("R-EDGE-22", "R-TEST-07")
@pytest.mark.parametrize("durability", ["default", "relaxed", "full"])
@pytest.mark.shows("R-ENQ-17")
def test_what_an_insert_has_answered_survives_the_death_of_its_writer(path: Path, durability: str) -> None:
    with program(INSERT_FOREVER, path, durability) as writer:
        output = [writer.hear() for _ in range(20)]
        output += writer.kill()

    # The last line may have been cut off by the kill.
    ids = [JobId(word) for line in output for word in line.split() if len(word) == 26]
    engine = SqliteEngine(str(path))
    reader = engine.reader()
    found = reader.jobs(ids)
    counts = reader.counts()
    reader.close()
    assert len(ids) >= 200
    assert all(job is not None for job in found)
    # One insert may have happened whose answer no caller heard; it is there as a whole.
    assert counts[DEFAULT_QUEUE].pending % 10 == 0
    assert problems(engine) == ()


WORK_FOREVER: Final = """
store = SqliteEngine(path).store()
worker = WorkerId("w1")
jobs = ()
while True:
    ends = [decide(one, Completed(b"1"), 0.0) for one in jobs]
    answer = store.settle_and_claim(worker, ends, [QueueClaim(DEFAULT, 7)], 7)
    jobs = answer.jobs
    say("settled", *answer.settled)
    if not jobs and not ends:
        time.sleep(0.01)
"""


@pytest.mark.shows("R-EDGE-08")
def test_a_worker_killed_in_the_middle_leaves_no_job_half_settled(path: Path) -> None:
    engine = SqliteEngine(str(path))
    store = engine.store()
    store.insert([new_job()] * 5_000)

    with program(WORK_FOREVER, path) as worker:
        output = [worker.hear() for _ in range(50)]
        output += worker.kill()

    settled = [JobId(word) for line in output for word in line.split()[1:] if len(word) == 26]
    reader = engine.reader()
    done = [job is not None and job.result == b"1" for job in reader.jobs(settled)]
    counts = reader.counts()[DEFAULT_QUEUE]
    reader.close()
    store.close()
    assert all(done)
    assert counts.completed >= len(settled) >= 300
    assert counts.total == 5_000
    assert counts.running <= 7
    assert problems(engine) == ()
