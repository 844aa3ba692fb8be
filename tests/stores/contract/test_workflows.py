"""Jobs that depend on others: when they are released, and what the failure of a parent means for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.domain.dependencies import PROPAGATION_BATCH, EdgeState
from forebay.domain.job import Dependency, Job, JobId, NewJob, OnFailure
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed, Discarded, Failed
from forebay.domain.queue_counts import Counts
from forebay.errors import InvalidJob, QueueFull, StoreRefused
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    T0,
    UNKNOWN,
    W1,
    W2,
    claimed,
    counts_of,
    kinds_of,
    look,
    put,
    settle,
    start,
    started,
    states,
)
from tests.stores.support import claim, complete, new_job

PENDING, BLOCKED, SCHEDULED = JobState.PENDING, JobState.BLOCKED, JobState.SCHEDULED
DEAD, CANCELLED, COMPLETED = JobState.DEAD, JobState.CANCELLED, JobState.COMPLETED


def after(*parents: JobId | int, on_failure: OnFailure = OnFailure.CANCEL) -> tuple[Dependency, ...]:
    return tuple(Dependency(parent, on_failure) for parent in parents)


def put_all(store: Store, *jobs: NewJob) -> list[JobId]:
    return [receipt.id for receipt in store.insert(jobs) if receipt.id is not None]


def put_graph(store: Store, *edges: Sequence[int], **changes: object) -> list[JobId]:
    """Jobs of one insert, each with the places of its parents."""
    return put_all(
        store,
        *(new_job(depends_on=after(*(at - one for one in of)), **changes) for at, of in enumerate(edges)),
    )


def run(store: Store, *ids: JobId) -> None:
    """Run the jobs that come next to their end; they must be these."""
    jobs = claim(store, len(ids))
    assert [job.id for job in jobs] == list(ids)
    store.settle_and_claim(W1, [complete(job) for job in jobs])


def die(store: Store, job_id: JobId) -> None:
    job = start(store)
    assert job.id == job_id
    settle(store, job, Discarded(BOOM))


# Release


@pytest.mark.shows("R-DEP-01", "R-DEP-02", "R-JOB-23")
def test_a_job_with_a_live_parent_is_blocked_until_that_completes(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    parent = put(store)
    [receipt] = store.insert([new_job(depends_on=after(parent))])
    assert receipt.id is not None

    assert (receipt.state, look(reader, receipt.id).state) == (BLOCKED, BLOCKED)
    assert counts_of(reader) == Counts(pending=1, blocked=1)
    job = start(store)
    assert claimed(store, 5) == []
    clock.advance(ms=10)
    settle(store, job, Completed(b"1"))

    child = look(reader, receipt.id)
    assert (child.state, child.ready_at, child.run_at) == (PENDING, T0 + 10, T0 + 10)
    assert counts_of(reader) == Counts(pending=1, completed=1)
    assert claimed(store, 5) == [receipt.id]


def test_a_released_job_is_claimed_in_the_settle_and_claim_that_releases_it(store: Store) -> None:
    parent, child = put_graph(store, [], [0])
    job = start(store)

    answer = store.settle_and_claim(W1, [complete(job)], [QueueClaim(DEFAULT, 5)], 5)

    assert job.id == parent
    assert [one.id for one in answer.jobs] == [child]


@pytest.mark.shows("R-DEP-03")
def test_a_parent_that_has_completed_counts_as_met(store: Store, reader: Reader) -> None:
    job = started(store)
    settle(store, job, Completed(b"1"))

    child = put(store, depends_on=after(job.id))

    assert look(reader, child).state is PENDING
    assert [edge.state for edge in reader.parents([child])] == [EdgeState.MET]


@pytest.mark.shows("R-DEP-09", "R-DEP-15")
def test_a_diamond_runs_from_top_to_bottom(store: Store, reader: Reader) -> None:
    a, b, c, d = put_graph(store, [], [0], [0], [1, 2])
    assert states(reader, [a, b, c, d]) == [PENDING, BLOCKED, BLOCKED, BLOCKED]

    run(store, a)
    assert states(reader, [b, c, d]) == [PENDING, PENDING, BLOCKED]
    run(store, b)
    assert states(reader, [c, d]) == [PENDING, BLOCKED]
    run(store, c)
    assert states(reader, [d]) == [PENDING]
    run(store, d)


@pytest.mark.shows("R-DEP-11", "R-EDGE-50", "R-TEST-59")
def test_parents_that_end_together_release_their_child_once(
    store: Store, other_store: Store, reader: Reader
) -> None:
    *parents, join = put_graph(store, [], [], [], [], [0, 1, 2, 3])
    jobs = [*claim(store, 2), *claim(other_store, 2, worker=W2)]
    store.settle_and_claim(W1, [complete(job) for job in jobs[:2]])
    assert look(reader, join).state is BLOCKED

    other_store.settle_and_claim(W2, [complete(job) for job in jobs[2:]])

    assert [job.id for job in jobs] == parents
    assert claimed(store, 5) == [join]
    assert claimed(other_store, 5, W2) == []


def test_a_job_whose_time_is_not_there_is_scheduled_when_it_is_released(store: Store, reader: Reader) -> None:
    parent = put(store)
    child = put(store, depends_on=after(parent), delay_ms=HOUR)
    assert look(reader, child).state is BLOCKED

    run(store, parent)

    found = look(reader, child)
    assert (found.state, found.run_at, found.ready_at) == (SCHEDULED, T0 + HOUR, T0 + HOUR)


def test_a_job_that_has_been_retried_releases_its_child_when_it_completes(
    store: Store, reader: Reader
) -> None:
    parent, child = put_graph(store, [], [0])
    settle(store, start(store), Failed(BOOM, 0))
    assert look(reader, child).state is BLOCKED

    run(store, parent)

    assert look(reader, child).state is PENDING


def test_blocked_jobs_do_not_count_for_the_greatest_length(store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT, {"max_length": 1})
    a, b, c = put_graph(store, [], [0], [0])
    with pytest.raises(QueueFull):
        put(store)

    run(store, a)  # what was accepted is not refused when its time comes

    assert states(reader, [b, c]) == [PENDING, PENDING]


def test_a_follow_up_may_depend_on_its_parent_and_on_another_one(store: Store, reader: Reader) -> None:
    job = started(store)
    first = new_job(id=JobId("first"), depends_on=after(job.id))
    second = new_job(id=JobId("second"), depends_on=after(1))

    settle(store, job, Completed(b"1"), follow_ups=(first, second))

    assert states(reader, [JobId("first"), JobId("second")]) == [PENDING, BLOCKED]
    run(store, JobId("first"))
    assert states(reader, [JobId("second")]) == [PENDING]


def test_a_parent_whose_key_is_taken_is_the_holder_of_the_key(store: Store, reader: Reader) -> None:
    holder = put(store, unique_key="k")

    [again, child] = store.insert([new_job(unique_key="k"), new_job(depends_on=after(1))])

    assert (again.id, again.is_new, child.state) == (holder, False, BLOCKED)
    run(store, holder)
    assert child.id is not None
    assert look(reader, child.id).state is PENDING


@pytest.mark.shows("R-EDGE-48")
def test_an_unknown_parent_is_refused_with_all_of_the_call(store: Store, reader: Reader) -> None:
    with pytest.raises(InvalidJob, match=f"depends on {UNKNOWN}"):
        store.insert([new_job(), new_job(depends_on=after(UNKNOWN))])

    assert reader.counts([DEFAULT]) == {DEFAULT: Counts()}


def test_a_place_before_the_first_job_is_refused(store: Store) -> None:
    with pytest.raises(InvalidJob, match="2 places before"):
        store.insert([new_job(), new_job(depends_on=after(2))])


def test_a_follow_up_with_an_unknown_parent_undoes_all(store: Store, reader: Reader) -> None:
    job = started(store)

    with pytest.raises(StoreRefused, match="follow-up"):
        settle(store, job, Completed(b"1"), follow_ups=(new_job(depends_on=after(UNKNOWN)),))

    assert look(reader, job.id).state is JobState.RUNNING


def test_without_atomicity_a_child_of_a_refused_job_is_refused(store: Store) -> None:
    bad = new_job(depends_on=after(UNKNOWN))
    receipts = store.insert([bad, new_job(depends_on=after(1)), new_job()], atomic=False)

    assert [type(receipt.error) for receipt in receipts] == [InvalidJob, InvalidJob, type(None)]


def test_a_missing_parent_may_be_allowed_if_it_can_have_been_forgotten(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    settle(store, job, Completed(b"1"))
    clock.advance(ms=8 * DAY)
    store.prune()
    assert reader.jobs([job.id]) == [None]

    child = put(store, depends_on=after(job.id), allow_missing=True)

    assert look(reader, child).state is PENDING
    with pytest.raises(InvalidJob, match="depends on"):
        put(store, depends_on=after(UNKNOWN), allow_missing=True)


# Failure


@pytest.mark.shows("R-DEP-06", "R-DEP-07", "R-DEP-08", "R-EDGE-49", "R-TEST-59", "R-EDGE-48")
@pytest.mark.parametrize(
    ("on_failure", "state"),
    [
        (OnFailure.CANCEL, CANCELLED),
        (OnFailure.FAIL, DEAD),
        (OnFailure.IGNORE, PENDING),
        (OnFailure.HOLD, BLOCKED),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_failed_parent_means_for_its_child_what_the_edge_says(
    store: Store, reader: Reader, on_failure: OnFailure, state: JobState, is_late: bool
) -> None:
    parent = put(store)
    needs = after(parent, on_failure=on_failure)
    if is_late:
        die(store, parent)
        child = put(store, depends_on=needs)
    else:
        child = put(store, depends_on=needs)
        die(store, parent)

    found = look(reader, child)
    assert found.state is state
    if found.is_final:
        assert found.reason == f"{parent}, which it depends on, is dead"
        assert kinds_of(reader, child) == [EventKind.PARENT_FAILED]


@pytest.mark.shows("R-EDGE-51")
@pytest.mark.parametrize("end", ["cancel", "expire", "delete", "drop"])
def test_however_a_waiting_parent_ends_its_child_hears_of_it(
    store: Store, reader: Reader, clock: ManualClock, end: str
) -> None:
    parent = put(store, queue=MAIL, expires_at=T0 + 100 if end == "expire" else None)
    child = put(store, depends_on=after(parent))

    if end == "cancel":
        store.cancel([parent])
    elif end == "expire":
        clock.advance(ms=200)
        store.promote()
    elif end == "delete":
        store.delete([parent])
    else:
        store.drop_queue(MAIL, force=True)

    assert look(reader, child).state is CANCELLED


def test_a_job_that_a_force_took_the_lease_of_takes_its_child_along(store: Store, reader: Reader) -> None:
    parent, child = put_graph(store, [], [0])
    start(store)

    store.cancel([parent], force=True)

    assert states(reader, [parent, child]) == [DEAD, CANCELLED]


@pytest.mark.shows("R-DEP-13", "R-EDGE-49")
def test_a_failure_goes_through_the_whole_graph(store: Store, reader: Reader) -> None:
    a, b, c, d = put_graph(store, [], [0], [1], [2])

    die(store, a)

    assert states(reader, [a, b, c, d]) == [DEAD, CANCELLED, CANCELLED, CANCELLED]


def test_a_held_job_is_cancelled_when_its_parent_is_forgotten(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"keep_dead_ms": DAY})
    parent = put(store)
    child = put(store, depends_on=after(parent, on_failure=OnFailure.HOLD), queue=MAIL)
    die(store, parent)
    assert look(reader, child).state is BLOCKED

    clock.advance(ms=2 * DAY)
    store.prune()

    assert look(reader, child).state is CANCELLED


@pytest.mark.shows("R-EDGE-51")
def test_a_completed_parent_that_is_forgotten_stays_met(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    other = put(store, queue=MAIL)
    parent = put(store)
    child = put(store, depends_on=after(parent, other))
    run(store, parent)

    clock.advance(ms=8 * DAY)
    store.prune()
    assert reader.jobs([parent]) == [None]
    settle(store, start(store, queue=MAIL), Completed(b"1"))

    assert look(reader, child).state is PENDING


# Operators


@pytest.mark.shows("R-CANCEL-08")
def test_a_job_is_cancelled_with_all_that_depends_on_it(store: Store, reader: Reader) -> None:
    a = put(store)
    b = put(store, depends_on=after(a, on_failure=OnFailure.IGNORE))
    c = put(store, depends_on=after(b, on_failure=OnFailure.HOLD))
    start(store)

    [result] = store.cancel([a], dependants=True)

    assert (result.applied, result.state) == (True, JobState.RUNNING)
    assert states(reader, [a, b, c]) == [JobState.RUNNING, CANCELLED, CANCELLED]
    assert look(reader, b).reason == f"cancelled with {a}, which it depends on"


def test_a_blocked_job_can_be_cancelled_updated_and_deleted(store: Store, reader: Reader) -> None:
    a, b, c, d = put_graph(store, [], [0], [0], [2])

    store.update_job(b, JobUpdate(priority=7, metadata={"x": 1})).check()
    assert store.update_job(b, JobUpdate(delay_ms=0)).reason == "it is blocked"
    store.cancel([c])
    store.delete([d])

    assert states(reader, [a, b, c, d]) == [PENDING, BLOCKED, CANCELLED, None]
    run(store, a)
    found = look(reader, b)
    assert (found.state, found.priority, found.metadata) == (PENDING, 7, {"x": 1})
    assert states(reader, [c]) == [CANCELLED]


def test_a_blocked_job_expires(store: Store, reader: Reader, clock: ManualClock) -> None:
    parent = put(store, queue=MAIL)
    child = put(store, depends_on=after(parent), expires_at=T0 + 100)

    clock.advance(ms=100)
    assert claimed(store, 1) == []

    assert look(reader, child).state is CANCELLED


def test_a_revived_job_waits_for_parents_that_have_not_ended(store: Store, reader: Reader) -> None:
    a, b = put_graph(store, [], [0])
    store.cancel([b])

    [result] = store.revive([b])
    assert (result.state, look(reader, b).state) == (BLOCKED, BLOCKED)
    run(store, a)

    assert look(reader, b).state is PENDING


def test_a_job_that_ended_because_of_its_parent_runs_without_it_if_an_operator_revives_it(
    store: Store, reader: Reader
) -> None:
    a, b = put_graph(store, [], [0])
    die(store, a)

    store.revive([b])

    assert states(reader, [a, b]) == [DEAD, PENDING]


def test_what_is_held_because_of_a_job_waits_for_it_again_when_it_is_revived(
    store: Store, reader: Reader
) -> None:
    a = put(store)
    b = put(store, depends_on=after(a, on_failure=OnFailure.HOLD))
    die(store, a)
    assert [edge.state for edge in reader.parents([b])] == [EdgeState.HELD]

    store.revive([a])
    assert [edge.state for edge in reader.parents([b])] == [EdgeState.OPEN]
    run(store, a)

    assert look(reader, b).state is PENDING


def test_what_ended_because_of_a_job_is_revived_with_it_if_asked_for(store: Store, reader: Reader) -> None:
    a, b, c = put_graph(store, [], [0], [1])
    alone = put(store, depends_on=after(a, on_failure=OnFailure.FAIL))
    die(store, a)
    assert states(reader, [b, c, alone]) == [CANCELLED, CANCELLED, DEAD]

    store.revive([a], dependants=True)

    assert states(reader, [a, b, c, alone]) == [PENDING, BLOCKED, BLOCKED, BLOCKED]
    run(store, a)
    run(store, b, alone)
    run(store, c)


def test_without_being_asked_a_revival_brings_no_other_job_back(store: Store, reader: Reader) -> None:
    a, b = put_graph(store, [], [0])
    die(store, a)

    store.revive([a])
    assert states(reader, [a, b]) == [PENDING, CANCELLED]
    store.revive([b])

    assert states(reader, [b]) == [BLOCKED]  # its parent is going to run


def test_a_job_that_is_revived_with_one_parent_waits_for_another_that_has_failed(
    store: Store, reader: Reader
) -> None:
    one, other, child = put_graph(store, [], [], [0, 1])
    die(store, one)
    die(store, other)

    store.revive([one], dependants=True)
    run(store, one)

    assert look(reader, child).state is BLOCKED
    store.revive([other])
    run(store, other)
    assert look(reader, child).state is PENDING


# Looking


@pytest.mark.shows("R-DEP-10", "R-STORE-26")
def test_edges_are_listed_from_both_sides(store: Store, reader: Reader) -> None:
    a, b = put(store), put(store)
    c = put(store, depends_on=(Dependency(b, OnFailure.HOLD), Dependency(a)))
    d = put(store, depends_on=after(a))

    parents = reader.parents([c, d])
    assert [(edge.child, edge.position, edge.parent) for edge in parents] == [(c, 0, b), (c, 1, a), (d, 0, a)]
    assert [edge.on_failure for edge in parents] == [OnFailure.HOLD, OnFailure.CANCEL, OnFailure.CANCEL]
    behind = reader.dependants([a])
    assert [edge.child for edge in behind] == sorted([c, d])
    assert reader.dependants([a], limit=1) == behind[:1]
    assert reader.dependants([a], limit=1, after=behind[0]) == behind[1:]
    assert reader.dependants([d]) == []


@pytest.mark.shows("R-DEP-14", "R-CANCEL-08")
def test_edges_go_with_their_child(store: Store, reader: Reader, clock: ManualClock) -> None:
    a, b, c = put_graph(store, [], [0], [0])
    store.delete([b])
    assert [edge.child for edge in reader.dependants([a])] == [c]
    run(store, a)
    run(store, c)

    clock.advance(ms=8 * DAY)
    store.prune()

    assert reader.dependants([a]) == reader.parents([c]) == []


# Many


def test_more_dependants_than_a_transaction_takes_are_released_one_batch_after_the_other(
    store: Store, reader: Reader
) -> None:
    children = PROPAGATION_BATCH + 100
    graph: list[list[int]] = [[], *([0] for _ in range(children)), list(range(1, children + 1))]
    root, *_, join = put_graph(store, *graph)
    run(store, root)

    done: list[Job] = []
    taken = 0
    while taken < children:
        done = list(
            store.settle_and_claim(W1, [complete(job) for job in done], [QueueClaim(DEFAULT, 250)], 250).jobs
        )
        assert done
        taken += len(done)
    [last] = store.settle_and_claim(W1, [complete(job) for job in done], [QueueClaim(DEFAULT, 250)], 250).jobs

    assert last.id == join
    assert counts_of(reader) == Counts(completed=children + 1, running=1)


def test_a_failure_that_goes_deep_takes_as_many_turns_as_it_needs(store: Store, reader: Reader) -> None:
    depth = PROPAGATION_BATCH + 50
    ids = put_graph(store, [], *([at] for at in range(depth)))

    die(store, ids[0])
    for _ in range(5):
        store.promote()

    assert counts_of(reader) == Counts(dead=1, cancelled=depth)


# Against what the edges say


@pytest.mark.parametrize("on_failure", [OnFailure.IGNORE, OnFailure.FAIL, OnFailure.HOLD])
def test_what_is_cancelled_with_a_job_is_cancelled_whatever_its_edges_say(
    store: Store, reader: Reader, on_failure: OnFailure
) -> None:
    top = put(store)
    middle = put(store, depends_on=after(top, on_failure=on_failure))
    bottom = put(store, depends_on=after(middle, on_failure=on_failure))
    other = put(store, depends_on=after(top, middle, on_failure=on_failure))

    store.cancel([top], dependants=True)
    store.promote()

    assert states(reader, [top, middle, bottom, other]) == [CANCELLED] * 4
    assert look(reader, bottom).reason == f"cancelled with {middle}, which it depends on"
    assert claimed(store, 5) == []
    assert counts_of(reader) == Counts(cancelled=4)


def test_what_depends_on_a_running_job_that_is_forced_to_end_is_cancelled_with_it(
    store: Store, reader: Reader
) -> None:
    parent = started(store)
    child = put(store, depends_on=after(parent.id, on_failure=OnFailure.IGNORE))

    store.cancel([parent.id], force=True, dependants=True)

    assert states(reader, [parent.id, child]) == [DEAD, CANCELLED]


def test_a_job_that_waits_for_one_parent_twice_is_released_when_it_completes_after_a_revival(
    store: Store, reader: Reader
) -> None:
    twice = {"unique_key": "k"}
    ids = put_all(store, new_job(**twice), new_job(**twice), new_job(depends_on=after(2, 1)))
    holder, join = ids[0], ids[2]
    assert ids[1] == holder
    die(store, holder)
    assert look(reader, join).state is CANCELLED

    store.revive([holder], dependants=True)
    assert states(reader, [holder, join]) == [PENDING, BLOCKED]
    run(store, holder)

    run(store, join)
