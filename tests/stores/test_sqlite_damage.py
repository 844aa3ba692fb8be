"""Damaged files and damaged texts: an error or a report, never a wrong answer and never a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from forebay.domain.job import JobId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Interrupted
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.retry_policy import DEFAULT_POLICY
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnusable
from forebay.stores.contract.reader import Reader
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import problems, raw
from tests.stores.support import WORKER, claim, complete, everything, fail, new_job

JOBS: Final = 2_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def page_of(path: Path, table: str, share: float) -> tuple[int, int]:
    """The size of a page, and the number of one in the middle of a table or index."""
    with raw(path) as connection:
        (size,) = connection.execute("pragma page_size").fetchone()
        try:
            rows = connection.execute(
                "select pageno from dbstat where name = ? and pagetype = 'leaf' order by pageno", (table,)
            ).fetchall()
            pages = [number for (number,) in rows]
        except Exception:  # this SQLite was built without dbstat
            pages = list(range(10, connection.execute("pragma page_count").fetchone()[0]))
    return size, pages[int(len(pages) * share)]


def fill(path: Path, clock: ManualClock) -> list[JobId]:
    store = SqliteEngine(str(path), clock=clock).store()
    receipts = store.insert([new_job(payload=b"%06d" % number * 20) for number in range(JOBS)])
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 500)])
    store.close()
    return [receipt.id for receipt in receipts if receipt.id is not None]


def answers(reader: Reader, ids: list[JobId]) -> list[bytes | None]:
    """The payloads of all jobs."""
    return [None if job is None else job.payload for job in reader.jobs(ids)]


def either(look: Callable[[], Sequence[object]]) -> Sequence[object]:
    """What is seen, or what the error says."""
    try:
        return look()
    except StoreUnusable as error:
        return [str(error)]


DAMAGES: Final[dict[str, bytes]] = {
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "noise": Random(7).randbytes(4096),
}


@pytest.mark.parametrize("content", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("table", ["forebay_jobs", "forebay_finished", "forebay_jobs_ready"])
def test_a_damaged_page_is_an_error_or_a_problem_and_never_a_wrong_answer(
    path: Path, clock: ManualClock, table: str, content: bytes
) -> None:
    ids = fill(path, clock)
    size, number = page_of(path, table, 0.5)
    overwrite(path, size * (number - 1), content[:size])

    reader = SqliteEngine(str(path), clock=clock).reader()
    found = either(lambda: answers(reader, ids))
    health = either(lambda: list(reader.health().problems))
    reader.close()

    right = [b"%06d" % number * 20 for number in range(JOBS)]
    assert found == right or "is damaged: restore it from a backup" in str(found)
    assert "is damaged" in str(health)


@pytest.mark.parametrize("content", DAMAGES.values(), ids=DAMAGES)
def test_a_claim_from_a_damaged_page_says_so_and_changes_nothing(
    path: Path, clock: ManualClock, content: bytes
) -> None:
    fill(path, clock)
    size, number = page_of(path, "forebay_jobs", 0.0)
    overwrite(path, size * (number - 1), content[:size])
    store = SqliteEngine(str(path), clock=clock).store()

    with pytest.raises(StoreUnusable, match="is damaged: restore it from a backup") as refused:
        claim(store, JOBS)
    store.close()

    assert str(path) in str(refused.value)
    with raw(path) as connection:
        (running,) = connection.execute(
            "select coalesce(sum(jobs), 0) from forebay_queue_counts where state = 'running'"
        ).fetchone()
    assert running == 0


def look_at_all(path: Path, ids: list[JobId]) -> list[bytes | None]:
    reader = SqliteEngine(str(path)).reader()
    try:
        return answers(reader, ids)
    finally:
        reader.close()


def test_a_file_cut_in_the_middle_is_an_error_or_a_problem(path: Path, clock: ManualClock) -> None:
    ids = fill(path, clock)
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)

    with pytest.raises(StoreUnusable, match="is damaged: restore it from a backup"):
        look_at_all(path, ids)


# Damaged texts


def spoil(path: Path, job_id: JobId, column: str, text: str | None, table: str = "forebay_jobs") -> None:
    with raw(path) as connection:
        changed = connection.execute(f"update {table} set {column} = ? where id = ?", (text, job_id))
        assert changed.rowcount == 1


BROKEN: Final = ["", "{", "not json", "[1, 2", '{"tags": 7}', '["half', "null", "[]", "{}x", '"text"', "\x00"]


@pytest.mark.shows("R-SER-20", "R-RETRY-42", "R-EDGE-86")
@pytest.mark.parametrize("text", BROKEN)
def test_damaged_options_are_shown_and_stop_no_worker(path: Path, clock: ManualClock, text: str) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    first, second = (one.id for one in store.insert([new_job(tags=("a",)), new_job(tags=("b",))]))
    assert first is not None
    spoil(path, first, "options", text)

    listed = everything(reader)
    [shown] = reader.jobs([first])
    claimed = claim(store, 5)
    answer = store.settle_and_claim(WORKER, [fail(claimed[0], after_ms=0), complete(claimed[1])])
    history = reader.history(first)
    health = reader.health().problems
    store.close()
    reader.close()

    assert {job.id for job in listed} == {first, second}
    assert shown is not None
    assert shown.metadata == {"unreadable": text}
    assert shown.policy == DEFAULT_POLICY
    assert [job.id for job in claimed] == [first, second]
    assert len(answer.settled) == 2
    assert history is not None
    assert health == ()


SEARCHES: Final[dict[str, Any]] = {
    "tags": ("b",),
    "metadata": {"k": 1},
    "idempotency_key": "o",
    "correlation_id": "c",
    "parent_id": JobId("p"),
}


@pytest.mark.shows("R-SER-20", "R-EDGE-86")
@pytest.mark.parametrize("text", BROKEN)
def test_a_search_by_options_goes_past_damaged_ones(path: Path, clock: ManualClock, text: str) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    first, second = (
        one.id for one in store.insert([new_job(tags=("a",)), new_job(**SEARCHES, idempotency_ttl_ms=1)])
    )
    assert first is not None
    spoil(path, first, "options", text)

    found = {name: everything(reader, JobQuery(**{name: value})) for name, value in SEARCHES.items()}
    store.close()
    reader.close()

    assert [[job.id for job in jobs] for jobs in found.values()] == [[second]] * len(SEARCHES)


@pytest.mark.parametrize("text", [text for text in BROKEN if not text.startswith('{"')])
def test_a_job_with_damaged_options_can_be_handed_back_unstarted(
    path: Path, clock: ManualClock, text: str
) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)
    spoil(path, job.id, "options", text)

    answer = store.settle_and_claim(WORKER, [decide(job, Interrupted(started=False), 0.0)])
    [shown] = reader.jobs([job.id])
    store.close()
    reader.close()

    assert answer.settled == (job.id,)
    assert shown is not None
    assert (shown.state, shown.metadata) == (JobState.PENDING, {"unreadable": text})


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize("text", BROKEN)
def test_a_lease_with_damaged_options_is_renewed(path: Path, clock: ManualClock, text: str) -> None:
    store = SqliteEngine(str(path), clock=clock).store()
    store.insert([new_job(lease_ms=5_000, unique_key="k")])
    [job] = claim(store)
    spoil(path, job.id, "options", text)

    answer = store.renew(WORKER, [Lease(job.id, job.attempt)])
    store.close()

    assert answer.refused == ()
    assert problems(SqliteEngine(str(path), clock=clock)) == ()


@pytest.mark.shows("R-SER-20", "R-RETRY-42", "R-EDGE-86")
@pytest.mark.parametrize("text", [one for one in BROKEN if one != "[]"])
def test_a_damaged_list_of_errors_is_shown_and_kept_while_the_job_goes_on(
    path: Path, clock: ManualClock, text: str
) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)
    store.settle_and_claim(WORKER, [fail(job, after_ms=0)])
    spoil(path, job.id, "errors", text)

    [before] = reader.jobs([job.id])
    [again] = claim(store)
    store.settle_and_claim(WORKER, [fail(again, "a second time", after_ms=0)])
    [after] = reader.jobs([job.id])
    listed = everything(reader)
    store.close()
    reader.close()

    assert before is not None
    assert [(error.type, error.message) for error in before.errors] == [("Unreadable", text)]
    assert after is not None
    assert [error.type for error in after.errors] == ["Unreadable", "Boom"]
    assert [one.state for one in listed] == [JobState.RETRYING]


@pytest.mark.shows("R-SER-20", "R-RETRY-42")
@pytest.mark.parametrize("text", BROKEN)
def test_a_damaged_error_of_an_attempt_does_not_hide_the_history(
    path: Path, clock: ManualClock, text: str
) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)
    store.settle_and_claim(WORKER, [fail(job)])
    with raw(path) as connection:
        connection.execute("update forebay_failed_attempts set error = ?", (text,))

    history = reader.history(job.id)
    store.close()
    reader.close()

    assert history is not None
    assert [(one.attempt, one.error.type) for one in history.attempts] == [(1, "Unreadable")]


@pytest.mark.shows("R-SER-20")
@pytest.mark.parametrize("text", sorted({*BROKEN} - {'{"tags": 7}'}))  # which says nothing about a note
def test_damaged_progress_are_shown_as_they_are_and_hide_nothing(
    path: Path, clock: ManualClock, text: str
) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)
    note = ProgressUpdate(
        lease=Lease(job.id, job.attempt),
        progress=Progress(done=1),
        lines=(LogLine(at=1, level="info", text="one"),),
        steps=(StepResult(name="fetch", result=b"1"),),
    )
    store.settle_and_claim(WORKER, updates=[note])
    with raw(path) as connection:
        connection.execute("update forebay_job_progress set body = ? where kind <> 'step'", (text,))

    history = reader.history(job.id)
    store.close()
    reader.close()

    assert history is not None
    assert history.progress.progress is not None
    assert history.progress.progress.message == text
    assert [(line.level, line.text) for line in history.progress.lines] == [("unreadable", text)]
    assert [step.result for step in history.progress.steps] == [b"1"]


@pytest.mark.parametrize("text", BROKEN)
def test_damage_in_what_a_worker_said_does_not_hide_it(path: Path, clock: ManualClock, text: str) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.heartbeat(WorkerInfo(id=WORKER, slots=4))
    with raw(path) as connection:
        connection.execute("update forebay_workers set details = ?, queues = '7'", (text,))

    [worker] = reader.workers()
    store.close()
    reader.close()

    assert (worker.id, worker.slots, worker.queues) == (WORKER, 0, ())


# Orders that lack a job


def without_entry(path: Path, index: str, write: Callable[[], object]) -> None:
    """Do something while SQLite takes an index for one of other rows, so that it writes no entry there."""
    with raw(path) as connection:
        (sql,) = connection.execute("select sql from sqlite_master where name = ?", (index,)).fetchone()
    for text, step in ((sql.replace("where state = '", "where state = 'no "), write), (sql, None)):
        with raw(path) as connection:
            (version,) = connection.execute("pragma schema_version").fetchone()
            connection.execute("pragma writable_schema = on")
            connection.execute("update sqlite_master set sql = ? where name = ?", (text, index))
            connection.execute(f"pragma schema_version = {version + 1:d}")
        if step is not None:
            step()


@pytest.mark.shows("R-SWEEP-24", "R-SWEEP-23")
@pytest.mark.parametrize(
    ("index", "spec", "problem"),
    [
        ("forebay_jobs_ready", {}, "is pending and in no order"),
        ("forebay_jobs_delayed", {"delay_ms": 3_600_000}, "waits for its time and is in no order"),
    ],
)
def test_a_job_that_its_order_lacks_is_found(
    path: Path, clock: ManualClock, index: str, spec: dict[str, int], problem: str
) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store = engine.store()
    store.insert([new_job(**spec)])
    store.promote()

    without_entry(path, index, lambda: store.insert([new_job(id="lost", **spec)]))
    reader = engine.reader()
    found = reader.health().problems
    reader.close()
    store.close()

    assert f"lost {problem}" in found
    assert len(found) == 1


@pytest.mark.shows("R-SWEEP-24")
@pytest.mark.parametrize("change", ["worker = null", "lease_expires_at = null", "started_at = null"])
def test_a_job_that_runs_without_a_lease_is_found(path: Path, clock: ManualClock, change: str) -> None:
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    [job] = claim(store)
    with raw(path) as connection:
        connection.execute(f"update forebay_jobs set {change}")

    found = reader.health().problems
    store.close()
    reader.close()

    assert found == (f"{job.id} is running without a lease",)
