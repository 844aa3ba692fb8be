"""Revive: dead and cancelled jobs get another life."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId, QueueName, UniqueUntil
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Cancelled, Completed, Discarded
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import InvalidJob
from forebay.stores.contract.claims_and_results import ActionResult, QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    STATES,
    T0,
    UNKNOWN,
    W1,
    attempts_of,
    claimed,
    counts_of,
    events_of,
    holder_of,
    kinds_of,
    look,
    make,
    put,
    queue_of,
    record,
    settle,
    start,
    started,
    states,
)

REVIVABLE = [JobState.DEAD, JobState.CANCELLED]
NOT_REVIVABLE = [state for state in STATES if state not in REVIVABLE]


@pytest.mark.shows("R-JOB-51", "R-DLQ-07", "R-DLQ-04", "R-JOB-46")
@pytest.mark.parametrize("state", REVIVABLE)
def test_a_dead_or_cancelled_job_becomes_pending_again(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state, payload=b"abc")
    clock.advance(ms=5)

    results = store.revive([job_id])

    job = look(reader, job_id)
    assert results == [ActionResult(job_id=job_id, applied=True, state=JobState.PENDING)]
    assert (job.state, job.payload, job.created_at) == (JobState.PENDING, b"abc", T0)
    assert (job.ready_at, job.run_at, job.updated_at) == (T0 + 5, T0 + 5, T0 + 5)
    assert (job.finished_at, job.reason, job.result) == (None, None, None)
    assert (job.worker, job.started_at, job.lease_expires_at) == (None, None, None)
    assert counts_of(reader) == Counts(pending=1)
    assert claimed(store, 1) == [job_id]


@pytest.mark.shows("R-JOB-51")
@pytest.mark.parametrize("state", REVIVABLE)
def test_a_job_can_be_revived_for_later(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    clock.advance(ms=5)

    [result] = store.revive([job_id], delay_ms=1_000)

    job = look(reader, job_id)
    assert (result.applied, result.state) == (True, JobState.SCHEDULED)
    assert (job.state, job.run_at, job.ready_at) == (JobState.SCHEDULED, T0 + 1_005, T0 + 1_005)
    assert counts_of(reader) == Counts(scheduled=1)


@pytest.mark.shows("R-JOB-45", "R-JOB-56")
@pytest.mark.parametrize("state", NOT_REVIVABLE)
def test_no_other_job_can_be_revived(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)

    [result] = store.revive([job_id], queue=MAIL)

    assert (result.applied, result.state) == (False, state)
    assert result.reason == f"a {state} job cannot be revived"
    assert record(reader, job_id) == before
    assert kinds_of(reader, job_id) == []


def test_an_unknown_job_cannot_be_revived(store: Store) -> None:
    [result] = store.revive([UNKNOWN])

    assert (result.job_id, result.applied, result.state) == (UNKNOWN, False, None)


@pytest.mark.shows("R-DLQ-07", "R-TEST-23", "R-LEASE-20", "R-JOB-51")
def test_a_revived_job_starts_with_fresh_failures_and_its_attempts_go_on(
    store: Store, reader: Reader
) -> None:
    job = started(store)
    settle(store, job, Discarded(BOOM), failures=4, crashes=2)

    store.revive([job.id])

    again = start(store)
    assert (again.failures, again.crashes, again.attempt) == (0, 0, 2)
    settle(store, again, Completed(b"1"))
    assert look(reader, job.id).state is JobState.COMPLETED


@pytest.mark.shows("R-DLQ-07")
def test_a_revived_job_may_keep_its_failures(store: Store, reader: Reader) -> None:
    job = started(store)
    settle(store, job, Discarded(BOOM), failures=4, crashes=2)

    store.revive([job.id], reset=False)

    again = look(reader, job.id)
    assert (again.failures, again.crashes) == (4, 2)
    assert again.rank == T0 + 8 * HOUR


@pytest.mark.parametrize("outcome", [Cancelled("enough"), Discarded(BOOM)])
def test_a_revived_job_has_no_result_of_its_first_life(
    store: Store, reader: Reader, outcome: Cancelled | Discarded
) -> None:
    job = started(store)
    settle(store, job, outcome, result=b"half of it")
    assert look(reader, job.id).result == b"half of it"

    store.revive([job.id])

    assert look(reader, job.id).result is None


def test_a_revived_job_keeps_its_errors_and_its_history(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)

    store.revive([job_id])

    assert [error.type for error in look(reader, job_id).errors] == ["Boom"]
    assert len(attempts_of(reader, job_id)) == 1


def test_a_revived_job_keeps_its_seq_and_goes_behind_the_jobs_that_wait(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    revived = make(store, JobState.CANCELLED)
    seq = look(reader, revived).seq
    waiting = put(store)
    clock.advance(ms=1)

    store.revive([revived])

    assert look(reader, revived).seq == seq
    assert claimed(store, 2) == [waiting, revived]


def test_a_revived_job_is_rid_of_the_request_to_cancel_it(store: Store, reader: Reader) -> None:
    job = started(store)
    store.cancel([job.id], "stop")
    settle(store, job, Discarded(BOOM))

    store.revive([job.id])

    assert look(reader, job.id).cancel_reason is None
    start(store)
    assert store.settle_and_claim(W1).cancels == ()


@pytest.mark.shows("R-DLQ-09")
def test_a_job_can_be_revived_in_another_queue(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)
    store.save_queue(MAIL)

    store.revive([job_id], queue=MAIL)

    assert look(reader, job_id).queue == MAIL
    assert counts_of(reader) == Counts()
    assert counts_of(reader, MAIL) == Counts(pending=1)
    assert claimed(store, 1, queue=MAIL) == [job_id]


def test_the_queue_a_job_is_revived_in_is_created_if_need_be(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)

    store.revive([job_id], queue=MAIL)

    assert queue_of(reader, MAIL).state is QueueState.ACTIVE
    assert look(reader, job_id).queue == MAIL


@pytest.mark.parametrize("state", [QueueState.DRAINING, QueueState.DROPPED])
def test_a_queue_that_takes_no_jobs_takes_no_revived_ones(
    store: Store, reader: Reader, state: QueueState
) -> None:
    job_id = make(store, JobState.DEAD)
    store.save_queue(MAIL, state=state)
    before = record(reader, job_id)

    [result] = store.revive([job_id], queue=MAIL)

    assert (result.applied, result.state) == (False, JobState.DEAD)
    assert result.reason == f"queue mail is {state}"
    assert record(reader, job_id) == before


def test_a_job_of_a_dropped_queue_can_be_revived_in_another_one(store: Store, reader: Reader) -> None:
    job_id = put(store)
    store.drop_queue(DEFAULT, force=True)

    refused, *_ = store.revive([job_id])
    [result] = store.revive([job_id], queue=MAIL)

    assert (refused.applied, refused.reason) == (False, "queue default is dropped")
    assert (result.applied, look(reader, job_id).queue) == (True, MAIL)


def test_a_revived_job_takes_its_unique_key_again(store: Store) -> None:
    job_id = make(store, JobState.DEAD, unique_key="k")

    store.revive([job_id])

    assert holder_of(store, unique_key="k") == job_id


def test_a_revived_job_takes_its_unique_key_in_its_new_queue(store: Store) -> None:
    job_id = make(store, JobState.DEAD, unique_key="k")

    store.revive([job_id], queue=MAIL)

    assert holder_of(store, unique_key="k", queue=MAIL) == job_id
    assert put(store, unique_key="k") != job_id


@pytest.mark.parametrize("until", list(UniqueUntil))
def test_a_job_whose_unique_key_is_taken_stays_where_it_is(
    store: Store, reader: Reader, until: UniqueUntil
) -> None:
    job_id = make(store, JobState.DEAD, unique_key="k", unique_until=until)
    holder = put(store, unique_key="k")
    before = record(reader, job_id)

    [result] = store.revive([job_id])

    assert (result.applied, result.state) == (False, JobState.DEAD)
    assert result.reason == f"its unique key is held by {holder}"
    assert record(reader, job_id) == before
    assert holder_of(store, unique_key="k") == holder


def test_of_two_jobs_with_one_unique_key_only_the_first_is_revived(store: Store, reader: Reader) -> None:
    first = make(store, JobState.CANCELLED, unique_key="k")
    second = make(store, JobState.CANCELLED, unique_key="k")

    results = store.revive([second, first])

    assert [result.applied for result in results] == [True, False]
    assert states(reader, [first, second]) == [JobState.CANCELLED, JobState.PENDING]


def test_an_expiry_in_the_past_is_forgotten_at_the_revival(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, expires_at=T0 + 1_000)
    clock.advance(ms=1_000)
    store.promote()

    store.revive([job_id])

    assert look(reader, job_id).expires_at is None
    assert claimed(store, 1) == [job_id]


def test_an_expiry_ahead_is_kept_at_the_revival(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = make(store, JobState.CANCELLED, expires_at=T0 + 1_000)
    store.revive([job_id])
    clock.advance(ms=1_000)

    store.promote()

    assert look(reader, job_id).reason == "expired"


@pytest.mark.shows("R-HIST-02", "R-HIST-30")
def test_a_revival_leaves_an_event_with_who_and_where(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = make(store, JobState.DEAD)
    clock.advance(ms=5)

    store.revive([job_id], queue=MAIL, actor="ann")

    [event] = events_of(reader, job_id)
    assert (event.kind, event.occurred_at, event.actor, event.queue) == (
        EventKind.REVIVED,
        T0 + 5,
        "ann",
        MAIL,
    )
    assert isinstance(event, Event)


@pytest.mark.shows("R-DLQ-04")
def test_a_job_that_dies_again_is_among_the_dead_letters_once(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = make(store, JobState.DEAD)
    store.revive([job_id])
    clock.advance(ms=5)

    settle(store, start(store), Discarded(BOOM))

    dead = look(reader, job_id)
    assert (dead.state, dead.finished_at, dead.failures) == (JobState.DEAD, T0 + 5, 1)
    assert counts_of(reader) == Counts(dead=1)
    assert [row.attempt for row in attempts_of(reader, job_id)] == [1, 2]


def test_a_revived_job_is_not_held_up_by_a_full_queue(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.CANCELLED)
    store.save_queue(DEFAULT, {"max_length": 1})
    put(store)

    [result] = store.revive([job_id])

    assert result.applied


def test_results_come_in_the_order_asked(store: Store) -> None:
    dead, done = make(store, JobState.DEAD), make(store, JobState.COMPLETED)

    results = store.revive([done, UNKNOWN, dead, dead])

    assert [(result.job_id, result.applied) for result in results] == [
        (done, False),
        (UNKNOWN, False),
        (dead, True),
        (dead, False),
    ]
    assert isinstance(results[0].job_id, str)
    assert results[3].reason == "a pending job cannot be revived"


def test_a_revived_job_keeps_an_id_that_was_brought(store: Store, reader: Reader) -> None:
    make(store, JobState.CANCELLED, id=JobId("mine"))

    store.revive([JobId("mine")])

    assert look(reader, JobId("mine")).state is JobState.PENDING


@pytest.mark.parametrize("name", ["a:b", "forebay-alerts"])
def test_a_job_cannot_be_revived_in_a_queue_with_a_wrong_name(
    store: Store, reader: Reader, name: str
) -> None:
    job_id = make(store, JobState.DEAD)
    before = record(reader, job_id)

    with pytest.raises(InvalidJob):
        store.revive([job_id], queue=QueueName(name))

    assert record(reader, job_id) == before
    assert [queue.name for queue in reader.queues()] == [DEFAULT]


def test_a_job_revived_into_another_queue_is_no_longer_claimed_from_the_first(store: Store) -> None:
    job_id = put(store, queue=QueueName("first"))
    store.cancel([job_id])
    store.revive([job_id], queue=QueueName("second"))

    from_first = store.settle_and_claim(W1, claims=[QueueClaim(QueueName("first"), 5)], room=5)
    from_second = store.settle_and_claim(W1, claims=[QueueClaim(QueueName("second"), 5)], room=5)

    assert from_first.jobs == ()
    assert [job.id for job in from_second.jobs] == [job_id]


def test_a_job_revived_into_another_queue_is_due_there_alone(store: Store) -> None:
    job_id = put(store, queue=QueueName("first"), delay_ms=1_000)
    store.cancel([job_id])
    store.revive([job_id], queue=QueueName("second"), delay_ms=1_000)

    dues = [
        store.settle_and_claim(W1, claims=[QueueClaim(QueueName(name), 5)], room=5).next_due_ms
        for name in ("first", "second")
    ]

    assert dues == [None, 1_000]


def test_a_job_that_has_ended_since_a_time_is_not_revived_by_its_id_either(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    dead, cancelled = make(store, JobState.DEAD), make(store, JobState.CANCELLED)
    clock.advance(ms=5)
    began = T0 + 5

    [first, second, again] = store.revive([dead, cancelled, dead], ended_before=began)
    settle(store, start(store), Discarded(BOOM))
    store.cancel([cancelled])
    before = record(reader, dead), record(reader, cancelled)
    refused = store.revive([dead, cancelled], ended_before=began)

    assert (first.applied, second.applied, again.applied) == (True, True, False)
    assert [(one.applied, one.reason) for one in refused] == [(False, "it has ended since")] * 2
    assert (record(reader, dead), record(reader, cancelled)) == before
    assert [one.applied for one in store.revive([dead, cancelled], ended_before=began + 1)] == [True, True]
