"""Claim: who gets which jobs, and what a claim writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.lane import lanes_for_program
from forebay.domain.outcome import Completed, Failed, Interrupted
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    STATES,
    T0,
    W1,
    W2,
    claimed,
    counts_of,
    ended,
    look,
    make,
    put,
    put_many,
    record,
    settle,
    start,
    started,
    states,
)
from tests.stores.support import new_job

NOT_PENDING = [state for state in STATES if state is not JobState.PENDING]


@pytest.mark.parametrize("way", ["plain", "limit", "share", "lane", "several"])
def test_a_claim_leaves_out_payloads_that_are_too_large(store: Store, reader: Reader, way: str) -> None:
    if way == "limit":
        store.save_limit(Limit(scope="global", concurrency=50))
    more: dict[str, Any] = {"limit_keys": {"fairness": "ann"}} if way == "share" else {}
    lanes = None if way == "plain" else lanes_for_program(["t"], 1)
    for payload in (b"x", b"y" * 5_000, b"z"):
        put(store, payload=payload, metadata={"size": len(payload)}, **more)
    if way == "lane":
        assert not store.settle_and_claim(
            W2, claims=[QueueClaim(DEFAULT, 1, lanes=lanes_for_program(["other"], 1))], room=1
        ).jobs

    claims = [QueueClaim(DEFAULT, 9, lanes=lanes, max_payload=1_000), QueueClaim(MAIL, 9, max_payload=1_000)]
    jobs = store.settle_and_claim(W1, claims=claims if way == "several" else claims[:1], room=9).jobs

    assert [job.payload for job in jobs] == [b"x", b"", b"z"]
    whole = [look(reader, job.id) for job in jobs]
    assert [job.payload for job in whole] == [b"x", b"y" * 5_000, b"z"]
    assert [asdict(job) | {"payload": b""} for job in jobs] == [
        asdict(job) | {"payload": b""} for job in whole
    ]


def test_a_claim_that_ends_before_all_large_jobs_were_taken_says_so(store: Store) -> None:
    ids = put_many(store, 20, payload=b"x" * 2_000)
    taken: list[JobId] = []

    while len(taken) < len(ids):
        answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 20, max_payload=1_000)], room=20)
        taken += (job.id for job in answer.jobs)
        assert answer.jobs
        assert len(taken) == len(ids) or answer.next_due_ms == 0

    assert taken == ids


@pytest.mark.shows(
    "R-LEASE-06", "R-JOB-26", "R-JOB-55", "R-LEASE-18", "R-CFG-24", "R-CFG-70", "R-JOB-16", "R-JOB-46"
)
def test_a_claim_leases_the_job_to_the_worker(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store)
    clock.advance(ms=7)

    start(store, W1)

    job = look(reader, job_id)
    assert (job.state, job.worker, job.attempt) == (JobState.RUNNING, W1, 1)
    assert (job.started_at, job.updated_at) == (T0 + 7, T0 + 7)
    assert job.lease_expires_at == T0 + 7 + 30_000


@pytest.mark.shows("R-JOB-29", "R-JOB-28")
def test_a_claim_leaves_the_rest_of_the_job_as_it_was(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, payload=b"abc", metadata={"a": 1}, tags=("x",))
    before = record(reader, job_id)
    assert before is not None
    clock.advance(ms=7)

    start(store)

    after = record(reader, job_id)
    assert after == before | {
        "state": JobState.RUNNING,
        "worker": W1,
        "attempt": 1,
        "started_at": T0 + 7,
        "updated_at": T0 + 7,
        "lease_expires_at": T0 + 30_007,
    }


@pytest.mark.shows("R-LEASE-08")
def test_the_answer_of_a_claim_is_the_stored_record(store: Store, reader: Reader) -> None:
    put(store, payload=b"abc", metadata={"a": 1}, tags=("x",), unique_key="k")

    job = start(store)

    assert asdict(job) == record(reader, job.id)


@pytest.mark.shows("R-LEASE-07", "R-RETRY-10", "R-LEASE-20", "R-JOB-27", "R-BUG-27", "R-BUG-33", "R-JOB-18")
def test_each_claim_counts_one_attempt_and_starts_its_own_time(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = started(store)
    settle(store, first, Interrupted())
    clock.advance(ms=500)

    second = start(store, W2)

    assert (first.attempt, second.attempt) == (1, 2)
    assert (second.worker, second.started_at, second.updated_at) == (W2, T0 + 500, T0 + 500)
    assert second.lease_expires_at == T0 + 500 + 30_000


@pytest.mark.shows("R-LEASE-19")
def test_the_lease_is_the_queues_by_default(store: Store) -> None:
    store.save_queue(DEFAULT, {"lease_ms": 11_000})
    put(store)

    [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs

    assert job.lease_expires_at == T0 + 11_000


@pytest.mark.shows("R-LEASE-19", "R-JOB-20")
def test_the_lease_of_the_job_goes_before_the_queues(store: Store) -> None:
    store.save_queue(DEFAULT, {"lease_ms": 11_000})
    put(store, lease_ms=12_000)

    [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs

    assert job.lease_expires_at == T0 + 12_000


@pytest.mark.shows("R-LEASE-19")
def test_the_lease_of_the_claim_goes_before_the_jobs(store: Store) -> None:
    store.save_queue(DEFAULT, {"lease_ms": 11_000})
    put(store, lease_ms=12_000)

    [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1, 13_000)], room=1).jobs

    assert (job.lease_expires_at, job.lease_ms) == (T0 + 13_000, 12_000)


@pytest.mark.shows("R-LEASE-12", "R-TEST-09", "R-PRI-06")
def test_ten_jobs_come_out_in_the_order_they_went_in(store: Store) -> None:
    ids = put_many(store, 10)

    first_half = claimed(store, 5)
    second_half = claimed(store, 5)

    assert first_half + second_half == ids


def test_a_claim_gives_all_there_is_when_more_is_wanted(store: Store) -> None:
    ids = put_many(store, 3)

    assert claimed(store, 100) == ids


@pytest.mark.parametrize(("most", "room"), [(0, 5), (-1, 5), (5, 0), (5, -1)])
def test_a_claim_without_a_request_or_room_takes_nothing(
    store: Store, reader: Reader, most: int, room: int
) -> None:
    put(store)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, most)], room=room)

    assert answer.jobs == ()
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.parametrize(("most", "room"), [(2, 5), (5, 2)])
def test_a_claim_takes_no_more_than_request_and_room_allow(
    store: Store, reader: Reader, most: int, room: int
) -> None:
    ids = put_many(store, 4)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, most)], room=room)

    assert [job.id for job in answer.jobs] == ids[:2]
    assert counts_of(reader) == Counts(pending=2, running=2)


def test_a_settle_and_claim_that_wants_nothing_does_nothing(store: Store, reader: Reader) -> None:
    put(store)

    assert store.settle_and_claim(W1) == SettleAndClaimResult()

    assert counts_of(reader) == Counts(pending=1)


def test_an_unknown_queue_gives_nothing(store: Store, reader: Reader) -> None:
    answer = store.settle_and_claim(W1, claims=[QueueClaim(MAIL, 5)], room=5)

    assert answer == SettleAndClaimResult()
    assert reader.queues([MAIL]) == []


@pytest.mark.shows("R-QUEUE-12", "R-TEST-03", "R-QUEUE-13")
def test_jobs_come_only_from_the_queue_they_were_put_in(store: Store, reader: Reader) -> None:
    here = put(store)
    there = put(store, queue=MAIL)

    taken = claimed(store, 10, queue=MAIL)

    assert taken == [there]
    assert look(reader, here).state is JobState.PENDING


def test_wants_are_served_in_order_until_the_room_is_full(store: Store, reader: Reader) -> None:
    letters = put_many(store, 2, queue=MAIL)
    plain = put_many(store, 5)
    late = put(store, queue=QueueName("late"))

    answer = store.settle_and_claim(
        W1, claims=[QueueClaim(MAIL, 9), QueueClaim(DEFAULT, 9), QueueClaim(QueueName("late"), 9)], room=4
    )

    assert [job.id for job in answer.jobs] == letters + plain[:2]
    assert look(reader, late).state is JobState.PENDING


def test_one_queue_may_be_wanted_twice(store: Store) -> None:
    ids = put_many(store, 3)

    answer = store.settle_and_claim(
        W1, claims=[QueueClaim(DEFAULT, 1), QueueClaim(DEFAULT, 1, 5_000)], room=9
    )

    assert [job.id for job in answer.jobs] == ids[:2]
    assert [job.lease_expires_at for job in answer.jobs] == [T0 + 30_000, T0 + 5_000]


@pytest.mark.shows("R-LEASE-02", "R-LEASE-05", "R-JOB-47")
@pytest.mark.parametrize("state", NOT_PENDING)
def test_only_pending_jobs_are_claimed(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)

    taken = claimed(store, 9, W2)

    assert taken == []
    assert record(reader, job_id) == before


@pytest.mark.shows("R-LEASE-05", "R-BUG-32")
def test_a_running_job_is_not_claimed_even_after_its_lease_has_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=HOUR)

    taken = claimed(store, 9, W2)

    assert taken == []
    assert look(reader, job.id).worker == W1


@pytest.mark.shows("R-BUG-32")
def test_a_job_that_has_waited_long_gets_a_whole_lease(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store)
    clock.advance(ms=5 * HOUR)
    job = start(store)

    swept = store.sweep(W2)

    assert swept == []
    assert job.lease_expires_at == T0 + 5 * HOUR + 30_000


@pytest.mark.shows("R-LEASE-01", "R-EDGE-01")
def test_two_workers_never_get_the_same_job(store: Store, other_store: Store) -> None:
    job_id = put(store)

    first = claimed(store, 1, W1)
    second = claimed(other_store, 1, W2)

    assert (first, second) == ([job_id], [])


@pytest.mark.shows("R-QUEUE-05", "R-QUEUE-06", "R-QUEUE-03")
def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    store: Store, other_store: Store, reader: Reader
) -> None:
    job_id = put(store)
    other_store.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert claimed(store, 1) == []
    assert look(reader, job_id).attempt == 0

    other_store.save_queue(DEFAULT, state=QueueState.ACTIVE)
    assert claimed(store, 1) == [job_id]


@pytest.mark.shows("R-QUEUE-05", "R-QUEUE-06")
def test_a_draining_queue_gives_out_what_it_has(store: Store) -> None:
    ids = put_many(store, 2)
    store.save_queue(DEFAULT, state=QueueState.DRAINING)

    assert claimed(store, 9) == ids


def test_a_dropped_queue_gives_nothing(store: Store, reader: Reader) -> None:
    ids = put_many(store, 3)

    store.drop_queue(DEFAULT, force=True, limit=1)

    assert claimed(store, 9) == []
    assert states(reader, ids) == [JobState.DEAD, JobState.PENDING, JobState.PENDING]


@pytest.mark.shows("R-LEASE-04", "R-SCHED-01", "R-BUG-23", "R-JOB-54", "R-SCHED-03")
def test_a_scheduled_job_is_claimed_when_it_is_due_and_never_earlier(
    store: Store, clock: ManualClock
) -> None:
    job_id = put(store, delay_ms=1_000)

    clock.advance(ms=999)
    assert claimed(store, 1) == []

    clock.advance(ms=1)
    assert claimed(store, 1) == [job_id]


@pytest.mark.shows("R-JOB-49", "R-LEASE-05", "R-TEST-19", "R-RETRY-01", "R-RETRY-08")
def test_a_retry_is_claimed_when_it_is_due_and_never_earlier(store: Store, clock: ManualClock) -> None:
    job = started(store)
    settle(store, job, Failed(BOOM, 1_000))

    clock.advance(ms=999)
    assert claimed(store, 1) == []

    clock.advance(ms=1)
    assert claimed(store, 1) == [job.id]


@pytest.mark.shows("R-EDGE-40")
def test_a_retry_that_comes_due_waits_while_its_queue_is_paused(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = make(store, JobState.RETRYING)
    store.save_queue(DEFAULT, state=QueueState.PAUSED)
    clock.advance(ms=HOUR)

    assert claimed(store, 1) == []

    assert look(reader, job_id).state is JobState.PENDING


@pytest.mark.shows("R-EDGE-40")
def test_a_retry_that_comes_due_runs_while_its_queue_drains(store: Store, clock: ManualClock) -> None:
    job_id = make(store, JobState.RETRYING)
    store.save_queue(DEFAULT, state=QueueState.DRAINING)
    clock.advance(ms=HOUR)

    assert claimed(store, 1) == [job_id]


def test_a_claim_promotes_only_in_the_queues_it_wants(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store, queue=MAIL, delay_ms=1)
    put(store, delay_ms=1)
    clock.advance(ms=1)

    store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)

    assert counts_of(reader) == Counts(running=1)
    assert counts_of(reader, MAIL) == Counts(scheduled=1)


def test_a_queue_that_has_no_turn_because_the_room_is_full_is_promoted_all_the_same(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store)
    put(store, queue=MAIL, delay_ms=1)
    clock.advance(ms=1)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1), QueueClaim(MAIL, 1)], room=1)

    assert counts_of(reader, MAIL) == Counts(pending=1)
    assert answer.next_due_ms is None


@pytest.mark.shows("R-RETRY-26")
def test_a_claim_promotes_at_most_1000_jobs(store: Store, reader: Reader, clock: ManualClock) -> None:
    put_many(store, 1_005, delay_ms=1)
    clock.advance(ms=1)

    taken = claimed(store, 2)

    assert len(taken) == 2
    assert counts_of(reader) == Counts(scheduled=5, pending=998, running=2)


def test_a_job_that_expires_while_it_waits_is_cancelled_by_the_next_claim(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, expires_at=T0 + 1_000)
    clock.advance(ms=1_000)

    assert claimed(store, 1) == []

    job = look(reader, job_id)
    assert (job.state, job.reason, job.attempt) == (JobState.CANCELLED, "expired", 0)


def test_a_job_is_claimed_up_to_its_expiry(store: Store, clock: ManualClock) -> None:
    job_id = put(store, expires_at=T0 + 1_000)
    clock.advance(ms=999)

    assert claimed(store, 1) == [job_id]


def test_an_expired_job_is_not_claimed_even_before_its_turn_to_be_cancelled(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = put(store, expires_at=T0 + 1_001)
    put_many(store, 1_000, expires_at=T0 + 1_000)
    clock.advance(ms=2_000)

    assert claimed(store, 9) == []

    assert look(reader, first).state is JobState.PENDING
    assert counts_of(reader) == Counts(pending=1, cancelled=1_000)


@pytest.mark.shows("R-RETRY-27", "R-SCHED-03")
def test_the_answer_says_when_the_next_job_of_the_wanted_queues_is_due(
    store: Store, clock: ManualClock
) -> None:
    put(store, delay_ms=3_000)
    put(store, queue=MAIL, delay_ms=2_000)
    put(store, queue=QueueName("unwanted"), delay_ms=1_000)
    clock.advance(ms=500)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1), QueueClaim(MAIL, 1)], room=2)

    assert answer.next_due_ms == 1_500


def test_a_retry_counts_for_the_next_due_time(store: Store) -> None:
    job = started(store)

    answer = store.settle_and_claim(W1, [ended(job, Failed(BOOM, 5_000))], [QueueClaim(DEFAULT, 1)], room=1)

    assert answer.next_due_ms == 5_000


def test_nothing_is_due_next_when_nothing_waits_for_a_time(store: Store) -> None:
    put(store)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)

    assert answer.next_due_ms is None


def test_jobs_that_are_overdue_and_could_not_be_promoted_yet_are_due_now(
    store: Store, clock: ManualClock
) -> None:
    put_many(store, 1_001, delay_ms=1)
    clock.advance(ms=MINUTE)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)

    assert answer.next_due_ms == 0


def test_a_settle_and_claim_settles_before_it_claims(store: Store) -> None:
    job = started(store)

    answer = store.settle_and_claim(W1, [ended(job, Interrupted())], [QueueClaim(DEFAULT, 1)], room=1)

    assert answer.settled == (job.id,)
    assert [(again.id, again.attempt) for again in answer.jobs] == [(job.id, 2)]


def test_a_follow_up_can_be_claimed_in_the_same_settle_and_claim(store: Store) -> None:
    job = started(store)
    follow_up = new_job(task="next")

    answer = store.settle_and_claim(
        W1, [ended(job, Completed(None), follow_ups=(follow_up,))], [QueueClaim(DEFAULT, 1)], room=1
    )

    assert [again.task for again in answer.jobs] == ["next"]
