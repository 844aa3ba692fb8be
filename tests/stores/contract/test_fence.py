"""The fence: a settlement counts only for the attempt and the worker that hold the lease."""

from __future__ import annotations

from typing import Final

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lane import lanes_for_program
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    AttemptError,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
)
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import OutcomeKind
from forebay.stores.contract.claims_and_results import LeaseRefusal, QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    SWEEPER,
    T0,
    UNKNOWN,
    W1,
    W2,
    attempts_of,
    ended,
    events_of,
    kinds_of,
    look,
    make,
    put,
    record,
    settle,
    start,
    started,
)
from tests.stores.support import claim, complete, fail, new_job

TIMEOUT: Final = AttemptError(type="Timeout", message="ran longer than 1 s")
ENDS: list[Outcome] = [Completed(b"stale"), Failed(BOOM, 5), Snoozed(5), Interrupted(), Discarded(BOOM)]


@pytest.mark.shows("R-LEASE-22", "R-JOB-48", "R-LEASE-26", "R-BUG-05", "R-BUG-33", "R-LEASE-25")
@pytest.mark.parametrize("outcome", ENDS)
def test_another_worker_cannot_settle_an_attempt(store: Store, reader: Reader, outcome: Outcome) -> None:
    job = started(store, W1)
    before = record(reader, job.id)

    answer = settle(store, job, outcome, W2)

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 1), reason="other worker"),)
    assert record(reader, job.id) == before
    assert attempts_of(reader, job.id) == []


@pytest.mark.shows("R-LEASE-22", "R-EDGE-15")
@pytest.mark.parametrize("outcome", ENDS)
def test_an_attempt_that_was_settled_as_timed_out_is_not_settled_when_its_code_comes_back(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    job = started(store, W1)
    assert settle(store, job, Failed(TIMEOUT, 5), W1).settled == (job.id,)
    before = record(reader, job.id)

    late = settle(store, job, outcome, W1)

    assert late.settled == ()
    assert record(reader, job.id) == before
    clock.advance(1_000)
    store.promote()
    [again] = claim(store, 1, worker=W1)
    assert (again.id, again.attempt) == (job.id, 2)
    before = record(reader, job.id)
    assert settle(store, job, outcome, W1).settled == ()
    assert record(reader, job.id) == before


@pytest.mark.shows("R-LEASE-20", "R-LEASE-21", "R-LEASE-22", "R-LEASE-26", "R-JOB-27", "R-LEASE-34")
@pytest.mark.parametrize("outcome", ENDS)
def test_an_earlier_attempt_of_the_same_worker_cannot_be_settled(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    first = started(store, W1)
    settle(store, first, Interrupted())
    second = start(store, W1)
    before = record(reader, first.id)

    answer = settle(store, first, outcome)

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert record(reader, first.id) == before
    assert (second.attempt, attempts_of(reader, first.id)) == (2, [])


@pytest.mark.parametrize("outcome", [Completed(b"1"), Interrupted()])
def test_an_earlier_attempt_cannot_be_settled_when_a_later_one_of_the_same_worker_has_ended(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    first = started(store, W1)
    settle(store, first, Interrupted())
    settle(store, start(store, W1), Interrupted())
    before = record(reader, first.id)

    answer = settle(store, first, outcome)

    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert record(reader, first.id) == before


def test_an_earlier_attempt_cannot_be_settled_after_the_job_was_updated(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = started(store, W1)
    settle(store, first, Interrupted())
    start(store, W1)
    clock.advance(ms=77)
    store.update_job(first.id, JobUpdate(metadata={"seen": True}))
    before = record(reader, first.id)

    answer = settle(store, first, Completed(b"stale"))

    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert record(reader, first.id) == before


@pytest.mark.parametrize("concurrency", [None, 10])
def test_an_earlier_attempt_is_not_settled_by_who_claims_at_once(
    store: Store, reader: Reader, concurrency: int | None
) -> None:
    """As workers do it, who name their tasks: engines have short ways for that, with limits and without."""
    if concurrency is not None:
        store.save_limit(Limit(scope=GLOBAL, concurrency=concurrency))
    first = started(store, W1)
    settle(store, first, Interrupted())
    start(store, W1)
    before = record(reader, first.id)
    other = put(store)

    request = QueueClaim(DEFAULT, 5, lanes=lanes_for_program([first.task], 1))
    answer = store.settle_and_claim(W1, [ended(first, Completed(b"stale"))], [request], 5)

    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert [job.id for job in answer.jobs] == [other]
    assert record(reader, first.id) == before


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM, 0)])
def test_who_has_told_of_an_earlier_failure_has_not_ended_a_later_attempt(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    settle(store, started(store, W1), Failed(BOOM, 0))
    second = start(store, W2)
    before = record(reader, second.id)

    answer = settle(store, second, outcome, W1)

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(second.id, 2), reason="other worker"),)
    assert record(reader, second.id) == before


