"""What a clock that is set back or forward must not do."""

from __future__ import annotations

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Snoozed
from forebay.domain.retry_policy import MAX_DELAY_MS
from forebay.domain.settlement import decide
from forebay.stores.contract.clock_readings import ClockReading
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import MAIL, look, put, put_many, states
from tests.stores.support import WORKER, claim, complete

HOUR = 3_600_000


@pytest.mark.shows("R-EDGE-31")
def test_a_clock_set_back_does_not_hold_up_maintenance_tasks(store: Store, clock: ManualClock) -> None:
    store.acquire_maintenance("sweep", 1_000)

    clock.set(clock.now_ms() - HOUR)

    assert store.acquire_maintenance("sweep", 1_000)
    assert not store.acquire_maintenance("sweep", 1_000)


def test_a_maintenance_task_that_has_more_to_do_can_be_taken_again_at_once(store: Store) -> None:
    store.acquire_maintenance("prune", 10_000)

    store.acquire_maintenance("prune", 0)

    assert store.acquire_maintenance("prune", 10_000)


def test_jobs_that_came_while_the_clock_was_ahead_hold_up_no_later_ones(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    now = clock.now_ms()
    clock.set(now + 30 * 24 * HOUR)
    put(store)
    clock.set(now)
    old = put(store)

    clock.set(now + 90 * 24 * HOUR)
    while store.rescore():
        pass

    assert look(reader, old).age_capped


@pytest.mark.parametrize("children", [1, 40])
def test_a_clock_set_back_does_not_hold_up_a_blocked_job_without_a_delay(
    store: Store, reader: Reader, clock: ManualClock, children: int
) -> None:
    parent = put(store, priority=1)
    blocked = put_many(store, children, depends_on=dependencies_of([parent]))
    in_turn = [put(store, sequence="s", queue=MAIL) for _ in range(2)]
    running = [*claim(store), *claim(store, queue=MAIL)]

    clock.set(clock.now_ms() - 3 * HOUR)
    store.settle_and_claim(WORKER, [complete(job) for job in running])

    assert set(states(reader, [*blocked, in_turn[1]])) == {JobState.PENDING}
    assert look(reader, blocked[0]).ready_at == clock.now_ms()
    assert len(claim(store, 100)) == children


def test_a_clock_set_back_does_not_hold_up_a_revived_job_without_a_delay(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    parent = put(store, priority=1)
    child = put(store, depends_on=dependencies_of([parent]))
    store.cancel([child])
    clock.advance(ms=HOUR)
    store.revive([child])
    [job] = claim(store)

    clock.set(clock.now_ms() - HOUR)
    store.settle_and_claim(WORKER, [complete(job)])

    assert states(reader, [child]) == [JobState.PENDING]


def test_a_blocked_job_with_a_delay_waits_for_its_time_though_the_clock_was_set_back(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    parent = put(store, priority=1)
    due_at = clock.now_ms() + HOUR
    child = put(store, depends_on=dependencies_of([parent]), delay_ms=HOUR)
    [job] = claim(store)

    clock.set(clock.now_ms() - HOUR)
    store.settle_and_claim(WORKER, [complete(job)])

    found = look(reader, child)
    assert (found.state, found.run_at) == (JobState.SCHEDULED, due_at)


def test_a_delay_without_end_is_cut_to_a_year(store: Store, reader: Reader, clock: ManualClock) -> None:
    put(store)
    [job] = claim(store)

    store.settle_and_claim(WorkerId(job.worker or ""), [decide(job, Snoozed(2**62), 0.0)])

    assert look(reader, job.id).run_at == clock.now_ms() + MAX_DELAY_MS


# ------------------------------------------------------------------ readings of the clock


def test_a_reading_of_the_clock_is_the_time_of_the_store(store: Store, clock: ManualClock) -> None:
    assert store.read_clock() == ClockReading(now=clock.now_ms())
    assert store.read_clock(record=True) == ClockReading(now=clock.now_ms())


def test_a_recorded_reading_is_shown_to_others_after_twelve_seconds(
    store: Store, other_store: Store, clock: ManualClock
) -> None:
    first = store.read_clock(record=True).now

    clock.advance(ms=11_999)
    early = other_store.read_clock(record=True).earlier
    clock.advance(ms=1)

    assert (early, other_store.read_clock(record=True).earlier) == (None, first)


def test_a_reading_that_is_not_recorded_is_shown_to_no_one(store: Store, clock: ManualClock) -> None:
    store.read_clock()

    clock.advance(seconds=60)

    assert store.read_clock(record=True).earlier is None


def test_the_latest_reading_that_is_old_enough_is_shown(store: Store, clock: ManualClock) -> None:
    began = store.read_clock(record=True).now
    for _ in range(60):
        clock.advance(seconds=1)
        store.read_clock(record=True)

    earlier = store.read_clock(record=True).earlier

    # One reading is kept for each two seconds.
    assert earlier is not None
    assert began + 46_000 <= earlier <= began + 48_000


@pytest.mark.parametrize("pause", [16, 60, 3_600])
def test_programs_that_read_seldom_are_shown_the_reading_before(
    store: Store, clock: ManualClock, pause: int
) -> None:
    for _ in range(3):
        before = store.read_clock(record=True).now
        clock.advance(seconds=pause)
        assert store.read_clock(record=True).earlier == before


@pytest.mark.shows("R-EDGE-31")
def test_a_reading_from_before_the_clock_was_set_back_does_not_count(
    store: Store, clock: ManualClock
) -> None:
    store.read_clock(record=True)
    clock.set(clock.now_ms() - 16_000)

    set_back = store.read_clock(record=True)
    clock.advance(seconds=12)

    assert set_back.earlier is None
    assert store.read_clock(record=True).earlier == set_back.now
