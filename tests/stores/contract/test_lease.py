"""Leases: renewal, its limits, cancel requests, and leases whose answer was lost."""

from __future__ import annotations

import pytest

from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed, Failed, Interrupted, Snoozed
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import (
    LeaseRefusal,
    LeaseStatus,
    PendingCancel,
    QueueClaim,
    RenewResult,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MINUTE,
    SWEEPER,
    T0,
    UNKNOWN,
    W1,
    W2,
    ended,
    kinds_of,
    lease,
    look,
    make,
    put_many,
    record,
    settle,
    start,
    started,
)


@pytest.mark.shows("R-LEASE-22", "R-LEASE-18")
def test_a_renewal_pushes_the_end_of_the_lease_and_nothing_else(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    before = record(reader, job.id)
    assert before is not None
    clock.advance(ms=10_000)

    answer = store.renew(W1, [lease(job)])

    assert answer == RenewResult(renewed=(Lease(job.id, 1),))
    assert record(reader, job.id) == before | {"lease_expires_at": T0 + 40_000}


@pytest.mark.shows("R-LEASE-19")
def test_a_renewal_uses_the_queues_lease_by_default(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store)
    store.save_queue(DEFAULT, {"lease_ms": 70_000})

    store.renew(W1, [lease(job)])

    assert look(reader, job.id).lease_expires_at == T0 + 70_000


@pytest.mark.shows("R-LEASE-19", "R-JOB-20")
def test_a_renewal_prefers_the_jobs_lease_to_the_queues(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, lease_ms=80_000)
    clock.advance(ms=1)

    store.renew(W1, [lease(job)])

    assert look(reader, job.id).lease_expires_at == T0 + 80_001


@pytest.mark.shows("R-LEASE-19")
def test_a_renewal_prefers_its_own_lease_to_the_jobs(store: Store, reader: Reader) -> None:
    job = started(store, lease_ms=80_000)

    store.renew(W1, [lease(job)], 90_000)

    assert look(reader, job.id).lease_expires_at == T0 + 90_000


def test_a_renewal_never_moves_the_end_back(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store, lease_ms=60_000)
    clock.advance(ms=1_000)

    answer = store.renew(W1, [lease(job)], 5_000)

    assert answer.renewed == (lease(job),)
    assert look(reader, job.id).lease_expires_at == T0 + 60_000


@pytest.mark.shows("R-LEASE-33", "R-CFG-30", "R-EDGE-14")
def test_a_renewal_goes_no_further_than_the_extension_of_the_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, lease_ms=HOUR)
    clock.advance(ms=DAY - MINUTE)

    store.renew(W1, [lease(job)])

    assert look(reader, job.id).lease_expires_at == T0 + DAY


@pytest.mark.shows("R-EDGE-14", "R-LEASE-33")
def test_a_renewal_is_refused_when_the_extension_is_over(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, extension_ms=100_000)
    clock.advance(ms=99_999)
    assert store.renew(W1, [lease(job)]).renewed == (lease(job),)
    clock.advance(ms=1)

    answer = store.renew(W1, [lease(job)])

    assert answer.refused == (LeaseRefusal(lease=lease(job), reason="extension over"),)
    assert [swept.id for swept in store.sweep(SWEEPER)] == [job.id]


def test_the_extension_counts_from_the_start_of_the_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    settle(store, started(store, extension_ms=100_000), Interrupted())
    clock.advance(ms=100_000)
    again = start(store)

    answer = store.renew(W1, [lease(again)])

    assert answer.renewed == (lease(again),)
    assert look(reader, again.id).lease_expires_at == T0 + 130_000


def test_an_extension_that_ends_before_the_lease_does_not_shorten_it(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, extension_ms=10_000)
    clock.advance(ms=1_000)

    store.renew(W1, [lease(job)])

    assert look(reader, job.id).lease_expires_at == T0 + 30_000


def test_a_lease_that_has_ended_can_be_renewed_while_no_worker_has_taken_it_over(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=MINUTE)

    answer = store.renew(W1, [lease(job)])

    assert answer.renewed == (lease(job),)
    assert store.sweep(SWEEPER) == []