def test_an_attempt_that_has_not_begun_cannot_be_settled(store: Store, reader: Reader) -> None:
    job = started(store, W1)
    before = record(reader, job.id)

    answer = settle(store, job, Completed(b"1"), attempt=2)

    assert [refusal.reason for refusal in answer.refused] == ["other attempt"]
    assert record(reader, job.id) == before


@pytest.mark.shows("R-LEASE-25", "R-JOB-45")
@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SCHEDULED, JobState.CANCELLED])
def test_a_job_that_never_ran_cannot_be_settled(store: Store, reader: Reader, state: JobState) -> None:
    job = look(reader, make(store, state))
    before = record(reader, job.id)

    answer = settle(store, job, Completed(b"1"), W1)

    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 0), reason="other state"),)
    assert record(reader, job.id) == before


@pytest.mark.shows("R-LEASE-25")
def test_a_job_that_is_gone_is_refused_as_gone(store: Store, reader: Reader) -> None:
    job = started(store)
    settle(store, job, Completed(b"1"))
    store.delete([job.id])

    answer = settle(store, job, Completed(b"1"))

    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 1), reason="gone"),)
    assert reader.history(job.id) is None


def test_an_unknown_job_is_refused_as_gone_without_an_event(store: Store, reader: Reader) -> None:
    job = started(store)

    answer = settle(store, job, Completed(b"1"), job_id=UNKNOWN)

    assert [refusal.reason for refusal in answer.refused] == ["gone"]
    assert reader.audit() == []


@pytest.mark.shows("R-LEASE-25")
@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.DEAD, JobState.RETRYING])
def test_another_worker_is_refused_for_the_state_when_the_attempt_is_over(
    store: Store, reader: Reader, state: JobState
) -> None:
    job = look(reader, make(store, state))
    before = record(reader, job.id)

    answer = settle(store, job, Completed(b"other"), W2)

    assert [refusal.reason for refusal in answer.refused] == ["other state"]
    assert record(reader, job.id) == before


@pytest.mark.shows("R-LEASE-24", "R-HIST-04", "R-BUG-02", "R-HIST-02")
def test_a_refused_settlement_leaves_an_event_that_says_who_and_why(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=77)

    settle(store, job, Completed(b"1"), W2)

    assert events_of(reader, job.id) == [
        Event(
            kind=EventKind.REFUSED,
            occurred_at=T0 + 77,
            job_id=job.id,
            queue=DEFAULT,
            attempt=1,
            actor=W2,
            detail="completed: other worker",
        )
    ]


@pytest.mark.shows("R-LEASE-25", "R-DONE-02")
@pytest.mark.parametrize("outcome", ENDS)
def test_the_same_settlement_again_is_answered_as_repeated(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store)
    settle(store, job, outcome)
    before = record(reader, job.id)
    rows = attempts_of(reader, job.id)

    answer = settle(store, job, outcome)

    assert (answer.settled, answer.repeated, answer.refused) == ((), (job.id,), ())
    assert record(reader, job.id) == before
    assert attempts_of(reader, job.id) == rows
    assert kinds_of(reader, job.id) == []


