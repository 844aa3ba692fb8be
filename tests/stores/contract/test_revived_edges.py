"""What the edges of a revived job say: its parents as they are when it is revived."""

from __future__ import annotations

import pytest

from forebay.domain.dependencies import EdgeState
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Discarded
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import BOOM, DAY, DEFAULT, MAIL, look, put, settle, start, states
from tests.stores.contract.test_workflows import after, die, put_graph, run

PENDING, BLOCKED = JobState.PENDING, JobState.BLOCKED
DEAD, CANCELLED = JobState.DEAD, JobState.CANCELLED
MET, OPEN = EdgeState.MET, EdgeState.OPEN


def edges(reader: Reader, child: JobId) -> list[EdgeState]:
    return [edge.state for edge in reader.parents([child])]


@pytest.mark.parametrize("way", ["delete", "prune"])
def test_a_job_that_is_revived_with_one_parent_does_not_wait_for_one_that_is_gone(
    store: Store, reader: Reader, clock: ManualClock, way: str
) -> None:
    store.save_queue(MAIL, {"keep_dead_ms": DAY})
    one, other = put(store), put(store, queue=MAIL)
    child = put(store, depends_on=after(one, other))
    die(store, one)
    settle(store, start(store, queue=MAIL), Discarded(BOOM))
    if way == "delete":
        store.delete([other])
    else:
        clock.advance(ms=2 * DAY)
        store.prune()
    assert states(reader, [one, other, child]) == [DEAD, None, CANCELLED]

    store.revive([one], dependants=True)

    assert edges(reader, child) == [OPEN, MET]
    run(store, one)
    assert look(reader, child).state is PENDING


def test_a_job_that_is_revived_by_itself_does_not_wait_for_one_that_is_gone(
    store: Store, reader: Reader
) -> None:
    parent, child = put_graph(store, [], [0])
    die(store, parent)
    store.delete([parent])

    store.revive([child])

    assert (look(reader, child).state, edges(reader, child)) == (PENDING, [MET])


def test_a_parent_that_completed_after_its_dependants_were_cancelled_is_met(
    store: Store, reader: Reader
) -> None:
    runs, waits, child = put_graph(store, [], [], [0, 1])
    job = start(store)
    store.cancel([runs], dependants=True)
    settle(store, job, Completed(b"1"))
    store.cancel([waits])
    assert states(reader, [runs, waits, child]) == [JobState.COMPLETED, CANCELLED, CANCELLED]

    store.revive([waits], dependants=True)

    assert edges(reader, child) == [MET, OPEN]
    run(store, waits)
    assert look(reader, child).state is PENDING


def test_a_job_that_is_revived_by_itself_waits_for_a_parent_that_is_alive(
    store: Store, reader: Reader
) -> None:
    parent, child = put_graph(store, [], [0])
    job = start(store)
    store.cancel([parent], dependants=True)

    [result] = store.revive([child])

    assert (result.state, edges(reader, child)) == (BLOCKED, [OPEN])
    settle(store, job, Completed(b"1"))
    assert look(reader, child).state is PENDING


@pytest.mark.parametrize("is_parent_first", [True, False])
@pytest.mark.parametrize("dependants", [True, False])
def test_a_job_that_is_revived_together_with_its_parent_waits_for_it(
    store: Store, reader: Reader, is_parent_first: bool, dependants: bool
) -> None:
    parent, child = put_graph(store, [], [0])
    die(store, parent)
    ids = [parent, child] if is_parent_first else [child, parent]

    results = store.revive(ids, dependants=dependants)

    assert {result.job_id: result.state for result in results} == {parent: PENDING, child: BLOCKED}
    assert all(result.applied for result in results)
    assert (states(reader, ids), edges(reader, child)) == ([result.state for result in results], [OPEN])
    run(store, parent)
    run(store, child)


def test_a_job_does_not_wait_for_a_parent_whose_revival_is_refused(store: Store, reader: Reader) -> None:
    parent = put(store, unique_key="k")
    child = put(store, depends_on=after(parent))
    die(store, parent)
    put(store, unique_key="k")

    results = store.revive([child, parent])

    assert [(result.applied, result.state) for result in results] == [(True, PENDING), (False, DEAD)]
    assert edges(reader, child) == [MET]


def test_of_a_parent_and_a_child_that_are_named_twice_each_is_revived_once(
    store: Store, reader: Reader
) -> None:
    parent, child = put_graph(store, [], [0])
    die(store, parent)

    results = store.revive([child, parent, child, parent])

    assert [(result.applied, result.state) for result in results] == [
        (True, BLOCKED),
        (True, PENDING),
        (False, BLOCKED),
        (False, PENDING),
    ]
    assert results[3].reason == "a pending job cannot be revived"
    assert reader.counts([DEFAULT])[DEFAULT].pending == 1
