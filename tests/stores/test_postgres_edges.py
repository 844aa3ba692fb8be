"""Edges while somebody else has their jobs in hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import Discarded
from forebay.domain.settlement import decide
from forebay.domain.workflow import needs_of
from forebay.stores.postgres.store import PostgresEngine, PostgresStore
from forebay.testing.clock import ManualClock
from tests.stores.contract.steps import BOOM
from tests.stores.postgres_support import make_engine, problems, raw, wait_for_a_lock
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


def put(store: PostgresStore, *jobs: NewJob) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert(jobs)]


def states(engine: PostgresEngine, *ids: JobId) -> list[JobState | None]:
    reader = engine.reader()
    found = [None if job is None else job.state for job in reader.jobs(ids)]
    reader.close()
    return found


@pytest.mark.shows("R-DEP-11")
def test_a_parent_that_changes_while_its_child_is_inserted_knows_of_it(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    [parent] = put(store, new_job())
    schema = engine.address.schema
    with raw() as changing:
        changing.autocommit = False
        changing.execute(f"update {schema}.jobs set updated_at = updated_at + 1")
        inserting = in_thread(lambda: put(store, new_job(depends_on=needs_of([parent]))))
        wait_for_a_lock(schema)
        changing.commit()
    [child] = inserting()

    [job] = claim(store)
    store.exchange(WORKER, [complete(job)])

    assert job.id == parent
    assert states(engine, child) == [JobState.PENDING]


def test_a_revival_before_its_death_was_heard_of_is_heard_of_after_it(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has ended the parent dies before it works on the list; somebody revives it before anybody else
    does."""
    [parent] = put(store, new_job())
    [child] = put(store, new_job(depends_on=needs_of([parent], OnFailure.HOLD)))
    [job] = claim(store)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_follow", lambda _: 0)
        store.exchange(WORKER, [decide(job, Discarded(BOOM), 0.5)])
        store.revive([parent])
    store.promote()

    [job] = claim(store)
    store.exchange(WORKER, [complete(job)])

    assert states(engine, parent, child) == [JobState.COMPLETED, JobState.PENDING]


def test_a_parent_by_place_whose_id_is_taken_is_the_holder(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    put(store, new_job(id=JobId("x")))

    receipts = store.insert([new_job(id=JobId("x")), new_job(depends_on=needs_of([1]))], on_conflict="ignore")

    assert [receipt.is_new for receipt in receipts] == [False, True]
    assert receipts[1].state is JobState.BLOCKED
