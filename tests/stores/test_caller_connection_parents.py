"""Parents of jobs that are enqueued in their caller's own transaction, on each engine that can join one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import JobId, OnFailure
from forebay.domain.job_states import JobState
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.stores.callers import Caller, by_psycopg, by_sqlite3
from tests.stores.contract.steps import DEFAULT, put, states
from tests.stores.support import WORKER, claim, complete, new_job
from tests.urls import JOINING, lent_url


@pytest.fixture(params=JOINING)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with lent_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
def engine(url: str) -> Engine:
    return open_engine(url)


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    opened = engine.store()
    yield opened
    opened.close()


def calling(url: str) -> AbstractContextManager[Caller]:
    """A program's own transaction on the database of a store."""
    if url.startswith("sqlite"):
        return by_sqlite3(url.removeprefix("sqlite:///"))
    return by_psycopg(url.partition("?")[0])


def enqueued_behind(engine: Engine, url: str, parent: JobId, on_failure: OnFailure) -> JobId:
    """A job that waits for another one, enqueued in its caller's own transaction."""
    with calling(url) as caller:
        job = new_job(depends_on=dependencies_of([parent], on_failure))
        [receipt] = engine.insert_tx(caller.connection, [job])
    return JobId(receipt.id or "")


def found(engine: Engine, *ids: JobId) -> list[JobState | None]:
    reader = engine.reader()
    try:
        assert reader.health().problems == ()
        return states(reader, ids)
    finally:
        reader.close()


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_child_of_a_completed_parent_runs_though_the_parent_is_deleted_at_once(
    engine: Engine, store: Store, url: str, on_failure: OnFailure
) -> None:
    parent = put(store)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])

    child = enqueued_behind(engine, url, parent, on_failure)
    store.delete([parent])
    store.promote()

    assert found(engine, parent, child) == [None, JobState.PENDING]
    assert [job.id for job in claim(store)] == [child]


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_child_runs_though_its_parent_completes_and_is_forgotten_at_once(
    engine: Engine, store: Store, url: str, on_failure: OnFailure
) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": 1})
    parent = put(store)
    child = enqueued_behind(engine, url, parent, on_failure)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    while found(engine, parent) != [None]:
        store.prune()

    store.promote()

    assert found(engine, child) == [JobState.PENDING]


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_child_is_cancelled_if_its_parent_is_deleted_before_it_has_completed(
    engine: Engine, store: Store, url: str, is_dead: bool
) -> None:
    parent = put(store)
    child = enqueued_behind(engine, url, parent, OnFailure.CANCEL)
    if is_dead:
        claim(store)
        store.cancel([parent], force=True)
    store.delete([parent])

    store.promote()

    assert found(engine, child) == [JobState.CANCELLED]
