"""Edges that are met, whatever becomes of their parents and children later."""

from __future__ import annotations

from forebay.domain.dependencies import PROPAGATION_BATCH, EdgeState
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.stores.contract.steps import DEFAULT, MAIL, look, put, settle, start, states
from tests.stores.contract.test_workflows import after, put_graph, run
from tests.stores.support import new_job

PENDING, BLOCKED, COMPLETED = JobState.PENDING, JobState.BLOCKED, JobState.COMPLETED
MET, OPEN = EdgeState.MET, EdgeState.OPEN
AGAIN = QueueName("again")


def edges(reader: Reader, child: JobId) -> list[EdgeState]:
    return [edge.state for edge in reader.parents([child])]


def two_parents(store: Store) -> tuple[JobId, JobId, JobId]:
    """A job that has completed, one that has not, and one that depends on both."""
    done, other = put(store, id=JobId("done")), put(store, queue=MAIL)
    child = put(store, depends_on=after(done, other))
    run(store, done)
    return done, other, child


def test_a_parent_that_has_completed_is_seen_from_both_sides(store: Store, reader: Reader) -> None:
    done, _, child = two_parents(store)

    assert edges(reader, child) == [MET, OPEN]
    assert [edge.state for edge in reader.dependants([done])] == [MET]
    assert reader.health().problems == ()


def test_a_new_job_with_the_id_of_a_completed_parent_that_is_gone_releases_no_dependant(
    store: Store, reader: Reader
) -> None:
    done, _, child = two_parents(store)
    store.delete([done])
    assert edges(reader, child) == [MET, OPEN]

    put(store, id=done)
    run(store, done)

    assert (look(reader, child).state, edges(reader, child)) == (BLOCKED, [MET, OPEN])
    assert reader.health().problems == ()
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    assert look(reader, child).state is PENDING


def test_the_id_of_a_job_whose_end_still_goes_round_can_be_brought_again(
    store: Store, reader: Reader
) -> None:
    other = put(store, queue=MAIL)
    root = put(store, id=JobId("root"))
    children = 3 * PROPAGATION_BATCH  # more than the end of their parent looks at in its own call
    store.insert([new_job(depends_on=after(root))] * children)
    last = put(store, depends_on=after(root, other))
    run(store, root)
    store.delete([root])

    put(store, id=root, queue=AGAIN)
    settle(store, start(store, queue=AGAIN), Completed(b"1"))
    while store.promote():
        pass

    assert (look(reader, last).state, edges(reader, last)) == (BLOCKED, [MET, OPEN])
    assert reader.counts([DEFAULT])[DEFAULT].pending == children
    assert reader.health().problems == ()
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    assert look(reader, last).state is PENDING


def test_what_depends_on_a_completed_job_is_not_cancelled_with_it(store: Store, reader: Reader) -> None:
    done, other, child = two_parents(store)
    grandchild = put(store, depends_on=after(child))

    store.cancel([done], dependants=True)
    store.delete([done])
    store.cancel([done], dependants=True)

    assert states(reader, [other, child, grandchild]) == [PENDING, BLOCKED, BLOCKED]


def test_a_job_whose_parent_completed_while_it_was_cancelled_waits_for_the_others_alone(
    store: Store, reader: Reader
) -> None:
    one, gone, other = put(store), put(store), put(store, queue=MAIL)
    child = put(store, depends_on=after(one, gone, other))
    store.cancel([child])
    run(store, one, gone)
    store.delete([gone])

    store.revive([child])

    assert (look(reader, child).state, edges(reader, child)) == (BLOCKED, [MET, MET, OPEN])
    assert reader.health().problems == ()
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    run(store, child)


def test_a_job_that_is_revived_while_the_end_of_its_parent_goes_round_waits_for_the_other_one(
    store: Store, reader: Reader
) -> None:
    other = put(store, queue=MAIL)
    children = PROPAGATION_BATCH + 2
    root, *ids = put_graph(store, [], *([0] for _ in range(children)))
    [last] = store.insert([new_job(depends_on=after(root, other))])
    assert last.id is not None
    job = start(store)
    assert job.id == root
    store.cancel([last.id])
    settle(store, job, Completed(b"1"))
    store.revive([last.id])

    while store.promote():
        pass

    assert (look(reader, last.id).state, edges(reader, last.id)) == (BLOCKED, [MET, OPEN])
    assert reader.counts([DEFAULT])[DEFAULT].pending == len(ids)
    assert reader.health().problems == ()
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    assert look(reader, last.id).state is PENDING
