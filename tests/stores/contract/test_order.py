"""Order: each engine's rank is the domain's, and claims follow it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Failed, Interrupted, Snoozed
from forebay.domain.queue import QueueMode
from forebay.domain.rank import QueueRank, effective_priority
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    T0,
    W1,
    claimed,
    ended,
    look,
    place_of,
    put,
    put_many,
    queue_of,
    rescore_all,
    settle,
    start,
    started,
)
from tests.stores.support import new_job

# One second is worth a point, and ten points are the most that age can earn.
QUICK: dict[str, Any] = {"aging_ms": 1_000, "max_aging_bonus": 10.0}


@pytest.mark.shows("R-PRI-06", "R-TEST-02", "R-PRI-05")
def test_jobs_alike_come_out_in_the_order_of_their_insertion(store: Store) -> None:
    ids = [put(store, id=JobId(name)) for name in ("c", "a", "b")]

    assert claimed(store, 3) == ids


@pytest.mark.shows("R-PRI-07", "R-JOB-12")
def test_a_later_and_more_urgent_job_goes_first(store: Store, clock: ManualClock) -> None:
    low = put(store, priority=-1)
    middle = put(store, priority=0)
    clock.advance(ms=10)
    high = put(store, priority=1)

    assert claimed(store, 3) == [high, middle, low]


@pytest.mark.shows("R-PRI-13", "R-PRI-18", "R-PRI-19", "R-CFG-19")
def test_an_hour_of_waiting_is_worth_one_point(store: Store, clock: ManualClock) -> None:
    old = put(store, priority=0)
    clock.advance(ms=HOUR - 1)
    just_before = put(store, priority=1)
    clock.advance(ms=2)
    just_after = put(store, priority=1)

    assert claimed(store, 3) == [just_before, old, just_after]


@pytest.mark.shows("R-PRI-05")
def test_equal_ranks_go_by_the_order_of_insertion(store: Store, clock: ManualClock) -> None:
    old = put(store, priority=0)
    clock.advance(ms=HOUR)
    new = put(store, priority=1)

    assert claimed(store, 2) == [old, new]


@pytest.mark.shows("R-PRI-15", "R-EDGE-44", "R-CFG-21")
def test_a_failure_costs_two_points(store: Store, reader: Reader, clock: ManualClock) -> None:
    failed = started(store)
    settle(store, failed, Failed(BOOM, 0))
    clock.advance(ms=2 * HOUR - 1)
    fresh = put(store)
    clock.advance(ms=2)
    later = put(store)

    assert claimed(store, 3) == [fresh, failed.id, later]


@pytest.mark.shows("R-PRI-15")
def test_failures_cost_at_most_a_hundred_points(store: Store, reader: Reader) -> None:
    job = started(store)

    settle(store, job, Interrupted(), failures=1_000)

    assert look(reader, job.id).rank == T0 + 100 * HOUR


@pytest.mark.parametrize("outcome", [Interrupted(), Snoozed(5)])
def test_a_job_that_goes_back_without_a_failure_keeps_its_place(
    store: Store, clock: ManualClock, outcome: Interrupted | Snoozed
) -> None:
    first, *others = put_many(store, 3)
    settle(store, start(store), outcome)
    clock.advance(ms=5)

    assert claimed(store, 3) == [first, *others]


def test_a_scheduled_job_ages_only_from_the_time_it_is_due(store: Store, clock: ManualClock) -> None:
    scheduled = put(store, delay_ms=10 * HOUR)
    clock.advance(ms=10 * HOUR - 1)
    earlier = put(store)
    clock.advance(ms=2)
    later = put(store)

    assert claimed(store, 3) == [earlier, scheduled, later]


def test_a_revived_job_ages_from_its_revival(store: Store, clock: ManualClock) -> None:
    revived = put(store)
    store.cancel([revived])
    clock.advance(ms=HOUR)
    waiting = put(store)
    clock.advance(ms=1)
    store.revive([revived])

    assert claimed(store, 2) == [waiting, revived]


@pytest.mark.shows("R-PRI-14", "R-EDGE-42", "R-QUEUE-16")
def test_an_old_job_overtakes_nothing_beyond_the_greatest_bonus(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    old = put(store, priority=0)
    clock.advance(seconds=1_000)
    rescore_all(store)
    more_urgent = put(store, priority=11)
    less_urgent = put(store, priority=9)

    assert claimed(store, 3) == [more_urgent, old, less_urgent]


@pytest.mark.shows("R-PRI-20")
def test_a_job_goes_to_the_capped_class_at_the_moment_its_bonus_is_greatest(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, QUICK)
    rescore_all(store)
    job_id = put(store, priority=3)

    clock.advance(ms=9_999)
    rescore_all(store)
    assert (look(reader, job_id).age_capped, look(reader, job_id).rank) == (False, T0 - 3_000)

    clock.advance(ms=1)
    rescore_all(store)
    assert (look(reader, job_id).age_capped, look(reader, job_id).rank) == (True, -3_000)


@pytest.mark.shows("R-CFG-20", "R-PRI-14")
def test_age_earns_fifty_points_and_no_more_unless_set(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    old = put(store, priority=0)
    clock.advance(ms=51 * HOUR)
    rescore_all(store)
    above, below = put(store, priority=51), put(store, priority=49)

    assert look(reader, old).age_capped
    assert claimed(store, 3) == [above, old, below]


def test_in_a_queue_where_age_earns_nothing_jobs_are_capped_from_the_start(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"max_aging_bonus": 0.0})
    old = put(store, priority=1)
    clock.advance(ms=100 * HOUR)
    new = put(store, priority=2)

    assert (look(reader, old).age_capped, look(reader, old).rank) == (True, -HOUR)
    assert claimed(store, 2) == [new, old]


def test_capped_jobs_go_by_their_points_and_then_by_insertion(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    low = put(store, priority=1)
    clock.advance(ms=500)
    first, second = put_many(store, 2, priority=2)
    clock.advance(seconds=1_000)
    rescore_all(store)

    assert claimed(store, 3) == [first, second, low]


def test_a_capped_and_an_ordinary_job_with_the_same_lead_go_by_insertion(
    store: Store, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, QUICK)
    capped = put(store, priority=0)
    clock.advance(ms=20_000)
    rescore_all(store)
    ordinary = put(store, priority=10)

    assert claimed(store, 2) == [capped, ordinary]


def test_an_ordinary_job_passes_a_capped_one_as_it_ages(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    capped = put(store, priority=0)
    clock.advance(ms=20_000)
    rescore_all(store)
    ordinary = put(store, priority=10)
    clock.advance(ms=1)

    assert claimed(store, 2) == [ordinary, capped]


def test_a_claim_merges_both_classes_in_one_order(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    capped = [put(store, priority=priority) for priority in (0, 4, 8)]
    clock.advance(ms=10_000)
    rescore_all(store)
    ordinary = [put(store, priority=priority) for priority in (11, 13, 17, 19)]

    taken = claimed(store, 7)

    assert taken == [ordinary[3], capped[2], ordinary[2], capped[1], ordinary[1], ordinary[0], capped[0]]


@pytest.mark.shows("R-PRI-24")
def test_in_strict_mode_priority_alone_decides(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"mode": QueueMode.STRICT})
    old = put(store, priority=0, deadline_at=T0)
    clock.advance(seconds=10**8)
    rescore_all(store)
    new = put(store, priority=1)

    assert claimed(store, 2) == [new, old]


@pytest.mark.shows("R-PRI-21", "R-PRI-06")
def test_in_fifo_mode_a_retry_keeps_its_place(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"mode": QueueMode.FIFO})
    failed = started(store)
    clock.advance(ms=1)
    waiting = put(store)
    settle(store, failed, Failed(BOOM, 1))
    clock.advance(ms=1)

    assert claimed(store, 2) == [failed.id, waiting]


# The engine's formula against the domain's, on rows made by chance.


def any_settings(dice: Random) -> dict[str, Any]:
    return {
        "aging_ms": dice.choice([1, 7, 999, 60_000, 3_600_000, 2**40]),
        "max_aging_bonus": dice.choice([None, 0.0, 0.001, 1.5, 50.0, 1_000.0]),
        "retry_penalty": dice.choice([0.0, 0.001, 0.333, 2.0, 1_000.0]),
        "deadline_weight": dice.choice([0.0, 0.007, 1.9, 30.0, 1_000.0]),
        "deadline_horizon_ms": dice.choice([8, 9, 1_001, 3_600_000]),
    }


def any_job(dice: Random) -> dict[str, Any]:
    near = dice.choice([10, 5_000, 4 * HOUR, 2_000 * HOUR])
    return {
        "priority": dice.randint(-100, 100),
        "delay_ms": dice.choice([0, dice.randint(0, near)]),
        "deadline_at": dice.choice([None, T0 + dice.randint(-near, 3 * near)]),
    }


def ranks(reader: Reader, ids: list[JobId]) -> list[tuple[bool, int]]:
    return [(job.age_capped, job.rank) for job in reader.jobs(ids) if job]


def expected_ranks(reader: Reader, ids: list[JobId], now: int) -> list[tuple[bool, int]]:
    queue = queue_of(reader)
    found = [place_of(queue, job, now) for job in reader.jobs(ids) if job]
    return [(place.age_capped, place.rank) for place in found]


def wanted_order(reader: Reader, ids: list[JobId], now: int) -> list[JobId]:
    scoring = queue_of(reader).settings.scoring

    def claim_order(job: Job) -> tuple[int, int]:
        return (-effective_priority(scoring, QueueRank(job.age_capped, job.rank, None), now), job.seq)

    return [job.id for job in sorted((job for job in reader.jobs(ids) if job), key=claim_order)]


@pytest.mark.shows("R-PRI-12", "R-PRI-13", "R-PRI-15", "R-PRI-16", "R-PRI-24")
@pytest.mark.parametrize("seed", range(12))
def test_an_engine_ranks_and_claims_any_jobs_as_the_domain_does(
    store: Store, reader: Reader, clock: ManualClock, seed: int
) -> None:
    dice = Random(seed)
    store.save_queue(DEFAULT, any_settings(dice))
    receipts = store.insert([new_job(**any_job(dice)) for _ in range(60)])
    ids = [receipt.id for receipt in receipts if receipt.id]

    # Inserted as pending, with the place of that moment.
    fresh = [job.id for job in reader.jobs(ids) if job and job.state is JobState.PENDING]
    assert ranks(reader, fresh) == expected_ranks(reader, fresh, T0)

    # Rescored, or promoted later.
    clock.advance(ms=dice.choice([1, 5_000, 2_000 * HOUR]))
    store.promote()
    rescore_all(store)
    pending = [job.id for job in reader.jobs(ids) if job and job.state is JobState.PENDING]
    assert ranks(reader, pending) == expected_ranks(reader, pending, clock.now_ms())

    # Claimed in the order of their leads, and given back with failures.
    order = wanted_order(reader, pending, clock.now_ms())
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 100)], room=100).jobs
    assert [job.id for job in jobs] == order
    clock.advance(ms=dice.choice([0, 777, HOUR]))
    store.settle_and_claim(W1, [ended(job, Interrupted(), failures=dice.randint(0, 120)) for job in jobs])
    assert ranks(reader, pending) == expected_ranks(reader, pending, clock.now_ms())

    # Rewritten by a change of settings.
    store.save_queue(DEFAULT, any_settings(dice))
    clock.advance(ms=dice.choice([1, 5_000, 300 * HOUR]))
    rescore_all(store, limit=7)
    assert ranks(reader, pending) == expected_ranks(reader, pending, clock.now_ms())


@pytest.mark.parametrize("priority", [-100, 100])
def test_ranks_stay_exact_at_the_ends_of_the_scale(store: Store, reader: Reader, priority: int) -> None:
    store.save_queue(DEFAULT, {"mode": QueueMode.STRICT})

    job = look(reader, put(store, priority=priority))

    assert job.rank == T0 - priority * 2**40