@pytest.mark.shows("R-LEASE-22", "R-LEASE-25")
def test_another_worker_cannot_renew(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store, W1)
    before = record(reader, job.id)
    clock.advance(ms=1_000)

    answer = store.renew(W2, [lease(job)])

    assert answer == RenewResult(refused=(LeaseRefusal(lease=lease(job), reason="other worker"),))
    assert record(reader, job.id) == before


@pytest.mark.shows("R-LEASE-21", "R-LEASE-22", "R-LEASE-25")
def test_an_earlier_attempt_cannot_be_renewed(store: Store, reader: Reader, clock: ManualClock) -> None:
    first = started(store)
    settle(store, first, Interrupted())
    start(store)
    before = record(reader, first.id)
    clock.advance(ms=1_000)

    answer = store.renew(W1, [lease(first)])

    assert answer.refused == (LeaseRefusal(lease=Lease(first.id, 1), reason="other attempt"),)
    assert record(reader, first.id) == before


@pytest.mark.shows("R-LEASE-22", "R-LEASE-25")
@pytest.mark.parametrize("outcome", [Interrupted(), Snoozed(5), Failed(BOOM, 5), Completed(b"1")])
def test_an_attempt_that_has_ended_cannot_be_renewed(
    store: Store, reader: Reader, outcome: Interrupted | Snoozed | Failed | Completed
) -> None:
    job = started(store)
    settle(store, job, outcome)
    before = record(reader, job.id)

    answer = store.renew(W1, [lease(job)])

    assert answer.refused == (LeaseRefusal(lease=lease(job), reason="other state"),)
    assert record(reader, job.id) == before


def test_an_unknown_job_cannot_be_renewed(store: Store) -> None:
    answer = store.renew(W1, [Lease(UNKNOWN, 1)])

    assert answer.refused == (LeaseRefusal(lease=Lease(UNKNOWN, 1), reason="gone"),)


@pytest.mark.shows("R-SWEEP-02")
def test_the_old_holder_cannot_renew_after_the_takeover(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)
    store.sweep(SWEEPER)
    before = record(reader, job.id)

    answer = store.renew(W1, [lease(job)], HOUR)

    assert answer.refused == (LeaseRefusal(lease=lease(job), reason="other worker"),)
    assert record(reader, job.id) == before


def test_a_refused_renewal_leaves_no_event(store: Store, reader: Reader) -> None:
    job = started(store, W1)

    store.renew(W2, [lease(job)])

    assert kinds_of(reader, job.id) == []


def test_each_lease_of_a_renewal_gets_its_own_answer(store: Store, reader: Reader) -> None:
    mine, theirs, also_mine = started(store, W1), started(store, W2), started(store, W1)

    answer = store.renew(W1, [lease(also_mine), lease(theirs), lease(mine)], MINUTE)

    assert answer.renewed == (lease(also_mine), lease(mine))
    assert [refusal.lease for refusal in answer.refused] == [lease(theirs)]
    assert look(reader, mine.id).lease_expires_at == T0 + MINUTE
    assert look(reader, theirs.id).lease_expires_at == T0 + 30_000


@pytest.mark.shows("R-EDGE-06")
def test_a_job_whose_lease_is_renewed_is_not_swept(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store)
    clock.advance(ms=20_000)
    store.renew(W1, [lease(job)])
    clock.advance(ms=29_999)

    assert store.sweep(SWEEPER) == []

    assert look(reader, job.id).worker == W1


@pytest.mark.parametrize("state", [QueueState.PAUSED, QueueState.DRAINING, QueueState.DROPPED])
def test_a_lease_can_be_renewed_and_settled_whatever_becomes_of_its_queue(
    store: Store, reader: Reader, state: QueueState
) -> None:
    job = started(store)
    store.save_queue(DEFAULT, state=state)

    assert store.renew(W1, [lease(job)], MINUTE).renewed == (lease(job),)

    assert settle(store, job, Completed(b"1")).settled == (job.id,)


# Wishes to cancel.


def test_a_cancel_request_comes_with_every_renewal_until_it_is_settled(store: Store) -> None:
    job = started(store)
    store.cancel([job.id], "too late")

    first = store.renew(W1, [lease(job)])
    second = store.renew(W1, [lease(job)])
    settle(store, job, Completed(b"1"))
    third = store.renew(W1, [])

    assert first.cancels == second.cancels == (PendingCancel(job.id, "too late"),)
    assert first.renewed == (lease(job),)
    assert third.cancels == ()


