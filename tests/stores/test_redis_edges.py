"""Edges on Redis while the dependency outbox waits for a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.dependencies import EdgeState
from forebay.domain.job import DEFAULT_QUEUE, JobId, OnFailure, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement
from forebay.errors import StoreError
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.store import RedisStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import MAIL, W1, ended, look, put, settle, start, states
from tests.stores.contract.test_workflows import after, die, put_graph, run
from tests.stores.support import claim, complete, counting_ids, new_job
from tests.stores.test_redis_short import stored

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
        monkeypatch.setattr(store, RedisStore._propagate.__name__, bool)
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
    before = put(store)
    done, other = put(store, id=JobId("done")), put(store, queue=MAIL)
    put(store, depends_on=after(before))
    child = put(store, depends_on=after(done, other))
    by = put(store, queue=AGAIN)
    run(brief, before)  # what is on the list already has the next one listed too
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
    store.settle_and_claim(W1, [complete(job) for job in claim(store, 2, queue=AGAIN)])
    assert (look(reader, child).state, edges(reader, child)) == (JobState.BLOCKED, [MET, OPEN])
    assert (look(reader, by).state, look(reader, late).state) == (JobState.COMPLETED, JobState.PENDING)
    assert reader.health().problems == ()


# Told at once


def listed(redis: ModuleType, engine: RedisEngine) -> int:
    """How many lines the list has."""
    return int(redis.admin().llen(f"{engine.address.tag}:dependency_outbox"))


def test_a_join_is_told_at_once_of_parents_that_are_not_its_last(
    redis: ModuleType, engine: RedisEngine, store: Store, brief: Store, reader: Reader
) -> None:
    *parents, join = put_graph(brief, *[[]] * 12, range(12))

    run(brief, *parents[:11])

    assert (edges(reader, join), listed(redis, engine)) == ([MET] * 11 + [OPEN], 0)
    assert reader.health().problems == ()
    run(brief, parents[11])
    assert (look(reader, join).state, listed(redis, engine)) == (JobState.BLOCKED, 1)
    store.promote()
    assert (look(reader, join).state, edges(reader, join)) == (JobState.PENDING, [MET] * 12)
    run(brief, join)
    assert claim(brief) == []
    assert reader.health().problems == ()


def test_a_parent_with_a_child_to_release_goes_on_the_list_with_all_its_edges(
    redis: ModuleType, engine: RedisEngine, store: Store, brief: Store, reader: Reader
) -> None:
    both, one, late, join, alone = put_graph(brief, [], [], [], [0, 1, 2], [0])

    run(brief, both, one)

    assert listed(redis, engine) == 1
    assert (edges(reader, join), look(reader, alone).state) == ([OPEN, MET, OPEN], JobState.BLOCKED)
    assert reader.health().problems == ()
    store.promote()
    assert (edges(reader, join), look(reader, alone).state) == ([MET, MET, OPEN], JobState.PENDING)
    run(brief, late)
    store.promote()
    run(brief, join, alone)
    assert reader.health().problems == ()


@pytest.mark.parametrize(("children", "lines"), [(9, 0), (10, 1)])
def test_a_parent_of_many_goes_on_the_list(
    redis: ModuleType,
    engine: RedisEngine,
    store: Store,
    brief: Store,
    reader: Reader,
    children: int,
    lines: int,
) -> None:
    first, second, *joins = put_graph(brief, [], [], *[[0, 1]] * children)

    run(brief, first)

    assert listed(redis, engine) == lines
    store.promote()
    assert [edges(reader, join) for join in joins] == [[MET, OPEN]] * children
    run(brief, second)
    store.promote()
    run(brief, *joins)
    assert reader.health().problems == ()


def test_what_is_on_the_list_comes_before_what_completes_now(
    redis: ModuleType, engine: RedisEngine, store: Store, brief: Store, reader: Reader
) -> None:
    held, other = put(store), put(store, queue=MAIL)
    child = put(store, depends_on=after(held, other, on_failure=OnFailure.HOLD))
    store.cancel([held])
    brief.revive([held])

    run(brief, held)  # at its first attempt; its edge is not open yet

    assert listed(redis, engine) == 2
    store.promote()
    assert edges(reader, child) == [MET, OPEN]
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    assert look(reader, child).state is JobState.PENDING
    assert reader.health().problems == ()


def test_a_parent_in_a_sequence_goes_on_the_list(store: Store, brief: Store, reader: Reader) -> None:
    parent, behind = put(brief, sequence="s"), put(brief, sequence="s")
    other = put(brief, queue=MAIL)
    join = put(brief, depends_on=after(parent, other))

    run(brief, parent)
    store.promote()

    assert (look(reader, behind).state, edges(reader, join)) == (JobState.PENDING, [MET, OPEN])
    assert reader.health().problems == ()


def test_a_follow_up_may_depend_on_a_job_that_completes_in_the_same_call(
    store: Store, brief: Store, reader: Reader
) -> None:
    put(brief)
    parent, other = put(brief), put(brief, queue=MAIL)
    follow_up = new_job(id=JobId("follow-up"), depends_on=after(parent, other))
    first, second = claim(brief, 2)

    brief.settle_and_claim(W1, [ended(first, Completed(b"1"), follow_ups=(follow_up,)), complete(second)])
    store.promote()

    assert edges(reader, JobId("follow-up")) == [MET, OPEN]
    assert reader.health().problems == ()


def test_a_child_that_was_cancelled_counts_on_and_can_be_revived(store: Store, reader: Reader) -> None:
    *parents, join = put_graph(store, [], [], [], [0, 1, 2])
    store.cancel([join])

    run(store, parents[0])
    assert reader.health().problems == ()
    store.revive([join])
    run(store, parents[1])
    assert (look(reader, join).state, edges(reader, join)) == (JobState.BLOCKED, [MET, MET, OPEN])
    run(store, parents[2])
    assert look(reader, join).state is JobState.PENDING
    assert reader.health().problems == ()


# Many at once


@pytest.mark.parametrize(
    "changes", [{}, {"delay_ms": 5_000}, {"expires_at": 1_900_000_000_000, "priority": 3}], ids=str
)
@pytest.mark.parametrize("how", [OnFailure.CANCEL, OnFailure.HOLD])
def test_jobs_that_are_alike_are_stored_as_those_that_come_with_ids_are(
    redis: ModuleType, clock: ManualClock, changes: dict[str, Any], how: OnFailure
) -> None:
    """One by one, since another job of the same call may ask for such a job."""
    children = [new_job(depends_on=after(at, on_failure=how), **changes) for at in range(1, 1_101)]
    chain = [new_job(depends_on=after(1), **changes)] * 3
    join = new_job(depends_on=after(*range(1_103, 0, -1), on_failure=how))
    batch = [new_job(), *children, *chain, join, new_job(depends_on=after(1))]
    found = []
    ids: list[JobId | None] = [None] * len(batch)
    for _ in range(2):
        engine = redis.make_engine(clock, new_id=counting_ids())
        with closing(engine.store()) as store, closing(engine.reader()) as reader:
            receipts = store.insert([replace(job, id=job_id) for job, job_id in zip(batch, ids, strict=True)])
            assert reader.health().problems == ()
        ids = [receipt.id for receipt in receipts]
        found.append((receipts, stored(redis.admin(), engine)))

    assert found[0] == found[1]


def test_a_job_of_a_graph_that_is_refused_takes_those_behind_it_along_and_no_others(
    store: Store, reader: Reader
) -> None:
    batch = [
        new_job(),
        *(new_job(depends_on=after(at)) for at in (1, 2)),
        new_job(priority=50, depends_on=after(3)),
        *(new_job(depends_on=after(at)) for at in (4, 1, 2, 4, 7)),
    ]
    store.save_queue(QueueName("default"), {"max_priority": 5})

    receipts = store.insert(batch, atomic=False)

    assert [receipt.is_new for receipt in receipts] == [True] * 3 + [False] + [True] * 2 + [True, False, True]
    assert reader.health().problems == ()


def test_a_job_of_a_graph_with_a_key_or_in_a_sequence_is_looked_at_alone(
    store: Store, reader: Reader
) -> None:
    key, sequence = {"unique_key": "k"}, {"sequence": "s"}
    places: list[tuple[int, dict[str, Any]]] = [
        (1, {}),
        (1, key),
        (1, key),
        (1, {}),
        (5, sequence),
        (6, sequence),
        (1, {}),
    ]
    batch = [new_job(), *(new_job(depends_on=after(at), **changes) for at, changes in places)]

    receipts = store.insert(batch)

    root, first, holder, same, behind, one, next_one, last = [receipt.id or "" for receipt in receipts]
    assert [receipt.is_new for receipt in receipts] == [True] * 3 + [False] + [True] * 4
    assert (same, [edge.parent for edge in reader.parents([JobId(behind)])]) == (holder, [holder])
    for ids in ([root], [first, one], [holder, next_one], [behind, last]):
        assert [job.id for job in claim(store, 3)] == ids
        assert reader.health().problems == ()
        store.settle_and_claim(W1, [complete(job) for job in reader.jobs(list(map(JobId, ids))) if job])
    assert reader.health().problems == ()


def test_children_are_released_though_those_of_another_parent_stand_between_them(
    store: Store, reader: Reader
) -> None:
    first, second, *children = put_graph(store, [], [], *([at % 2] for at in range(40)))

    run(store, first)

    assert states(reader, children) == [JobState.PENDING, JobState.BLOCKED] * 20
    assert reader.health().problems == ()
    run(store, second)
    assert states(reader, children) == [JobState.PENDING] * 40
    assert reader.health().problems == ()
    run(store, *children)


def test_a_released_job_that_cannot_be_claimed_does_not_hide_what_was_claimed_before(
    store: RedisStore, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child = put_graph(store, (), (0,), priority=1)
    other = put(store)
    job = start(store)
    real = store._settler.run

    def settle_and_claim(worker: WorkerId, ends: Sequence[Settlement], *rest: Any) -> SettleAndClaimResult:
        if not ends:
            raise StoreError("the second half of the call")
        return real(worker, ends, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(store._settler, "run", settle_and_claim)
        answer = store.settle_and_claim(W1, [complete(job)], [QueueClaim(DEFAULT_QUEUE, 5)], 5)

    assert (answer.settled, [one.id for one in answer.jobs]) == ((parent,), [other])
    assert states(reader, [child]) == [JobState.PENDING]