CONTRADICTIONS = [(first, second) for first in ENDS for second in ENDS if first is not second]


@pytest.mark.parametrize("max_retries", [0, 5])
@pytest.mark.parametrize(("first", "second"), CONTRADICTIONS)
def test_an_end_that_contradicts_the_stored_one_is_refused(
    store: Store, reader: Reader, first: Outcome, second: Outcome, max_retries: int
) -> None:
    job = started(store, policy=RetryPolicy(max_retries=max_retries))
    settle(store, job, first)
    before = record(reader, job.id)
    rows = attempts_of(reader, job.id)

    answer = settle(store, job, second)

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 1), reason="other state"),)
    assert record(reader, job.id) == before
    assert attempts_of(reader, job.id) == rows
    assert kinds_of(reader, job.id) == [EventKind.REFUSED]


def test_a_snooze_after_the_job_was_handed_back_is_refused_however_long_the_attempt_ran(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=60_000)
    settle(store, job, Interrupted())
    before = record(reader, job.id)

    answer = settle(store, job, Snoozed(5))

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 1), reason="other state"),)
    assert record(reader, job.id) == before


@pytest.mark.parametrize("second", [Completed(b"1"), Discarded(BOOM), Snoozed(5), Interrupted()])
def test_an_end_that_contradicts_a_stored_failure_is_refused_after_the_next_attempt_has_begun(
    store: Store, reader: Reader, second: Outcome
) -> None:
    first = started(store, W1)
    settle(store, first, Failed(BOOM, 0))
    start(store, W2)
    before = record(reader, first.id)

    answer = settle(store, first, second, W1)

    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert record(reader, first.id) == before


