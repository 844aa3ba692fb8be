"""Promote: what is due becomes pending, what is past its expiry is cancelled."""

from __future__ import annotations

import pytest

from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Failed, Snoozed
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
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
    STATES,
    T0,
    W1,
    counts_of,
    events_of,
    look,
    make,
    put,
    put_many,
    record,
    settle,
    started,
    states,
)

DUE_STATES = [JobState.SCHEDULED, JobState.RETRYING]
NOT_DUE_STATES = [state for state in STATES if state not in DUE_STATES]
WAITING_STATES = [JobState.SCHEDULED, JobState.PENDING, JobState.RETRYING]
NOT_WAITING_STATES = [state for state in STATES if state not in WAITING_STATES]


@pytest.mark.shows("R-JOB-54", "R-JOB-49", "R-SCHED-01", "R-BUG-23", "R-SCHED-03")
@pytest.mark.parametrize("state", DUE_STATES)
def test_a_job_becomes_pending_when_it_is_due_and_not_before(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)

    clock.advance(ms=HOUR - 1)
    assert store.promote() == 0
    assert look(reader, job_id).state is state

    clock.advance(ms=1)
    assert store.promote() == 1
    assert look(reader, job_id).state is JobState.PENDING
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-JOB-46")
def test_a_promotion_leaves_the_rest_of_the_job_as_it_was(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = make(store, JobState.SCHEDULED, payload=b"abc", tags=("x",))
    before = record(reader, job_id)
    assert before is not None
    clock.advance(ms=2 * HOUR)

    store.promote()

    after = record(reader, job_id)
    assert after == before | {"state": JobState.PENDING, "updated_at": T0 + 2 * HOUR}


def test_a_promoted_job_gets_a_fresh_rank(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    job_id = put(store, delay_ms=1_000, priority=2)
    clock.advance(ms=60_000)

    store.promote()

    job = look(reader, job_id)
    assert (job.age_capped, job.rank) == (True, -2_000)


@pytest.mark.shows("R-JOB-45")
@pytest.mark.parametrize("state", NOT_DUE_STATES)
def test_only_scheduled_and_retrying_jobs_are_promoted(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)
    clock.advance(ms=DAY)

    assert store.promote() == 0

    assert record(reader, job_id) == before


@pytest.mark.parametrize("queue_state", [QueueState.PAUSED, QueueState.DRAINING])
def test_jobs_are_promoted_whether_or_not_their_queue_gives_them_out(
    store: Store, reader: Reader, clock: ManualClock, queue_state: QueueState
) -> None:
    job_id = put(store, delay_ms=1)
    store.save_queue(DEFAULT, state=queue_state)
    clock.advance(ms=1)

    store.promote()

    assert look(reader, job_id).state is JobState.PENDING


def test_a_promotion_is_not_held_up_by_a_full_queue(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"max_length": 1})
    put_many(store, 3, delay_ms=1)
    clock.advance(ms=1)

    store.promote()

    assert counts_of(reader) == Counts(pending=3)


def test_the_earliest_jobs_of_all_queues_are_promoted_first(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    late = put(store, delay_ms=300)
    soon = put(store, delay_ms=100, queue=MAIL)
    middle = put(store, delay_ms=200)
    same = put(store, delay_ms=200, queue=MAIL)
    clock.advance(ms=HOUR)

    assert store.promote(limit=2) == 2

    assert states(reader, [soon, middle, same, late]) == [
        JobState.PENDING,
        JobState.PENDING,
        JobState.SCHEDULED,
        JobState.SCHEDULED,
    ]


@pytest.mark.shows("R-RETRY-26")
def test_promotion_goes_in_batches_until_nothing_is_left(store: Store, clock: ManualClock) -> None:
    put_many(store, 5, delay_ms=1)
    clock.advance(ms=1)

    assert [store.promote(limit=2) for _ in range(4)] == [2, 2, 1, 0]


# Expiry.


@pytest.mark.parametrize("state", WAITING_STATES)
def test_a_waiting_job_is_cancelled_at_its_expiry_and_not_before(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state, expires_at=T0 + 1_000, unique_key="k")

    clock.advance(ms=999)
    assert store.promote() == 0
    assert look(reader, job_id).state is state

    clock.advance(ms=1)
    assert store.promote() == 1
    job = look(reader, job_id)
    assert (job.state, job.reason) == (JobState.CANCELLED, "expired")
    assert (job.finished_at, job.updated_at) == (T0 + 1_000, T0 + 1_000)
    assert counts_of(reader) == Counts(cancelled=1)
    assert put(store, unique_key="k") != job_id


def test_an_expired_job_leaves_an_event(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store, expires_at=T0 + 1_000)
    clock.advance(ms=1_500)

    store.promote()

    [event] = events_of(reader, job_id)
    assert (event.kind, event.occurred_at, event.queue) == (EventKind.EXPIRED, T0 + 1_500, DEFAULT)
    assert (event.job_id, event.detail) == (job_id, "")
    assert isinstance(event, Event)


@pytest.mark.parametrize("state", NOT_WAITING_STATES)
def test_only_waiting_jobs_expire(store: Store, reader: Reader, clock: ManualClock, state: JobState) -> None:
    job_id = make(store, state, expires_at=T0 + 1_000)
    before = record(reader, job_id)
    clock.advance(ms=DAY)

    assert store.promote() == 0

    assert record(reader, job_id) == before


@pytest.mark.parametrize("outcome", [Failed(BOOM, 5_000), Snoozed(5_000)])
def test_a_job_that_has_run_and_waits_again_expires_too(
    store: Store, reader: Reader, clock: ManualClock, outcome: Failed | Snoozed
) -> None:
    job = started(store, expires_at=T0 + 1_000)
    clock.advance(ms=2_000)
    settle(store, job, outcome)

    store.promote()

    assert look(reader, job.id).reason == "expired"


def test_a_job_that_is_due_and_expired_at_once_is_cancelled(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, delay_ms=1_000, expires_at=T0 + 1_000)
    clock.advance(ms=1_000)

    store.promote()

    assert look(reader, job_id).state is JobState.CANCELLED


def test_jobs_expire_soonest_first_and_no_more_than_the_limit(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    late = put(store, expires_at=T0 + 300)
    soon = put(store, expires_at=T0 + 100, queue=MAIL)
    middle = put(store, expires_at=T0 + 200)
    clock.advance(ms=HOUR)

    assert store.promote(limit=2) == 2

    assert states(reader, [soon, middle, late]) == [
        JobState.CANCELLED,
        JobState.CANCELLED,
        JobState.PENDING,
    ]


def test_the_answer_counts_promoted_and_expired_jobs_together(store: Store, clock: ManualClock) -> None:
    put_many(store, 2, delay_ms=1)
    put_many(store, 3, expires_at=T0 + 1)
    clock.advance(ms=1)

    assert store.promote() == 5


def test_a_settle_and_claim_expires_jobs_of_all_queues(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, queue=MAIL, expires_at=T0 + 1)
    put(store)
    clock.advance(ms=1)

    store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)

    assert look(reader, job_id).state is JobState.CANCELLED
