"""Blobs and their store: whose they are, when they are away or gone, and that none is left."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, Final

import psycopg
import pytest

from forebay import Forebay, RetryPolicy
from forebay.domain.job import DAY_MS, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.domain.ulid import encode_ulid
from forebay.errors import BlobGone, CorruptPayload, DuplicateJob, PayloadError, StoreUnavailable
from forebay.payload.blob_stores import PAGE, FolderBlobs
from forebay.payload.codec import decode_call, encode_call, encode_result, frame, unreadable_marker
from forebay.payload.engine_wrapper import wrap_engine
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from tests.app.watched_engine import WatchedEngine
from tests.urls import SHARED, lent_url
from tests.worker.support import eventually

pytestmark = pytest.mark.shows("R-SER-18")

LARGE: Final = "x" * 300_000
DEADLINE: Final = 120.0


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with lent_url(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "blobs"
    made.mkdir()
    return made


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def echoing(url: str, blobs: Any, **options: Any) -> Forebay:
    app = Forebay(url, blob_store=blobs)

    @app.task(name="echo", **options)
    def echo(text: str) -> int:
        return len(text)

    return app


def left_over(store: str, count: int = 1) -> list[str]:
    """Names of blobs that were written eight days ago for jobs that are not there."""
    written = encode_ulid((Forebay("memory://").clock.now_ms() - 8 * DAY_MS) << 80)
    return [f"{store}/absent{number}/payload.{written}.{'0' * 64}" for number in range(count)]


def test_a_store_leaves_the_blobs_of_others_alone(url: str, tmp_path: Path, folder: Path) -> None:
    blobs = FolderBlobs(folder)
    with (
        Forebay(url, blob_store=blobs) as app,
        Forebay(f"sqlite:///{tmp_path}/other.db", blob_store=blobs) as other,
    ):
        for one in (app, other):
            one.enqueue("echo", [LARGE])
        in_use = kept(folder)
        for own in folder.iterdir():
            [name] = left_over(own.name)
            blobs.put(name, b"x")

        app.client.write(lambda store: store.prune())

        assert len(kept(folder)) == 3
        other.client.write(lambda store: store.prune())
        assert kept(folder) == in_use


def test_jobs_are_held_while_the_folder_is_away(url: str, folder: Path) -> None:
    away = folder.with_name("away")
    with echoing(url, folder) as app:
        job = app.enqueue("echo", [LARGE])
        folder.rename(away)
        with app.run_worker(threads=1):
            assert app.enqueue("echo", ["x"]).result(timeout=DEADLINE) == 1
            whole = app.enqueue("echo", [LARGE])  # stays in the store
            assert whole.result(timeout=DEADLINE) == len(LARGE)
        [held] = app.client.read(lambda reader: reader.lanes())
        assert (held.lane, held.jobs) == ("requires:blobs", 1)
        assert not folder.exists()

    away.rename(folder)
    with echoing(url, folder) as app, app.run_worker(threads=1):
        found = app.job(job.id)
        assert found.result(timeout=DEADLINE) == len(LARGE)
        assert found.refresh().failures == 0


def test_a_blob_that_is_gone_is_looked_for_again(folder: Path) -> None:
    tries = RetryPolicy(max_retries=100, base_ms=500, floor_ms=500, ceiling_ms=500)
    with echoing("memory://", folder, retry_policy=tries) as app:
        job = app.enqueue("echo", [LARGE])
        [file] = kept(folder)
        file.rename(folder / "elsewhere")
        with app.run_worker(threads=1):
            eventually(lambda: job.refresh().failures)
            (folder / "elsewhere").rename(file)
            assert job.result(timeout=DEADLINE) == len(LARGE)

        assert [error.type for error in job.refresh().errors][:1] == ["BlobGone"]


def test_a_transaction_of_the_callers_does_not_wait_for_itself(tmp_path: Path, folder: Path) -> None:
    job = NewJob(task="echo", payload=encode_call([LARGE], {}))
    with Forebay(f"sqlite:///{tmp_path}/jobs.db?lock_timeout=1", blob_store=folder) as app:
        app.enqueue("echo", ["x"])
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        counts = []
        for _ in range(2):
            connection.execute("begin immediate")
            app.enqueue_tx(connection, [job])
            connection.execute("commit")
            counts.append(len(kept(folder)))
            app.client.write(lambda store: store.prune())  # as a worker's maintenance does
        connection.close()

    assert counts == [0, 1]


class Torn(FolderBlobs):
    """A blob store of a user's own, which raises what it likes."""

    def get(self, name: str) -> bytes | None:
        raise ValueError(f"{name} is torn")


def test_a_blob_is_not_written_on_the_event_loop_of_a_caller(tmp_path: Path, folder: Path) -> None:
    class Watching(FolderBlobs):
        def put(self, *args: Any) -> None:
            threads.append(current_thread())
            super().put(*args)

    threads: list[Thread] = []

    async def enqueue(app: Forebay) -> JobId:
        dsn = app.engine.address.dsn  # type: ignore[attr-defined]  # of this engine
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            job = NewJob(task="echo", payload=encode_call([LARGE], {}))
            [handle] = await app.client.enqueue_tx_async(connection, [job])
            return handle.id

    with lent_url("postgresql", tmp_path) as url, echoing(url, Watching(folder)) as app:
        app.enqueue("echo", [LARGE])  # so that the store has its id
        written = len(threads)
        job_id = asyncio.run(enqueue(app))
        job = app.client.job(job_id)

    assert job is not None
    assert decode_call(job.payload) == ((LARGE,), {})
    assert len(threads) == written + 1
    assert threads[-1] is not current_thread()


