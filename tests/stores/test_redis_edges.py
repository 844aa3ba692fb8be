"""Edges on Redis while the list of what the ends of jobs mean for others waits for somebody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import ModuleType

import pytest

from forebay.domain.job import JobId, OnFailure, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import Completed
from forebay.domain.workflow import EdgeState
from forebay.stores.protocol import Reader, Store
from forebay.stores.redis.store import RedisEngine, RedisStore
from forebay.testing.clock import ManualClock
from tests.stores.contract.steps import MAIL, W1, look, put, settle, start
from tests.stores.contract.test_workflows import after, die, run
from tests.stores.support import claim, complete, new_job

MET, OPEN = EdgeState.MET, EdgeState.OPEN
AGAIN = QueueName("again")


@pytest.fixture
def engine(redis: ModuleType, clock: ManualClock) -> RedisEngine:
    engine: RedisEngine = redis.make_engine(clock)
    return engine


@pytest.fixture
def store(engine: RedisEngine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        yield store


@pytest.fixture
def reader(engine: RedisEngine) -> Iterator[Reader]:
    with closing(engine.reader()) as reader:
        yield reader


@pytest.fixture
def brief(engine: RedisEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A handle of programs that die after each call, before they look at the list."""
    with closing(engine.store()) as store:
        monkeypatch.setattr(store, RedisStore._follow.__name__, bool)
        yield store


def edges(reader: Reader, child: JobId) -> list[EdgeState]:
    return [edge.state for edge in reader.parents([child])]


def test_a_job_that_is_revived_when_the_end_of_its_parent_was_just_worked_off_does_not_wait_for_it(
    store: Store, brief: Store, reader: Reader
) -> None:
    done, dead = put(store), put(store)
    other = put(store, queue=MAIL)
    between = put(store, depends_on=after(done, dead, on_failure=OnFailure.FAIL))
    child = put(store, depends_on=after(between, other, on_failure=OnFailure.FAIL))
    run(store, done)
    die(store, dead)
    job = start(store, queue=MAIL)
    brief.revive([dead], dependants=True)
    settle(brief, job, Completed(b"1"))

    store.promote()

    assert edges(reader, child) == [OPEN, MET]
    run(store, dead)
    run(store, between)
    assert look(reader, child).state is JobState.PENDING
    assert reader.health().problems == ()


def test_an_edge_is_met_when_its_child_is_told_and_not_before(
    store: Store, brief: Store, reader: Reader
) -> None:
    parent = put(store)
    child = put(store, depends_on=after(parent))
    settle(brief, start(store), Completed(b"1"))

    assert edges(reader, child) == [edge.state for edge in reader.dependants([parent])] == [OPEN]
    store.promote()
    assert edges(reader, child) == [edge.state for edge in reader.dependants([parent])] == [MET]


@pytest.mark.parametrize("how", ["alone", "among others", "follow-up"])
def test_a_new_job_with_the_id_of_one_that_is_gone_comes_after_what_the_list_says_of_that(
    store: Store, brief: Store, reader: Reader, how: str
) -> None:
    done, other = put(store, id=JobId("done")), put(store, queue=MAIL)
    child = put(store, depends_on=after(done, other))
    by = put(store, queue=AGAIN)
    settle(brief, start(store), Completed(b"1"))
    store.delete([done])

    again = new_job(id=done, queue=AGAIN)
    if how == "follow-up":
        settle(brief, start(store, queue=AGAIN), Completed(b"1"), follow_ups=(again,))
    else:
        brief.insert([again], atomic=how == "alone")
    late = put(brief, depends_on=after(done))
    store.promote()

    assert (edges(reader, child), edges(reader, late)) == ([MET, OPEN], [OPEN])
    store.exchange(W1, [complete(job) for job in claim(store, 2, queue=AGAIN)])
    assert (look(reader, child).state, edges(reader, child)) == (JobState.BLOCKED, [MET, OPEN])
    assert (look(reader, by).state, look(reader, late).state) == (JobState.COMPLETED, JobState.PENDING)
    assert reader.health().problems == ()
