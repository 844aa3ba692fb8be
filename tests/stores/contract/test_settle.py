"""Settle: every way an attempt can end, and what is written because of it."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId, PastError
from forebay.domain.job_history import MAX_MESSAGE, MAX_TRACEBACK, Attempt
from forebay.domain.job_states import JobState
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
)
from forebay.domain.queue_counts import Counts
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import OutcomeKind
from forebay.errors import ForebayError, StoreRefused
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    T0,
    W1,
    attempts_of,
    counts_of,
    ended,
    look,
    make,
    put,
    record,
    settle,
    start,
    started,
    states,
)
from tests.stores.support import new_job

WAITING_ENDS: list[tuple[Outcome, JobState, int]] = [
    (Failed(BOOM, 5_000), JobState.RETRYING, 5_000),
    (Snoozed(7_000), JobState.SCHEDULED, 7_000),
    (Interrupted(), JobState.PENDING, 0),
    (Lost("died"), JobState.PENDING, 0),
]
FINAL_ENDS: list[tuple[Outcome, JobState, str | None]] = [
    (Completed(b"42"), JobState.COMPLETED, None),
    (Discarded(BOOM), JobState.DEAD, "Boom: it broke"),
    (Cancelled("not needed"), JobState.CANCELLED, "not needed"),
]


@pytest.mark.shows("R-DONE-01", "R-JOB-25", "R-JOB-55", "R-JOB-48", "R-JOB-46", "R-DONE-15", "R-MET-28")
def test_a_completed_job_keeps_its_result_and_its_times(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=250)

    settle(store, job, Completed(b"\x00\xff42"))

    done = look(reader, job.id)
    assert (done.state, done.result, done.reason) == (JobState.COMPLETED, b"\x00\xff42", None)
    assert (done.started_at, done.finished_at, done.updated_at) == (T0, T0 + 250, T0 + 250)
    assert done.attempt == 1


@pytest.mark.parametrize("result", [None, b"", b"null"])
def test_a_result_may_be_anything_or_nothing(store: Store, reader: Reader, result: bytes | None) -> None:
    job = started(store)

    settle(store, job, Completed(result))

    assert look(reader, job.id).result == result


@pytest.mark.shows("R-DONE-17", "R-SWEEP-19", "R-DLQ-03", "R-JOB-50", "R-DONE-01")
@pytest.mark.parametrize(("outcome", "state", "reason"), FINAL_ENDS)
def test_a_job_that_ends_leaves_the_live_ones_in_the_same_step(
    store: Store, reader: Reader, outcome: Outcome, state: JobState, reason: str | None
) -> None:
    job = started(store)

    answer = settle(store, job, outcome)

    done = look(reader, job.id)
    assert answer.settled == (job.id,)
    assert (done.state, done.reason, done.finished_at) == (state, reason, T0)
    assert done.lease_expires_at is None
    assert counts_of(reader) == Counts(**{str(state): 1})


@pytest.mark.shows("R-JOB-28", "R-JOB-29", "R-JOB-15")
def test_a_settlement_leaves_the_rest_of_the_job_as_it_was(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, payload=b"abc", metadata={"a": 1}, tags=("x",), correlation_id="c", unique_key="k")
    before = record(reader, job.id)
    assert before is not None
    clock.advance(ms=9)

    settle(store, job, Completed(b"42"))

    assert record(reader, job.id) == before | {
        "state": JobState.COMPLETED,
        "updated_at": T0 + 9,
        "finished_at": T0 + 9,
        "lease_expires_at": None,
        "result": b"42",
    }


@pytest.mark.shows(
    "R-JOB-49", "R-RETRY-07", "R-RETRY-08", "R-TEST-19", "R-RETRY-25", "R-RETRY-09", "R-JOB-46"
)
@pytest.mark.parametrize(("outcome", "state", "delay"), WAITING_ENDS)
def test_a_job_that_goes_back_waits_for_its_delay_and_keeps_its_ready_time(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome, state: JobState, delay: int
) -> None:
    job = started(store)
    clock.advance(ms=100)

    answer = settle(store, job, outcome)

    back = look(reader, job.id)
    assert answer.settled == (job.id,)
    assert (back.state, back.run_at, back.ready_at) == (state, T0 + 100 + delay, T0)
    assert (back.lease_expires_at, back.updated_at) == (None, T0 + 100)
    assert (back.attempt, back.worker, back.started_at) == (1, W1, T0)
    assert (back.queue, back.finished_at, back.result) == (DEFAULT, None, None)
    assert counts_of(reader) == Counts(**{str(state): 1})


@pytest.mark.parametrize(
    ("outcome", "failures", "crashes"),
    [
        (Failed(BOOM, 1), 3, 2),
        (Discarded(BOOM), 3, 2),
        (Lost("died"), 2, 3),
        (Snoozed(1), 2, 2),
        (Interrupted(), 2, 2),
        (Completed(None), 2, 2),
        (Cancelled("x"), 2, 2),
    ],
)
@pytest.mark.shows("R-JOB-18", "R-SWEEP-13")
def test_failures_and_crashes_are_counted_apart(
    store: Store, reader: Reader, outcome: Outcome, failures: int, crashes: int
) -> None:
    settle(store, started(store), Interrupted(), failures=2, crashes=2)
    job = start(store)

    settle(store, job, outcome)

    after = look(reader, job.id)
    assert (after.failures, after.crashes) == (failures, crashes)


@pytest.mark.shows("R-RETRY-40", "R-JOB-24", "R-DONE-14", "R-DONE-15", "R-LEASE-10")
@pytest.mark.parametrize(
    ("outcome", "kind", "error"),
    [
        (Failed(BOOM, 1), OutcomeKind.FAILED, BOOM),
        (Discarded(BOOM), OutcomeKind.DISCARDED, BOOM),
        (Lost("died"), OutcomeKind.LOST, AttemptError(type="Lost", message="died")),
    ],
)
def test_a_bad_attempt_has_a_row_and_its_error_on_the_job(
    store: Store,
    reader: Reader,
    clock: ManualClock,
    outcome: Outcome,
    kind: OutcomeKind,
    error: AttemptError,
) -> None:
    job = started(store)
    clock.advance(ms=33)

    settle(store, job, outcome)

    assert attempts_of(reader, job.id) == [
        Attempt(
            job_id=job.id,
            attempt=1,
            outcome=kind,
            worker=W1,
            started_at=T0,
            ended_at=T0 + 33,
            error=error,
        )
    ]
    assert look(reader, job.id).errors == (
        PastError(attempt=1, at=T0 + 33, type=error.type, message=error.message, traceback=error.traceback),
    )


@pytest.mark.parametrize("outcome", [Completed(b"1"), Snoozed(1), Cancelled("x"), Interrupted()])
def test_an_attempt_that_did_not_fail_leaves_no_row_and_no_error(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store)

    settle(store, job, outcome)

    assert attempts_of(reader, job.id) == []
    assert look(reader, job.id).errors == ()


def fail_again(store: Store, clock: ManualClock, number: int) -> int:
    """Run and fail once more; the number of the attempt."""
    job = start(store)
    settle(store, job, Failed(AttemptError(type="Boom", message=str(number)), 1), state=JobState.RETRYING)
    clock.advance(ms=1)
    return job.attempt


@pytest.mark.shows("R-RETRY-41", "R-RETRY-43", "R-RETRY-40", "R-JOB-24", "R-BUG-07")
def test_the_last_ten_errors_stay_on_the_job_and_all_in_the_history(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store)

    numbers = [fail_again(store, clock, number) for number in range(1, 13)]

    job = look(reader, job_id)
    assert numbers == list(range(1, 13))
    assert [(error.attempt, error.message) for error in job.errors] == [
        (number, str(number)) for number in range(3, 13)
    ]
    assert [row.attempt for row in attempts_of(reader, job_id)] == list(range(1, 13))
    assert (job.attempt, job.failures) == (12, 12)


def test_errors_stay_with_a_job_that_ends_well(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store)
    fail_again(store, clock, 1)

    settle(store, start(store), Completed(b"1"))

    assert [error.message for error in look(reader, job_id).errors] == ["1"]


@pytest.mark.shows("R-RETRY-40")
def test_an_error_is_cut_to_what_a_page_can_show(store: Store, reader: Reader) -> None:
    job = started(store)
    error = AttemptError(type="A\x00B", message="m" * 99_999, traceback="t" * 99_999 + "end")

    settle(store, job, Failed(error, 1))

    [kept] = look(reader, job.id).errors
    [row] = attempts_of(reader, job.id)
    assert kept.type == row.error.type == "A\N{SYMBOL FOR NULL}B"
    assert kept.message == row.error.message == "m" * MAX_MESSAGE
    assert kept.traceback == row.error.traceback == ("t" * MAX_TRACEBACK + "end")[-MAX_TRACEBACK:]


def test_an_error_without_a_message_is_still_recorded(store: Store, reader: Reader) -> None:
    job = started(store)

    settle(store, job, Failed(AttemptError(type="Silent"), 1))

    assert [(error.type, error.message) for error in look(reader, job.id).errors] == [("Silent", "")]


@pytest.mark.shows("R-RETRY-04", "R-RETRY-36")
def test_without_retries_the_first_failure_is_the_last(store: Store, reader: Reader) -> None:
    job = started(store, policy=RetryPolicy(max_retries=0, max_crashes=0))

    settle(store, job, Failed(BOOM))

    dead = look(reader, job.id)
    assert (dead.state, dead.reason, dead.failures) == (JobState.DEAD, "Boom: it broke", 1)


@pytest.mark.shows("R-TEST-69")
@pytest.mark.shows(
    "R-RETRY-02", "R-RETRY-05", "R-RETRY-06", "R-TEST-20", "R-CFG-53", "R-MET-29", "R-DLQ-01", "R-JOB-50"
)
def test_with_three_retries_a_job_runs_four_times_with_doubling_delays(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store)

    waits = [wait_after_failure(store, reader, clock) for _ in range(4)]

    assert waits == [1_000, 2_000, 4_000, None]
    dead = look(reader, job_id)
    assert dead.attempt == 4
    assert [(error.attempt, error.type) for error in dead.errors] == [(n, "Boom") for n in (1, 2, 3, 4)]


def wait_after_failure(store: Store, reader: Reader, clock: ManualClock) -> int | None:
    """Run and fail once, then go to the time of the retry; how long that was, None without one."""
    job = start(store)
    settle(store, job, Failed(BOOM))
    after = look(reader, job.id)
    if after.state is JobState.DEAD:
        return None
    wait = after.run_at - clock.now_ms()
    clock.advance(ms=wait)
    return wait


@pytest.mark.shows("R-DLQ-01", "R-DLQ-02", "R-DLQ-23", "R-TEST-22", "R-JOB-57", "R-BUG-07", "R-JOB-55")
def test_a_dead_letter_shows_all_that_is_known_about_the_job(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, payload=b"abc", priority=5, task="t.x")
    fail_again(store, clock, 1)
    clock.advance(ms=HOUR)

    settle(store, start(store), Discarded(BOOM))

    dead = look(reader, job_id)
    assert (dead.state, dead.task, dead.payload, dead.priority) == (JobState.DEAD, "t.x", b"abc", 5)
    assert (dead.failures, dead.reason, dead.finished_at) == (2, "Boom: it broke", T0 + HOUR + 1)
    assert [(error.message, error.at) for error in dead.errors] == [("1", T0), ("it broke", T0 + HOUR + 1)]
    assert [row.error.traceback for row in attempts_of(reader, job_id)] == ["", "line 1"]


@pytest.mark.shows("R-DLQ-16", "R-JOB-56")
@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED])
def test_nothing_brings_a_final_job_back_by_itself(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state, expires_at=T0 + HOUR, deadline_at=T0 + HOUR)
    before = record(reader, job_id)
    clock.advance(ms=DAY)

    store.promote()
    store.sweep(W1)
    store.rescore()
    store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 9)], room=9, known=[])

    assert record(reader, job_id) == before


def test_a_cancelled_attempt_without_a_reason_gets_one(store: Store, reader: Reader) -> None:
    job = started(store)

    settle(store, job, Cancelled("x"), reason=None)

    assert look(reader, job.id).reason == "cancelled"


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM, 1)])
def test_the_lease_is_over_when_the_attempt_has_ended(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    job = started(store)
    settle(store, job, outcome)
    clock.advance(ms=DAY)

    assert store.sweep(W1) == []

    assert look(reader, job.id).lease_expires_at is None


@pytest.mark.parametrize("outcome", [Failed(BOOM, 5), Snoozed(5), Interrupted(), Lost("died")])
def test_a_job_with_a_request_to_be_cancelled_is_cancelled_instead_of_going_back(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store, unique_key="k")
    store.cancel([job.id], "changed my mind")

    answer = settle(store, job, outcome)

    done = look(reader, job.id)
    assert answer.settled == (job.id,)
    assert (done.state, done.reason, done.finished_at) == (JobState.CANCELLED, "changed my mind", T0)
    assert done.lease_expires_at is None
    assert counts_of(reader) == Counts(cancelled=1)
    assert put(store, unique_key="k") != job.id


def test_a_failed_attempt_counts_also_when_its_job_is_cancelled_after_it(
    store: Store, reader: Reader
) -> None:
    job = started(store)
    store.cancel([job.id])

    settle(store, job, Failed(BOOM, 5))

    done = look(reader, job.id)
    assert (done.failures, len(done.errors), len(attempts_of(reader, job.id))) == (1, 1, 1)


@pytest.mark.parametrize(("outcome", "state", "reason"), FINAL_ENDS)
def test_a_job_that_ends_ends_as_it_does_in_spite_of_a_request_to_be_cancelled(
    store: Store, reader: Reader, outcome: Outcome, state: JobState, reason: str | None
) -> None:
    job = started(store)
    store.cancel([job.id], "changed my mind")

    settle(store, job, outcome)

    done = look(reader, job.id)
    assert (done.state, done.reason) == (state, reason)


def test_settlements_of_one_settle_and_claim_are_answered_in_the_order_given(
    store: Store, reader: Reader
) -> None:
    jobs = [started(store) for _ in range(3)]
    ends = [
        ended(jobs[2], Completed(b"1")),
        ended(jobs[0], Failed(BOOM, 5)),
        ended(jobs[1], Discarded(BOOM)),
    ]

    answer = store.settle_and_claim(W1, ends)

    assert answer.settled == (jobs[2].id, jobs[0].id, jobs[1].id)
    assert states(reader, [job.id for job in jobs]) == [
        JobState.RETRYING,
        JobState.DEAD,
        JobState.COMPLETED,
    ]


def test_successes_of_one_settle_and_claim_end_each_with_its_own_result_and_free_their_keys(
    store: Store, reader: Reader
) -> None:
    jobs = [started(store, unique_key=f"k{n}", task=f"t{n % 3}") for n in range(150)]

    answer = store.settle_and_claim(W1, [ended(job, Completed(b"%d" % n)) for n, job in enumerate(jobs)])

    assert answer.settled == tuple(job.id for job in jobs)
    found = [look(reader, job.id) for job in jobs]
    assert [(job.state, job.result, job.task) for job in found] == [
        (JobState.COMPLETED, b"%d" % n, f"t{n % 3}") for n in range(150)
    ]
    assert counts_of(reader) == Counts(completed=150)
    assert all(receipt.is_new for receipt in store.insert([new_job(unique_key=f"k{n}") for n in range(150)]))


def test_among_successes_those_that_do_not_hold_their_lease_are_answered_by_themselves(
    store: Store, reader: Reader
) -> None:
    good, other_attempt, twice, gone, failed = (started(store) for _ in range(5))
    brought = started(store, id=JobId("mine"))
    store.settle_and_claim(W1, [ended(gone, Discarded(BOOM))])
    store.delete([gone.id])
    ends = [
        ended(failed, Failed(BOOM, 5)),
        ended(failed, Completed(b"0")),
        ended(other_attempt, Completed(b"1"), attempt=7),
        ended(twice, Completed(b"2")),
        ended(twice, Completed(b"3")),
        ended(gone, Completed(b"4")),
        ended(brought, Completed(b"5")),
        ended(good, Completed(b"6")),
    ]

    answer = store.settle_and_claim(W1, ends)

    assert sorted(answer.settled) == sorted([failed.id, twice.id, brought.id, good.id])
    assert answer.repeated == (twice.id,)
    refused = {refusal.lease.job_id: refusal.reason for refusal in answer.refused}
    assert refused == {failed.id: "other state", other_attempt.id: "other attempt", gone.id: "gone"}
    assert look(reader, twice.id).result == b"2"
    assert states(reader, [failed.id, other_attempt.id, brought.id, good.id]) == [
        JobState.RETRYING,
        JobState.RUNNING,
        JobState.COMPLETED,
        JobState.COMPLETED,
    ]
    assert counts_of(reader) == Counts(completed=3, running=1, retrying=1)


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM, 5)])
@pytest.mark.parametrize("hint", [None, 0, 1, "other"])
@pytest.mark.parametrize("job_id", [None, JobId("mine")])
def test_a_wrong_hint_where_the_job_is_leads_no_settlement_astray(
    store: Store, reader: Reader, outcome: Outcome, hint: str | int | None, job_id: JobId | None
) -> None:
    job, other = started(store, id=job_id), started(store)

    answer = store.settle_and_claim(W1, [ended(job, outcome, seq=other.seq if hint == "other" else hint)])

    assert answer.settled == (job.id,)
    assert look(reader, job.id).state is not JobState.RUNNING
    assert look(reader, other.id).state is JobState.RUNNING


# One bad member: the store undoes the whole call, so that the caller can halve the batch.

UNWRITABLE = "half a pair: \ud800"


@pytest.mark.parametrize(
    "change",
    [
        {"error": AttemptError(type="Boom", message=UNWRITABLE)},
        {"error": AttemptError(type=UNWRITABLE)},
        {"error": AttemptError(type="Boom", traceback=UNWRITABLE)},
        {"reason": UNWRITABLE},
    ],
)
def test_a_value_that_cannot_be_held_undoes_the_whole_settle_and_claim(
    store: Store, reader: Reader, change: dict[str, object]
) -> None:
    good, bad = started(store), started(store)
    waiting = put(store)
    before = [record(reader, job_id) for job_id in (good.id, bad.id, waiting)]

    with pytest.raises(StoreRefused):
        store.settle_and_claim(
            W1,
            [ended(good, Discarded(BOOM)), ended(bad, Discarded(BOOM), **change)],
            [QueueClaim(DEFAULT, 1)],
            room=1,
        )

    assert [record(reader, job_id) for job_id in (good.id, bad.id, waiting)] == before
    assert attempts_of(reader, good.id) == []
    assert counts_of(reader) == Counts(running=2, pending=1)


def test_one_refused_member_of_a_hundred_does_not_keep_the_others_from_being_settled(
    store: Store, reader: Reader
) -> None:
    jobs = [started(store) for _ in range(100)]
    ends = [ended(job, Completed(b"1")) for job in jobs]
    ends[57] = ended(jobs[57], Completed(b"1"), reason=UNWRITABLE)

    with pytest.raises(StoreRefused):
        store.settle_and_claim(W1, ends)
    store.settle_and_claim(W1, ends[:57] + ends[58:])
    settle(store, jobs[57], Failed(AttemptError(type="StoreRefused", message="half a pair"), 5))

    assert counts_of(reader) == Counts(completed=99, retrying=1)
    assert [error.type for error in look(reader, jobs[57].id).errors] == ["StoreRefused"]


@pytest.mark.shows("R-JOB-45")
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.BLOCKED])
def test_a_settlement_into_a_state_that_no_attempt_ends_in_is_refused_as_an_error(
    store: Store, reader: Reader, state: JobState
) -> None:
    job = started(store)
    before = record(reader, job.id)

    with pytest.raises(ForebayError):
        settle(store, job, Failed(BOOM, 5), state=state)

    assert record(reader, job.id) == before
    assert attempts_of(reader, job.id) == []


def test_an_illegal_settlement_is_refused_whatever_it_says(store: Store) -> None:
    job = started(store)
    store.settle_and_claim(W1, [ended(job, Discarded(BOOM))])
    store.delete([job.id])

    answer = store.settle_and_claim(W1, [ended(job, Failed(BOOM, 5), state=JobState.BLOCKED)])

    assert [refusal.reason for refusal in answer.refused] == ["gone"]
