"""Sweep: leases that have run out are taken over, and their attempts end as lost."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from forebay.domain.job import JobId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Failed, Interrupted, Lost
from forebay.domain.queue_counts import Counts
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.worker import WorkerInfo
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    STATES,
    SWEEPER,
    T0,
    W1,
    W2,
    W3,
    attempts_of,
    claimed,
    counts_of,
    events_of,
    kinds_of,
    lease,
    look,
    lose,
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

NOT_RUNNING = [state for state in STATES if state is not JobState.RUNNING]


@pytest.mark.shows("R-SWEEP-01", "R-SWEEP-05", "R-SWEEP-20")
def test_a_lease_is_taken_over_at_its_end_and_not_before(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)

    clock.advance(ms=29_999)
    assert store.sweep(SWEEPER) == []
    assert look(reader, job.id).worker == W1

    clock.advance(ms=1)
    assert [swept.id for swept in store.sweep(SWEEPER)] == [job.id]


@pytest.mark.shows("R-SWEEP-02", "R-EDGE-12")
def test_a_takeover_is_a_lease_of_the_sweeper_on_the_same_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=MINUTE)

    [swept] = store.sweep(SWEEPER, lease_ms=12_345)

    assert (swept.state, swept.worker, swept.attempt) == (JobState.RUNNING, SWEEPER, 1)
    assert (swept.started_at, swept.lease_expires_at) == (T0, T0 + MINUTE + 12_345)
    assert asdict(swept) == record(reader, job.id)
    assert counts_of(reader) == Counts(running=1)


def test_the_lease_of_a_takeover_is_30_seconds_unless_asked_otherwise(
    store: Store, clock: ManualClock
) -> None:
    started(store, lease_ms=5_000)
    clock.advance(ms=MINUTE)

    [swept] = store.sweep(SWEEPER)

    assert swept.lease_expires_at == T0 + MINUTE + 30_000


@pytest.mark.shows("R-SWEEP-12", "R-HIST-02")
def test_a_takeover_leaves_an_event_that_names_the_old_holder(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)

    store.sweep(SWEEPER)

    assert events_of(reader, job.id) == [
        Event(
            kind=EventKind.SWEPT,
            occurred_at=T0 + MINUTE,
            job_id=job.id,
            queue=DEFAULT,
            attempt=1,
            actor=SWEEPER,
            detail=W1,
        )
    ]


@pytest.mark.shows("R-SWEEP-12", "R-DONE-14", "R-LEASE-10")
def test_the_row_of_a_lost_attempt_names_the_worker_that_lost_it(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)
    [swept] = store.sweep(SWEEPER)

    settle(store, swept, Lost("died"), SWEEPER)

    [row] = attempts_of(reader, job.id)
    assert (row.attempt, row.outcome, row.worker) == (1, "lost", W1)
    assert (row.started_at, row.ended_at) == (T0, T0 + MINUTE)


@pytest.mark.shows("R-SWEEP-03")
def test_a_sweeper_that_dies_is_swept_in_turn_and_the_first_holder_is_remembered(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)
    store.sweep(SWEEPER)
    clock.advance(ms=MINUTE)
    [again] = store.sweep(W3)

    settle(store, again, Lost("died"), W3)

    assert [row.worker for row in attempts_of(reader, job.id)] == [W1]
    assert [(event.actor, event.detail) for event in events_of(reader, job.id)] == [
        (SWEEPER, W1),
        (W3, SWEEPER),
    ]


def test_the_next_attempt_is_told_of_its_own_worker(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store, W1)
    clock.advance(ms=MINUTE)
    [swept] = store.sweep(SWEEPER)
    settle(store, swept, Interrupted(), SWEEPER)
    second = start(store, W2)

    settle(store, second, Failed(BOOM, 5), W2)

    assert [(row.attempt, row.worker) for row in attempts_of(reader, job.id)] == [(2, W2)]


@pytest.mark.shows("R-SWEEP-03")
def test_what_has_been_swept_is_not_swept_again_while_that_lease_lasts(
    store: Store, other_store: Store, clock: ManualClock
) -> None:
    started(store)
    clock.advance(ms=MINUTE)

    first = store.sweep(SWEEPER)
    second = other_store.sweep(W3)

    assert (len(first), second) == (1, [])


def test_a_sweeper_takes_over_its_own_lease_only_when_it_has_ended(store: Store, clock: ManualClock) -> None:
    job = started(store, W1)

    assert store.sweep(W1) == []

    clock.advance(ms=30_000)
    assert [swept.id for swept in store.sweep(W1)] == [job.id]


@pytest.mark.shows("R-JOB-45")
@pytest.mark.parametrize("state", NOT_RUNNING)
def test_only_running_jobs_are_swept(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)
    clock.advance(ms=DAY)

    assert store.sweep(SWEEPER) == []

    assert record(reader, job_id) == before
    assert EventKind.SWEPT not in kinds_of(reader, job_id)


@pytest.mark.shows("R-SWEEP-02")
def test_a_sweep_keeps_to_its_limit_and_begins_with_the_oldest_end(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    late = started(store, lease_ms=9_000)
    soon = started(store, lease_ms=5_000)
    same = started(store, lease_ms=5_000)
    clock.advance(ms=HOUR)

    first = store.sweep(SWEEPER, limit=2)
    second = store.sweep(SWEEPER, limit=2)

    assert [job.id for job in first] == [soon.id, same.id]
    assert [job.id for job in second] == [late.id]


@pytest.mark.shows("R-SWEEP-13", "R-SWEEP-27", "R-BUG-10")
def test_the_first_crash_puts_the_job_back_into_its_queue_at_once(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store, queue=MAIL)
    job = start(store, W1, MAIL)
    clock.advance(ms=MINUTE)
    [swept] = store.sweep(SWEEPER)

    settle(store, swept, Lost("died"), SWEEPER)

    back = look(reader, job.id)
    assert (back.state, back.queue, back.crashes, back.failures) == (JobState.PENDING, MAIL, 1, 0)
    assert start(store, W2, MAIL).attempt == 2


@pytest.mark.shows("R-SWEEP-14", "R-EDGE-11", "R-BUG-10", "R-SWEEP-13")
def test_a_job_that_always_takes_its_worker_down_ends_in_the_dead_letters(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store)

    crashes = [lose(store, clock).crashes for _ in range(4)]

    dead = look(reader, job_id)
    assert crashes == [0, 1, 2, 3]
    assert (dead.state, dead.crashes, dead.attempt) == (JobState.DEAD, 4, 4)
    assert dead.reason == "lost 4 times, the last time: its worker died"


@pytest.mark.shows("R-SWEEP-14", "R-RETRY-36")
def test_a_job_that_must_not_run_twice_is_dead_after_its_first_loss(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, policy=RetryPolicy(max_crashes=0))

    lose(store, clock)

    assert look(reader, job_id).state is JobState.DEAD


def test_the_sweeper_may_settle_an_attempt_as_anything(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=MINUTE)
    [swept] = store.sweep(SWEEPER)

    answer = settle(store, swept, Completed(b"1"), SWEEPER)

    assert answer.settled == (job.id,)
    assert look(reader, job.id).state is JobState.COMPLETED


@pytest.mark.shows("R-QUEUE-04", "R-DLQ-20")
@pytest.mark.parametrize("outcome", [Interrupted(), Failed(BOOM, HOUR)])
def test_a_sweep_marks_dead_what_goes_back_to_a_dropped_queue(
    store: Store, reader: Reader, clock: ManualClock, outcome: Interrupted | Failed
) -> None:
    job = started(store, unique_key="k")
    store.drop_queue(DEFAULT, force=True)
    settle(store, job, outcome)
    clock.advance(ms=9)

    assert store.sweep(SWEEPER) == []

    dead = look(reader, job.id)
    assert (dead.state, dead.reason, dead.finished_at) == (JobState.DEAD, "queue dropped", T0 + 9)
    assert kinds_of(reader, job.id) == [EventKind.DROPPED]
    assert counts_of(reader) == Counts(dead=1)


def test_a_sweep_marks_no_more_dead_than_its_limit(store: Store, reader: Reader) -> None:
    ids = put_many(store, 5)
    store.drop_queue(DEFAULT, force=True, limit=1)

    store.sweep(SWEEPER, limit=2)

    assert states(reader, ids) == [JobState.DEAD] * 3 + [JobState.PENDING] * 2


def test_the_limit_of_what_a_sweep_marks_dead_holds_for_all_queues_together(
    store: Store, reader: Reader
) -> None:
    put_many(store, 4)
    put_many(store, 4, queue=MAIL)
    store.drop_queue(DEFAULT, force=True, limit=1)
    store.drop_queue(MAIL, force=True, limit=1)

    store.sweep(SWEEPER, limit=2)

    assert counts_of(reader).dead + counts_of(reader, MAIL).dead == 4


def test_a_sweep_leaves_the_waiting_jobs_of_other_queues(store: Store, reader: Reader) -> None:
    waiting = put(store, queue=MAIL)
    store.save_queue(DEFAULT)
    store.drop_queue(DEFAULT)

    store.sweep(SWEEPER)

    assert look(reader, waiting).state is JobState.PENDING


def test_a_sweep_leaves_running_jobs_of_a_dropped_queue_to_their_holders(
    store: Store, reader: Reader
) -> None:
    job = started(store)
    store.drop_queue(DEFAULT, force=True)
    before = record(reader, job.id)

    store.sweep(SWEEPER)

    assert record(reader, job.id) == before


def test_a_follow_up_to_a_dropped_queue_is_marked_dead_by_the_next_sweep(
    store: Store, reader: Reader
) -> None:
    store.save_queue(MAIL)
    store.drop_queue(MAIL)
    settle(store, started(store), Completed(b"1"), follow_ups=(new_job(queue=MAIL),))

    store.sweep(SWEEPER)

    assert counts_of(reader, MAIL) == Counts(dead=1)


# Workers that the caller names as dead


@pytest.mark.shows("R-SWEEP-09")
@pytest.mark.parametrize("only_dead", [True, False])
def test_the_leases_of_a_worker_that_is_named_as_dead_are_taken_over_at_once(
    store: Store, reader: Reader, only_dead: bool
) -> None:
    job = started(store, W1)

    [swept] = store.sweep(SWEEPER, lease_ms=12_345, only_dead=only_dead, dead=[W1])

    assert (swept.id, swept.worker, swept.attempt) == (job.id, SWEEPER, 1)
    assert swept.lease_expires_at == T0 + 12_345
    assert [(event.kind, event.actor, event.detail) for event in events_of(reader, job.id)] == [
        (EventKind.SWEPT, SWEEPER, W1)
    ]


def test_a_worker_that_is_named_as_dead_is_refused_from_then_on(store: Store) -> None:
    job = started(store, W1)

    store.sweep(SWEEPER, dead=[W1])

    assert [refusal.reason for refusal in store.renew(W1, [lease(job)]).refused] == ["other worker"]
    assert [refusal.reason for refusal in settle(store, job, Completed()).refused] == ["other worker"]


@pytest.mark.parametrize("is_alive", [True, False])
def test_it_does_not_matter_whether_the_engine_thinks_that_the_named_one_lives(
    store: Store, other_store: Store, is_alive: bool
) -> None:
    if is_alive:
        store.heartbeat(WorkerInfo(id=W1))
        other_store.heartbeat(WorkerInfo(id=W2))
    first, second = started(store, W1), started(other_store, W2)

    swept = store.sweep(SWEEPER, only_dead=True, dead={W1, W2})

    assert [job.id for job in swept] == [first.id, second.id]


def test_leases_of_those_who_are_not_named_are_left_alone(store: Store, reader: Reader) -> None:
    named, other = started(store, W1), started(store, W2)

    swept = store.sweep(SWEEPER, dead=[W1, W3])

    assert [job.id for job in swept] == [named.id]
    assert look(reader, other.id).worker == W2


def test_a_sweeper_that_is_named_as_dead_keeps_its_leases_until_they_end(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    own, other = started(store, SWEEPER), started(store, W1)

    early = store.sweep(SWEEPER, dead=[SWEEPER, W1])
    clock.advance(ms=30_000)
    late = store.sweep(SWEEPER, dead=[SWEEPER])

    assert [job.id for job in early] == [other.id]
    assert {job.id for job in late} == {own.id, other.id}


def test_with_only_the_dead_a_lease_that_has_merely_ended_is_left_to_its_holder(
    store: Store, clock: ManualClock
) -> None:
    started(store, W1)
    named = started(store, W2)
    clock.advance(ms=HOUR)

    assert [job.id for job in store.sweep(SWEEPER, only_dead=True, dead=[W2])] == [named.id]


def test_ended_leases_come_first_and_the_limit_holds_for_both_together(
    store: Store, clock: ManualClock
) -> None:
    of_the_dead = started(store, W1, lease_ms=HOUR)
    clock.advance(ms=1)
    both = started(store, W1, lease_ms=5_000)
    has_ended = started(store, W2, lease_ms=6_000)
    clock.advance(ms=MINUTE)

    first = store.sweep(SWEEPER, 2, dead=[W1])
    rest = store.sweep(SWEEPER, 2, dead=[W1])

    assert [job.id for job in first] == [both.id, has_ended.id]
    assert [job.id for job in rest] == [of_the_dead.id]


def test_of_the_dead_the_lease_that_ends_soonest_is_taken_first(store: Store) -> None:
    late = started(store, W1, lease_ms=HOUR)
    soon = started(store, W2, lease_ms=MINUTE)

    assert [job.id for job in store.sweep(SWEEPER, 1, dead=[W1, W2])] == [soon.id]
    assert [job.id for job in store.sweep(SWEEPER, dead=[W1, W2])] == [late.id]


def test_jobs_that_do_not_run_any_more_have_no_lease_to_take(store: Store) -> None:
    settle(store, started(store, W1), Failed(BOOM, HOUR))
    settle(store, started(store, W1), Completed())

    assert store.sweep(SWEEPER, dead=[W1]) == []


def test_of_leases_that_end_together_those_of_older_jobs_are_swept_first(
    store: Store, clock: ManualClock
) -> None:
    ids = [put(store, id=JobId(name)) for name in ("z", "a", "m")]
    claimed(store, 3)
    clock.advance(ms=HOUR)

    swept = [store.sweep(SWEEPER, 1) for _ in ids]

    assert [[job.id for job in jobs] for jobs in swept] == [[job_id] for job_id in ids]


@pytest.mark.shows("R-EDGE-31")
def test_a_sweep_up_to_a_time_leaves_leases_that_end_later(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    early = started(store)
    clock.advance(ms=1)
    late = started(store)
    ended_by = T0 + 30_000
    clock.set(clock.now_ms() + HOUR)

    swept = store.sweep(SWEEPER, ended_by=ended_by)

    assert [job.id for job in swept] == [early.id]
    assert look(reader, late.id).worker == W1
    assert [job.id for job in store.sweep(SWEEPER)] == [late.id]


def test_a_sweep_up_to_a_time_to_come_takes_no_lease_that_has_not_ended(
    store: Store, clock: ManualClock
) -> None:
    started(store)

    assert store.sweep(SWEEPER, ended_by=T0 + HOUR) == []
