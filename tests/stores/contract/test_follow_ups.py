"""Follow-ups: new jobs that are written in the transaction that settles their parent."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Failed, Outcome, Snoozed
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import DuplicateJob, InvalidJob, StoreRefused
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    T0,
    W1,
    W2,
    counts_of,
    ended,
    events_of,
    kinds_of,
    look,
    put,
    queue_of,
    record,
    settle,
    started,
)
from tests.stores.support import everything, new_job


def complete_with(store: Store, job: Job, *follow_ups: NewJob) -> SettleAndClaimResult:
    return settle(store, job, Completed(b"1"), follow_ups=follow_ups)


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM, HOUR), Snoozed(HOUR)])
def test_follow_ups_are_inserted_when_their_parent_is_settled(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    parent = started(store)
    clock.advance(ms=10)
    now = new_job(id=JobId("now"), task="next", payload=b"abc", queue=MAIL)
    later = new_job(id=JobId("later"), queue=MAIL, delay_ms=500)

    settle(store, parent, outcome, follow_ups=(now, later))

    first, second = look(reader, JobId("now")), look(reader, JobId("later"))
    assert (first.state, first.task, first.payload) == (JobState.PENDING, "next", b"abc")
    assert (first.created_at, first.ready_at, first.attempt) == (T0 + 10, T0 + 10, 0)
    assert (second.state, second.run_at) == (JobState.SCHEDULED, T0 + 510)
    assert counts_of(reader, MAIL) == Counts(pending=1, scheduled=1)


@pytest.mark.shows("R-DEP-05")
def test_a_follow_up_names_its_parent(store: Store, reader: Reader) -> None:
    parent = started(store)

    complete_with(store, parent, new_job(id=JobId("next")))

    assert look(reader, JobId("next")).parent_id == parent.id


def test_a_follow_up_keeps_a_parent_of_its_own(store: Store, reader: Reader) -> None:
    parent = started(store)

    complete_with(store, parent, new_job(id=JobId("next"), parent_id=JobId("grandparent")))

    assert look(reader, JobId("next")).parent_id == "grandparent"


def test_a_follow_up_may_take_the_unique_key_that_its_parent_frees(store: Store, reader: Reader) -> None:
    parent = started(store, unique_key="k")

    complete_with(store, parent, new_job(id=JobId("next"), unique_key="k"))

    assert look(reader, JobId("next")).state is JobState.PENDING


def test_follow_ups_are_accepted_by_a_full_queue(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put(store, queue=MAIL)

    complete_with(store, started(store), new_job(queue=MAIL))

    assert counts_of(reader, MAIL) == Counts(pending=2)


def test_follow_ups_are_accepted_by_a_draining_queue(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, state=QueueState.DRAINING)

    complete_with(store, started(store), new_job(queue=MAIL))

    assert counts_of(reader, MAIL) == Counts(pending=1)


def test_follow_ups_are_accepted_by_a_dropped_queue(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)
    store.drop_queue(MAIL)

    complete_with(store, started(store), new_job(queue=MAIL))

    assert counts_of(reader, MAIL) == Counts(pending=1)
    assert queue_of(reader, MAIL).state is QueueState.DROPPED


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_a_follow_up_with_a_taken_key_is_dropped_with_a_note_on_its_parent(
    store: Store, reader: Reader, clock: ManualClock, kind: str
) -> None:
    holder = put(store, queue=MAIL, **{kind: "k"})
    parent = started(store)
    clock.advance(ms=3)

    answer = complete_with(store, parent, new_job(queue=MAIL, task="next", **{kind: "k"}))

    assert answer.settled == (parent.id,)
    assert counts_of(reader, MAIL) == Counts(pending=1)
    assert events_of(reader, parent.id) == [
        Event(
            kind=EventKind.FOLLOW_UP_SKIPPED,
            occurred_at=T0 + 3,
            job_id=parent.id,
            queue=DEFAULT,
            attempt=1,
            actor=W1,
            detail=f"next: key taken by {holder}",
        )
    ]


def test_two_follow_ups_with_one_unique_key_become_one(store: Store, reader: Reader) -> None:
    parent = started(store)

    complete_with(store, parent, new_job(queue=MAIL, unique_key="k"), new_job(queue=MAIL, unique_key="k"))

    assert counts_of(reader, MAIL) == Counts(pending=1)
    assert kinds_of(reader, parent.id) == [EventKind.FOLLOW_UP_SKIPPED]


def test_a_follow_up_may_take_the_unique_key_of_one_that_is_settled_before_its_parent(
    store: Store, reader: Reader
) -> None:
    holder, parent = started(store, unique_key="k"), started(store)
    follow_up = new_job(id=JobId("next"), unique_key="k")

    store.settle_and_claim(
        W1, [ended(holder, Completed(b"1")), ended(parent, Completed(b"1"), follow_ups=(follow_up,))]
    )

    assert look(reader, JobId("next")).state is JobState.PENDING
    assert kinds_of(reader, parent.id) == []


def test_a_repeated_settlement_does_not_follow_up_again(store: Store, reader: Reader) -> None:
    parent = started(store)
    complete_with(store, parent, new_job(queue=MAIL))

    answer = complete_with(store, parent, new_job(queue=MAIL))

    assert answer.repeated == (parent.id,)
    assert counts_of(reader, MAIL) == Counts(pending=1)


def test_a_refused_settlement_does_not_follow_up(store: Store, reader: Reader) -> None:
    parent = started(store, W1)

    answer = store.settle_and_claim(W2, [ended(parent, Completed(b"1"), follow_ups=(new_job(queue=MAIL),))])

    assert len(answer.refused) == 1
    assert reader.queues([MAIL]) == []
    assert len(everything(reader, JobQuery())) == 1


REFUSED: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"id": JobId("taken")}, DuplicateJob),
    ({"queue": MAIL, "priority": 99}, InvalidJob),
]


@pytest.mark.parametrize(("change", "cause"), REFUSED)
def test_a_follow_up_that_cannot_be_stored_undoes_the_whole_settle_and_claim(
    store: Store, reader: Reader, change: dict[str, Any], cause: type[Exception]
) -> None:
    put(store, queue=MAIL, id=JobId("taken"))
    store.save_queue(MAIL, {"max_priority": 10})
    good, bad = started(store), started(store)
    before = [record(reader, job.id) for job in (good, bad)]
    fine = new_job(id=JobId("fine"), unique_key="k")

    with pytest.raises(StoreRefused) as caught:
        store.settle_and_claim(
            W1,
            [
                ended(good, Completed(b"1"), follow_ups=(fine,)),
                ended(bad, Completed(b"1"), follow_ups=(new_job(**change),)),
            ],
        )

    assert isinstance(caught.value.__cause__, cause)
    assert [record(reader, job.id) for job in (good, bad)] == before
    assert reader.jobs([JobId("fine")]) == [None]
    assert put(store, unique_key="k")