def test_whatever_a_place_raises_the_others_of_the_claim_run(url: str, folder: Path) -> None:
    with echoing(url, Torn(folder)) as app:
        large, small = app.enqueue("echo", [LARGE]), app.enqueue("echo", ["x"])
        with app.run_worker(threads=2):
            assert small.result(timeout=DEADLINE) == 1
        assert large.refresh().state is JobState.PENDING
        assert large.refresh().failures == 0


def test_a_job_that_is_deleted_takes_its_own_blobs_and_no_others(url: str, folder: Path) -> None:
    with Forebay(url, blob_store=folder) as app:
        job = app.enqueue("echo", [LARGE])
        [file] = kept(folder)
        # As if a client had enqueued another one under its id meanwhile.
        new = file.with_name(f"payload.{encode_ulid(1)}.{'0' * 64}")
        new.write_bytes(b"x")

        app.client.write(lambda store: store.delete([job.id]))

    assert kept(folder) == [new]


def test_a_result_is_written_once_however_often_the_store_is_away(url: str, folder: Path) -> None:
    outages = iter([True, True, False])

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if name == "settle_and_claim" and args[1] and next(outages):
            raise StoreUnavailable("away")

    engine = wrap_engine(WatchedEngine(open_engine(url), trouble).contract, blobs=folder)
    store, worker = engine.store(), WorkerId("w")
    store.insert([NewJob(task="echo", payload=encode_call(["x"], {}))])
    [job] = store.settle_and_claim(worker, claims=[QueueClaim(QueueName("default"), 1)], room=1).jobs
    outcome = Completed(encode_result(LARGE))
    for roll in (0.1, 0.2):
        with pytest.raises(StoreUnavailable):
            store.settle_and_claim(worker, [decide(job, outcome, roll)])

    assert store.settle_and_claim(worker, [decide(job, outcome, 0.3)]).settled == (job.id,)

    store.close()
    assert len(kept(folder)) == 1


def test_a_job_that_is_not_accepted_leaves_no_blob(url: str, folder: Path) -> None:
    with Forebay(url, blob_store=folder) as app:
        first = app.enqueue("echo", [LARGE], unique_key="one")
        [file] = kept(folder)
        assert app.enqueue("echo", [LARGE], unique_key="one").id == first.id
        taken = NewJob(task="echo", payload=encode_call([LARGE], {}), id=first.id)
        with pytest.raises(DuplicateJob):
            app.client.write(lambda store: store.insert([taken]))
        [receipt] = app.client.write(lambda store: store.insert([taken], atomic=False))
        assert isinstance(receipt.error, DuplicateJob)

    assert kept(folder) == [file]


class Pages(FolderBlobs):
    """A place that answers with short pages."""

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        return super().names(store, after=after, limit=2)


def test_the_collector_goes_on_while_it_finds_some(url: str, folder: Path) -> None:
    blobs = Pages(folder)
    with Forebay(url, blob_store=blobs) as app:
        app.enqueue("echo", [LARGE])
        [file] = kept(folder)
        for name in left_over(file.parents[1].name, 5):
            blobs.put(name, b"x")

        app.client.write(lambda store: store.prune())

    assert kept(folder) == [file]


def engine_of(folder: Path) -> Engine:
    return wrap_engine(open_engine("memory://"), blobs=folder)


REFERENCE: Final = f"{encode_ulid(1)}/a/payload.{encode_ulid(1)}.{'0' * 64}"


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        (frame(b"", blob=REFERENCE), PayloadError, "the blob of another job"),
        (unreadable_marker(CorruptPayload("was changed")), CorruptPayload, "was changed"),
        (unreadable_marker(BlobGone("is gone")), BlobGone, "is gone"),
    ],
)
def test_what_could_not_be_read_is_not_copied_to_another_job(
    folder: Path, payload: bytes, error: type[Exception], message: str
) -> None:
    store = engine_of(folder).store()

    with pytest.raises(error, match=message):
        store.insert([NewJob(task="echo", payload=payload)])
    store.close()
    with pytest.raises(error, match=message), Forebay("memory://", blob_store=folder) as app:
        app.enqueue(NewJob(task="echo", payload=payload))


def test_a_job_may_bring_a_reference_to_its_own_blob(folder: Path) -> None:
    engine = engine_of(folder)
    store = engine.store()

    [receipt] = store.insert([NewJob(task="echo", payload=frame(b"", blob=REFERENCE), id=JobId("a"))])

    reader = engine.reader()
    [job] = reader.jobs([JobId("a")])
    assert receipt.is_new
    assert job is not None
    with pytest.raises(PayloadError):
        decode_call(job.payload)
    for handle in (reader, store):
        handle.close()
