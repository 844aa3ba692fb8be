"""A move of a store whose payloads are offloaded to blobs: both stores name them with one id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.errors import IllegalTransition
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.payload import blob_garbage_collection, engine_wrapper, store_move_records
from forebay.payload.blob_stores import FolderBlobs
from forebay.payload.codec import decode_call
from forebay.payload.store_move_records import KIND
from forebay.stores.factory import open_engine
from tests.urls import SHARED, url_of

LARGE: Final = "x" * 300_000


class Stores:
    """An old store, a new one, and a folder of blobs that both use."""

    def __init__(self, stack: ExitStack, old: str, new: str, blobs: Path) -> None:
        self.blobs = FolderBlobs(blobs)
        self.folder = blobs
        self.old = stack.enter_context(Forebay(old, blob_store=blobs))
        self.new = stack.enter_context(Forebay(new, blob_store=blobs))
        self.places = [self._place(stack, url) for url in (old, new)]

    def _place(self, stack: ExitStack, url: str) -> MoveEndpoint:
        engine = open_engine(url)  # without blobs, as the command opens it
        store, reader = engine.store(), engine.reader()
        stack.callback(store.close)
        stack.callback(reader.close)
        return MoveEndpoint(url, engine.location, store, reader)

    def mover(self, **stores: Any) -> StoreMover:
        old, new = self.places
        if "new" in stores:
            new = new._replace(store=stores["new"])
        return StoreMover(old, new, SystemClock(), settle=lambda: None, blobs=self.blobs)

    def names(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def collect(self, app: Forebay) -> None:
        """Do what each worker and server with blobs does once a minute. One pass ends with the last page, and
        the next one begins with the first."""
        for _ in range(2):
            app.client.write(lambda store: payload_store(store).blob_collector.collect(self.blobs))


def payload_store(store: Any) -> engine_wrapper.PayloadStore:
    assert isinstance(store, engine_wrapper.PayloadStore)
    return store


@pytest.fixture(params=SHARED)
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stores]:
    monkeypatch.setattr(blob_garbage_collection, "ORPHAN_AGE_MS", -60_000)  # as if all blobs were a week old
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    with ExitStack() as stack:
        yield Stores(stack, f"sqlite:///{tmp_path}/old.db", url_of(request.param, tmp_path), blobs)


class Meanwhile:
    """The new store as the mover sees it; something happens before the first job is copied."""

    def __init__(self, store: object, happens: Any) -> None:
        self._store = store
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        if name == "import_jobs":
            self._happens()
        return getattr(self._store, name)


def test_workers_of_the_new_store_leave_the_blobs_of_jobs_that_are_not_copied_yet(stores: Stores) -> None:
    jobs = [stores.old.enqueue("echo", [LARGE], delay=3_600) for _ in range(3)]
    before = stores.names()
    new = Meanwhile(stores.places[1].store, lambda: stores.collect(stores.new))

    mover = stores.mover(new=new)
    mover.move()

    assert stores.names() == before
    assert mover.compare().agrees
    for job in jobs:
        assert decode_call(stores.new.job(job.id).refresh().payload) == ((LARGE,), {})


def test_blobs_of_no_job_are_removed_again_a_week_after_the_move(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stores.old.enqueue("echo", [LARGE])
    mover = stores.mover()
    mover.move()
    stores.places[1].store.delete([job.id])  # a raw handle: the blob stays
    mover.finish(mover.compare())

    stores.collect(stores.new)
    assert len(stores.names()) == 1
    monkeypatch.setattr(store_move_records, "AFTER_MOVE_MS", -60_000)
    stores.collect(stores.new)
    assert stores.names() == []


def test_the_old_store_leaves_the_blobs_of_the_new_one(stores: Stores) -> None:
    """A worker or a server that still runs on it, before and after the end of the move."""
    first = stores.old.enqueue("echo", [LARGE])
    mover = stores.mover()
    mover.move()
    stores.new.enqueue("echo", [LARGE])
    both = stores.names()
    assert len({path.parents[1] for path in both}) == 1  # one id for both stores

    stores.collect(stores.old)
    assert stores.names() == both
    stores.old.client.write(lambda store: store.delete([first.id]))
    assert stores.names() == both
    mover.finish(mover.compare())
    stores.collect(stores.old)
    assert stores.names() == both


def test_a_job_whose_blob_is_gone_does_not_agree_and_nothing_is_taken_out(stores: Stores) -> None:
    lost, whole = (stores.old.enqueue("echo", [LARGE]) for _ in range(2))
    stores.old.enqueue("echo", ["small"])
    mover = stores.mover()
    mover.move()
    for path in stores.names():
        if path.parent.name == lost.id:
            path.unlink()

    compared = mover.compare()

    assert (compared.agrees, compared.without_blob, compared.blobs_unchecked) == (False, (lost.id,), 0)
    with pytest.raises(IllegalTransition, match="the blobs of 1 job are missing"):
        mover.finish(compared)
    stores.places[1].store.delete([JobId(lost.id)])
    assert mover.compare().agrees
    assert whole.id


def test_a_comparison_without_a_place_for_blobs_says_how_many_it_has_not_looked_for(stores: Stores) -> None:
    stores.old.enqueue("echo", [LARGE])
    old, new = stores.places
    mover = StoreMover(old, new, SystemClock(), settle=lambda: None)
    mover.move()

    compared = mover.compare()

    assert (compared.agrees, compared.blobs_unchecked) == (True, 1)


def test_a_mover_that_is_killed_at_the_end_leaves_no_move_that_never_ends(stores: Stores) -> None:
    stores.old.enqueue("echo", [LARGE])
    mover = stores.mover()
    mover.move()

    class Dying:
        def __getattr__(self, name: str) -> Any:
            if name == "save_document":
                raise InterruptedError
            return getattr(stores.places[0].store, name)

    old = stores.places[0]._replace(store=Dying())
    mover = StoreMover(old, stores.places[1], SystemClock(), settle=lambda: None)
    with pytest.raises(InterruptedError):
        mover.finish(mover.compare())
    again = stores.mover()
    again.move()
    again.finish(again.compare())

    documents = stores.places[1].reader.documents(KIND)
    assert ["is_finished" in document.body for document in documents] == [True]
