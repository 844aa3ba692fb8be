"""Sequences: one job at a time, in the order of acceptance, until it is final or gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.domain.job import Dependency, Job, JobId, OnFailure
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Discarded, Failed, Outcome, Snoozed
from forebay.domain.queue_counts import Counts
from forebay.errors import InvalidJob
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    SECOND,
    SWEEPER,
    W1,
    claimed,
    counts_of,
    look,
    put,
    put_many,
    settle,
    start,
    states,
    together,
)
from tests.stores.support import claim, complete, everything, new_job

PENDING, BLOCKED, SCHEDULED, RETRYING = (
    JobState.PENDING,
    JobState.BLOCKED,
    JobState.SCHEDULED,
    JobState.RETRYING,
)
DEAD, CANCELLED, COMPLETED = JobState.DEAD, JobState.CANCELLED, JobState.COMPLETED


def run_all(store: Store, outcome: Callable[[Job], Outcome] = lambda _: Completed()) -> list[JobId]:
    """Run whatever may run until nothing may; in which order."""
    ran: list[JobId] = []
    while jobs := claim(store, 10):
        ran += [job.id for job in jobs]
        for job in jobs:
            settle(store, job, outcome(job))
    return ran


def test_a_reader_knows_whose_turn_it_is(store: Store, reader: Reader) -> None:
    first, second = put_many(store, 2, sequence="s")
    put(store, sequence="other")

    turns = [reader.first_in_sequence("s")]
    settle(store, start(store), Completed())
    turns.append(reader.first_in_sequence("s"))

    assert (turns, reader.first_in_sequence("absent's")) == ([first, second], None)


def test_jobs_of_a_sequence_run_one_at_a_time_in_the_order_of_acceptance(
    store: Store, reader: Reader
) -> None:
    first = put(store, sequence="s", priority=-5)
    second, third = put_many(store, 2, sequence="s", priority=5)
    free = put(store)

    assert states(reader, [first, second, third]) == [PENDING, BLOCKED, BLOCKED]
    assert counts_of(reader) == Counts(pending=2, blocked=2)
    assert look(reader, second).sequence == "s"
    assert {job.id for job in everything(reader, JobQuery(states=(BLOCKED,)))} == {second, third}
    assert sorted(claimed(store, 10)) == sorted([first, free])
    settle(store, look(reader, first), Completed())
    assert states(reader, [first, second, third]) == [COMPLETED, PENDING, BLOCKED]
    assert run_all(store) == [second, third]


def test_the_next_job_is_claimed_in_the_settle_and_claim_that_ends_the_one_before(store: Store) -> None:
    ids = put_many(store, 3, sequence="s")
    [job] = claim(store, 10)

    answer = store.settle_and_claim(W1, [complete(job)], [QueueClaim(DEFAULT, 5)], 5)

    assert [job.id, *(one.id for one in answer.jobs)] == ids[:2]


def test_others_wait_while_the_first_is_scheduled_retrying_or_snoozed(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = put(store, sequence="s", delay_ms=SECOND)
    second = put(store, sequence="s")

    assert claimed(store, 5) == []
    clock.advance(ms=SECOND)
    settle(store, start(store), Failed(BOOM, SECOND))
    assert (claimed(store, 5), states(reader, [first, second])) == ([], [RETRYING, BLOCKED])
    clock.advance(ms=SECOND)
    settle(store, start(store), Snoozed(SECOND))
    assert (claimed(store, 5), states(reader, [first, second])) == ([], [SCHEDULED, BLOCKED])
    clock.advance(ms=SECOND)
    assert run_all(store) == [first, second]


def test_any_end_of_the_first_lets_the_next_one_run(store: Store, reader: Reader, clock: ManualClock) -> None:
    ids = put_many(store, 6, sequence="s")
    expiring = put(store, sequence="s", expires_at=clock.now_ms() + 10 * SECOND)
    last = put(store, sequence="s")

    settle(store, start(store), Discarded(BOOM))
    assert states(reader, ids[:2]) == [DEAD, PENDING]
    store.cancel([ids[1]])
    assert states(reader, ids[1:3]) == [CANCELLED, PENDING]
    store.delete([ids[2]])
    assert states(reader, ids[2:4]) == [None, PENDING]
    assert start(store).id == ids[3]
    store.cancel([ids[3]], force=True)
    assert states(reader, ids[3:5]) == [DEAD, PENDING]
    settle(store, start(store), Completed())
    job = start(store)
    clock.advance(ms=HOUR)
    [swept] = store.sweep(SWEEPER)
    settle(store, swept, Discarded(BOOM), SWEEPER)
    store.promote()
    assert (job.id, states(reader, [ids[5], expiring, last])) == (ids[5], [DEAD, CANCELLED, PENDING])


def test_one_that_ends_out_of_its_turn_is_passed_over(store: Store, reader: Reader) -> None:
    ids = put_many(store, 5, sequence="s")

    store.cancel([ids[1]])
    store.delete([ids[3]])

    assert states(reader, ids) == [PENDING, CANCELLED, BLOCKED, None, BLOCKED]
    assert run_all(store) == [ids[0], ids[2], ids[4]]


@pytest.mark.parametrize("way", ["cancel", "delete"])
def test_several_that_end_in_one_call_are_passed_over(store: Store, reader: Reader, way: str) -> None:
    ids = put_many(store, 4, sequence="s")

    getattr(store, way)(ids[:2])

    assert states(reader, ids[2:]) == [PENDING, BLOCKED]
    assert run_all(store) == ids[2:]


def test_a_revived_job_comes_last(store: Store, reader: Reader) -> None:
    ids = put_many(store, 3, sequence="s")
    settle(store, start(store), Discarded(BOOM))
    store.cancel([ids[2]])
    other = put(store, sequence="s")

    [result] = store.revive([ids[0]])
    store.revive([ids[2]])

    assert result.state is BLOCKED
    assert states(reader, [*ids, other]) == [BLOCKED, PENDING, BLOCKED, BLOCKED]
    assert run_all(store) == [ids[1], other, ids[0], ids[2]]


def test_a_revived_job_that_is_alone_in_its_sequence_runs_at_once(store: Store, reader: Reader) -> None:
    job_id = put(store, sequence="s")
    store.cancel([job_id])

    store.revive([job_id])
    later = put(store, sequence="s")

    assert states(reader, [job_id, later]) == [PENDING, BLOCKED]
    assert run_all(store) == [job_id, later]


def test_a_sequence_goes_over_queues_and_others_are_not_held_up_by_it(store: Store, reader: Reader) -> None:
    first = put(store, sequence="s", queue=MAIL)
    second = put(store, sequence="s")
    other = put(store, sequence="t")

    assert claimed(store, 5) == [other]
    [job] = claim(store, 5, MAIL)
    settle(store, job, Completed())

    assert (job.id, claimed(store, 5)) == (first, [second])


def test_a_job_with_parents_waits_for_these_and_for_its_turn(store: Store, reader: Reader) -> None:
    parent = put(store)
    first = put(store, sequence="s")
    needs = (Dependency(parent, OnFailure.CANCEL),)
    child = put(store, sequence="s", depends_on=needs)
    last = put(store, sequence="s")

    settle(store, start(store), Completed())
    assert states(reader, [first, child, last]) == [PENDING, BLOCKED, BLOCKED]
    assert run_all(store) == [first, child, last]
    assert [edge.child for edge in reader.dependants([parent])] == [child]
    assert reader.parents([last]) == []


def test_to_cancel_a_job_with_its_dependants_leaves_the_rest_of_its_sequence(
    store: Store, reader: Reader
) -> None:
    first, second = put_many(store, 2, sequence="s")
    child = put(store, depends_on=(Dependency(first),))

    store.cancel([first], dependants=True)

    assert states(reader, [first, child, second]) == [CANCELLED, CANCELLED, PENDING]


def test_a_follow_up_comes_after_the_job_that_hands_it_back(store: Store, reader: Reader) -> None:
    first = put(store, sequence="s")
    job = start(store)

    settle(store, job, Completed(), follow_ups=(new_job(sequence="s"), new_job(sequence="s", task="u")))

    assert counts_of(reader) == Counts(completed=1, pending=1, blocked=1)
    ran = [look(reader, job_id) for job_id in run_all(store)]
    assert [(job.task, job.parent_id) for job in ran] == [("t", first), ("u", first)]


def test_a_job_that_is_refused_leaves_no_place_in_its_sequence(store: Store, reader: Reader) -> None:
    with pytest.raises(InvalidJob):
        store.insert(
            [new_job(sequence="s"), new_job(sequence="s", depends_on=(Dependency(JobId("absent")),))]
        )
    store.insert([new_job(unique_key="u", sequence="s")])
    [taken] = store.insert([new_job(unique_key="u", sequence="s")])

    assert not taken.is_new
    assert counts_of(reader) == Counts(pending=1)


def test_a_long_sequence_comes_to_its_end_step_by_step(store: Store) -> None:
    ids = put_many(store, 200, sequence="s")

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 10)], room=10)
    ran = []
    while answer.jobs:
        [job] = answer.jobs
        ran.append(job.id)
        answer = store.settle_and_claim(W1, [complete(job)], [QueueClaim(DEFAULT, 10)], 10)

    assert ran == ids


def test_many_who_join_while_others_end_leave_no_job_behind(
    engine: Engine, store: Store, reader: Reader
) -> None:
    def join(store: Store) -> None:
        for number in range(30):
            store.insert([new_job(sequence=f"s{number % 3}"), new_job(sequence="s0")])

    def work(store: Store) -> None:
        for _ in range(60):
            for job in claim(store, 3):
                store.settle_and_claim(W1, [complete(job)])

    together(engine, [join, join, work, work])

    run_all(store)
    assert counts_of(reader) == Counts(completed=120)


@pytest.mark.parametrize("sequence", ["s", "t", None])
def test_an_id_that_is_brought_again_before_its_end_was_propagated_delays_no_other_job(
    store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch, sequence: str | None
) -> None:
    mine = put(store, id=JobId("mine"), sequence="s")
    second = put(store, sequence="s")
    with monkeypatch.context() as patch:
        # A call that deletes it goes no further; the engines that have one transaction for all have no such
        # step.
        patch.setattr(type(store), "_follow", lambda _: False, raising=False)
        store.delete([mine])

    put(store, id=mine, sequence=sequence)
    last = put(store, sequence="s")
    for _ in range(3):
        store.promote()

    assert look(reader, second).state is PENDING
    assert sorted(run_all(store)) == sorted([mine, second, last])