def test_a_cancel_request_comes_with_every_settle_and_claim_until_it_is_settled(store: Store) -> None:
    job = started(store)
    store.cancel([job.id], "too late")

    first = store.settle_and_claim(W1)
    second = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)
    third = store.settle_and_claim(W1, [ended(job, Completed(b"1"))])

    assert first.cancels == second.cancels == (PendingCancel(job.id, "too late"),)
    assert third.cancels == ()


def test_requests_to_cancel_come_only_to_the_worker_that_runs_the_jobs(store: Store) -> None:
    mine, theirs = started(store, W1), started(store, W2)
    store.cancel([mine.id, theirs.id], "stop")

    assert store.settle_and_claim(W1).cancels == (PendingCancel(mine.id, "stop"),)
    assert store.renew(W2, []).cancels == (PendingCancel(theirs.id, "stop"),)


def test_requests_to_cancel_come_in_the_order_of_the_ids(store: Store) -> None:
    jobs = [started(store) for _ in range(3)]

    store.cancel([jobs[1].id, jobs[2].id, jobs[0].id], "stop")

    assert [cancel.job_id for cancel in store.settle_and_claim(W1).cancels] == [job.id for job in jobs]


# An answer that was lost on the way.


def test_leases_the_worker_does_not_know_of_are_recovered(store: Store, reader: Reader) -> None:
    ids = put_many(store, 3)
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 3)], room=3).jobs

    answer = store.settle_and_claim(W1, known=[lease(jobs[1])])

    assert [(job.id, job.state, job.attempt) for job in answer.recovered] == [
        (ids[0], JobState.RUNNING, 1),
        (ids[2], JobState.RUNNING, 1),
    ]
    assert look(reader, ids[0]).attempt == 1


def test_nothing_is_recovered_unless_the_worker_says_what_it_knows(store: Store) -> None:
    started(store)

    assert store.settle_and_claim(W1).recovered == ()
    assert store.settle_and_claim(W1, known=None).recovered == ()


def test_a_worker_recovers_only_its_own_leases(store: Store) -> None:
    started(store, W2)
    make(store, JobState.RETRYING)

    assert store.settle_and_claim(W1, known=[]).recovered == ()


def test_what_is_claimed_in_the_same_round_trip_is_not_recovered(store: Store) -> None:
    lost = started(store)
    put_many(store, 1)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1, known=[])

    assert len(answer.jobs) == 1
    assert [job.id for job in answer.recovered] == [lost.id]


def test_what_is_settled_in_the_same_round_trip_is_not_recovered(store: Store) -> None:
    job = started(store)

    answer = store.settle_and_claim(W1, [ended(job, Completed(b"1"))], known=[])

    assert answer.recovered == ()


def test_a_later_attempt_than_the_one_known_is_recovered(store: Store) -> None:
    first = started(store)
    settle(store, first, Interrupted())
    start(store)

    answer = store.settle_and_claim(W1, known=[lease(first)])

    assert [(job.id, job.attempt) for job in answer.recovered] == [(first.id, 2)]


def test_leases_taken_over_are_recovered_by_the_sweeper_and_not_by_their_old_holder(
    store: Store, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)
    store.sweep(SWEEPER)

    assert store.settle_and_claim(W1, known=[]).recovered == ()
    assert [recovered.id for recovered in store.settle_and_claim(SWEEPER, known=[]).recovered] == [job.id]


def test_where_no_transaction_is_open_a_lease_is_held_or_over(store: Store) -> None:
    held, other, done = started(store), started(store, W2), started(store)
    settle(store, done, Completed(b"1"))
    later = Lease(held.id, held.attempt + 1)

    statuses = store.lease_status(W1, [lease(done), lease(held), later, lease(other), Lease(UNKNOWN, 1)])

    assert statuses == [
        LeaseStatus.OVER,
        LeaseStatus.HELD,
        LeaseStatus.OVER,
        LeaseStatus.OVER,
        LeaseStatus.OVER,
    ]
    assert store.lease_status(W1, []) == []
    assert store.renew(W1, [lease(held)]).renewed == (lease(held),)