@pytest.mark.parametrize("outcome", [Snoozed(5), Failed(BOOM, 5)])
def test_the_same_settlement_is_known_again_after_its_time_to_wait_is_over(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    job = started(store)
    clock.advance(ms=60_000)
    settle(store, job, outcome)
    clock.advance(ms=5)
    store.promote()

    answer = settle(store, job, outcome)

    assert (answer.repeated, answer.refused) == ((job.id,), ())
    assert look(reader, job.id).state is JobState.PENDING


@pytest.mark.parametrize("outcome", [Failed(BOOM, 5), Snoozed(5), Interrupted()])
def test_the_same_settlement_is_known_again_where_a_request_has_cancelled_the_job(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store)
    store.cancel([job.id])
    settle(store, job, outcome)

    answer, other = settle(store, job, outcome), settle(store, job, Completed(b"1"))

    assert (answer.repeated, answer.refused) == ((job.id,), ())
    assert [refusal.reason for refusal in other.refused] == ["other state"]
    assert look(reader, job.id).state is JobState.CANCELLED


def test_a_settlement_given_twice_in_one_settle_and_claim_is_done_once(store: Store, reader: Reader) -> None:
    job = started(store)
    end = ended(job, Failed(BOOM, 5))

    answer = store.settle_and_claim(W1, [end, end])

    assert (answer.settled, answer.repeated) == ((job.id,), (job.id,))
    assert len(attempts_of(reader, job.id)) == 1


@pytest.mark.shows("R-LEASE-32", "R-EDGE-09")
def test_a_failure_repeated_after_the_next_attempt_has_begun_is_still_known(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = started(store, W1)
    settle(store, first, Failed(BOOM, 5))
    clock.advance(ms=5)
    start(store, W2)
    before = record(reader, first.id)

    answer = settle(store, first, Failed(BOOM, 5), W1)

    assert (answer.repeated, answer.refused) == ((first.id,), ())
    assert record(reader, first.id) == before
    assert [row.attempt for row in attempts_of(reader, first.id)] == [1]


@pytest.mark.shows("R-EDGE-02")
def test_a_late_settlement_is_accepted_while_no_worker_has_taken_the_job_over(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=HOUR)

    answer = settle(store, job, Completed(b"late"))

    assert answer.settled == (job.id,)
    assert look(reader, job.id).result == b"late"


@pytest.mark.shows("R-EDGE-02", "R-SWEEP-02", "R-LEASE-22")
@pytest.mark.parametrize("outcome", ENDS)
def test_a_late_settlement_is_refused_after_the_takeover(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    job = started(store, W1)
    clock.advance(ms=HOUR)
    store.sweep(SWEEPER)
    before = record(reader, job.id)

    answer = settle(store, job, outcome, W1)

    assert answer.refused == (LeaseRefusal(lease=Lease(job.id, 1), reason="other worker"),)
    assert record(reader, job.id) == before
    assert kinds_of(reader, job.id) == [EventKind.SWEPT, EventKind.REFUSED]


@pytest.mark.shows(
    "R-LEASE-27", "R-DONE-19", "R-EDGE-03", "R-EDGE-04", "R-TEST-51", "R-LEASE-24", "R-LEASE-34"
)
def test_a_worker_that_comes_back_after_another_has_finished_is_refused(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    lost = started(store, W1)
    clock.advance(ms=HOUR)
    [swept] = other_store.sweep(SWEEPER)
    settle(other_store, swept, Lost("its lease ran out"), SWEEPER)
    second = start(other_store, W2)
    settle(other_store, second, Completed(b"from w2"), W2)
    before = record(reader, lost.id)

    answer = settle(store, lost, Completed(b"from w1"), W1)

    assert (answer.settled, answer.repeated) == ((), ())
    assert answer.refused == (LeaseRefusal(lease=Lease(lost.id, 1), reason="other attempt"),)
    assert record(reader, lost.id) == before
    assert look(reader, lost.id).result == b"from w2"
    assert events_of(reader, lost.id)[-1].detail == f"{OutcomeKind.COMPLETED}: other attempt"


@pytest.mark.shows("R-SWEEP-02")
def test_a_worker_that_comes_back_before_another_worker_has_started_is_refused(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    lost = started(store, W1)
    clock.advance(ms=HOUR)
    [swept] = store.sweep(SWEEPER)
    settle(store, swept, Lost("its lease ran out"), SWEEPER)
    before = record(reader, lost.id)

    answer = settle(store, lost, Completed(b"from w1"), W1)

    assert answer.refused == (LeaseRefusal(lease=Lease(lost.id, 1), reason="other state"),)
    assert record(reader, lost.id) == before


def test_a_refused_settlement_does_not_keep_the_others_from_being_settled(
    store: Store, reader: Reader
) -> None:
    mine, theirs = started(store, W1), started(store, W2)

    answer = store.settle_and_claim(W1, [ended(theirs, Completed(b"1")), ended(mine, Completed(b"1"))])

    assert answer.settled == (mine.id,)
    assert [refusal.lease.job_id for refusal in answer.refused] == [theirs.id]
    assert look(reader, theirs.id).state is JobState.RUNNING


def test_a_lease_taken_away_by_force_cannot_be_settled(store: Store, reader: Reader) -> None:
    job = started(store, W1)
    store.cancel([job.id], "stuck", force=True)
    before = record(reader, job.id)

    answer = settle(store, job, Completed(b"1"), W1)

    assert [refusal.reason for refusal in answer.refused] == ["other state"]
    assert record(reader, job.id) == before


def test_an_attempt_of_a_job_that_was_revived_cannot_be_settled(store: Store, reader: Reader) -> None:
    job = started(store, W1)
    store.cancel([job.id], force=True)
    store.revive([job.id])
    before = record(reader, job.id)

    answer = settle(store, job, Completed(b"1"), W1)

    assert [refusal.reason for refusal in answer.refused] == ["other state"]
    assert record(reader, job.id) == before


def test_what_is_refused_is_told_in_the_order_of_the_settlements(store: Store, reader: Reader) -> None:
    store.insert([new_job()] * 4)
    first, second, third, fourth = claim(store, 4, worker=W2)

    store.settle_and_claim(W1, [complete(first), fail(second), complete(third), fail(fourth)])

    audited = [event.job_id for _, event in reader.audit(limit=4)]
    assert audited == [fourth.id, third.id, second.id, first.id]
