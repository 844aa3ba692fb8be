"""Rescore: places that change with time or with the queue's settings."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Interrupted, Snoozed
from forebay.domain.queue import QueueMode
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    STATES,
    T0,
    claimed,
    look,
    make,
    put,
    put_many,
    queue_of,
    record,
    rescore_all,
    settle,
    started,
)

# One second is worth a point, and ten points are the most that age can earn.
QUICK: dict[str, Any] = {"aging_ms": 1_000, "max_aging_bonus": 10.0}


@pytest.mark.shows("R-PRI-16", "R-PRI-17", "R-EDGE-45", "R-BUG-15", "R-CFG-22", "R-CFG-23", "R-PRI-20")
@pytest.mark.parametrize(
    ("waited", "boost"),
    [
        (0, 0),  # farther away than the horizon
        (HOUR, 0),
        (HOUR + HOUR // 8, 30_000 // 64),
        (HOUR + HOUR // 2, 30_000 * 16 // 64),
        (2 * HOUR - 1, 30_000 * 49 // 64),
        (2 * HOUR, 30_000),
        (9 * HOUR, 30_000),
    ],
)
def test_a_deadline_lifts_a_job_in_steps_as_it_nears(
    store: Store, reader: Reader, clock: ManualClock, waited: int, boost: int
) -> None:
    job_id = put(store, deadline_at=T0 + 2 * HOUR)
    clock.advance(ms=waited)

    rescore_all(store)

    assert look(reader, job_id).rank == T0 - boost * HOUR // 1_000


def rescored_after(store: Store, clock: ManualClock, ms: int) -> int:
    clock.advance(ms=ms)
    return store.rescore()


@pytest.mark.shows("R-PRI-20", "R-PRI-16")
def test_a_deadline_rewrites_a_job_eight_times_and_then_no_more(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"max_aging_bonus": None})
    rescore_all(store)
    put(store, deadline_at=T0 + HOUR)

    rewrites = [rescored_after(store, clock, HOUR // 8) for _ in range(20)]

    assert rewrites == [1] * 8 + [0] * 12


@pytest.mark.shows("R-PRI-17", "R-JOB-21")
def test_a_job_past_its_deadline_goes_before_one_without(store: Store) -> None:
    plain = put(store, priority=29)
    urgent = put(store, priority=0, deadline_at=T0)

    assert claimed(store, 2) == [urgent, plain]


def test_rescoring_keeps_to_its_limit(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    rescore_all(store)
    put_many(store, 5)
    clock.advance(ms=10_000)

    assert rescore_all(store, limit=2) == [2, 2, 1]


def test_rescoring_leaves_a_running_job_as_it_was(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, QUICK)
    job = started(store, deadline_at=T0 + 5_000)
    before = record(reader, job.id)
    clock.advance(ms=60_000)

    rescore_all(store)

    assert record(reader, job.id) == before
    assert store.rescore() == 0


def test_a_new_priority_gives_a_fresh_place_past_the_cap(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, QUICK)
    job_id = put(store)
    clock.advance(ms=60_000)

    store.update_job(job_id, JobUpdate(priority=3))

    job = look(reader, job_id)
    assert (job.age_capped, job.rank) == (True, -3_000)


@pytest.mark.parametrize("change", [JobUpdate(priority=3), JobUpdate(delay_ms=0, priority=3)])
@pytest.mark.parametrize("delay", [0, HOUR])
def test_an_updated_job_is_rescored_when_its_time_has_come(
    store: Store, reader: Reader, clock: ManualClock, change: JobUpdate, delay: int
) -> None:
    store.save_queue(DEFAULT, QUICK)
    job_id = put(store, delay_ms=delay)
    store.update_job(job_id, change)
    clock.advance(ms=HOUR)
    store.promote()
    clock.advance(ms=10_000)

    rescore_all(store)

    job = look(reader, job_id)
    assert (job.state, job.age_capped, job.rank) == (JobState.PENDING, True, -3_000)


@pytest.mark.parametrize("outcome", [Interrupted(), Snoozed(5)])
def test_a_job_that_came_back_is_rescored_when_its_time_has_come(
    store: Store, reader: Reader, clock: ManualClock, outcome: Interrupted | Snoozed
) -> None:
    store.save_queue(DEFAULT, QUICK)
    rescore_all(store)
    job = started(store, priority=3)
    settle(store, job, outcome)
    clock.advance(ms=5)
    store.promote()
    clock.advance(ms=9_995)

    rescore_all(store)

    assert (look(reader, job.id).age_capped, look(reader, job.id).rank) == (True, -3_000)


def test_a_revived_job_is_rescored_when_its_time_has_come(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, QUICK)
    job_id = put(store, priority=3)
    store.cancel([job_id])
    clock.advance(ms=5_000)
    store.revive([job_id])
    clock.advance(ms=10_000)

    rescore_all(store)

    assert (look(reader, job_id).age_capped, look(reader, job_id).rank) == (True, -3_000)


def test_a_job_that_comes_back_past_its_cap_is_capped_at_once(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, QUICK)
    job = started(store, priority=3)
    clock.advance(ms=60_000)

    settle(store, job, Interrupted())

    back = look(reader, job.id)
    assert (back.age_capped, back.rank) == (True, -3_000)


# New scoring.


@pytest.mark.shows("R-PRI-24", "R-QUEUE-03", "R-PRI-12")
def test_new_scoring_reorders_the_jobs_that_wait(store: Store, reader: Reader, clock: ManualClock) -> None:
    old = put(store, priority=0)
    clock.advance(ms=2 * HOUR)
    new = put(store, priority=1)

    changed = store.save_queue(DEFAULT, {"mode": QueueMode.STRICT})
    rescore_all(store)

    assert (changed.is_rescoring, changed.scoring_version) == (True, 2)
    assert queue_of(reader).is_rescoring is False
    assert claimed(store, 2) == [new, old]


@pytest.mark.shows("R-PRI-24")
def test_a_reordering_goes_in_batches_and_shows_until_it_is_done(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = put_many(store, 5, priority=1)
    store.save_queue(DEFAULT, {"aging_ms": 1_000})

    assert store.rescore(limit=2) == 2
    assert queue_of(reader).is_rescoring is True

    answers = rescore_all(store, limit=2)
    assert max(answers) <= 2
    assert queue_of(reader).is_rescoring is False
    assert [look(reader, job_id).rank for job_id in ids] == [T0 - 1_000] * 5


@pytest.mark.parametrize("state", [state for state in STATES if state is not JobState.PENDING])
def test_a_reordering_leaves_a_job_that_is_not_pending_as_it_was(
    store: Store, reader: Reader, state: JobState
) -> None:
    job_id = make(store, state, priority=1)
    before = record(reader, job_id)
    store.save_queue(DEFAULT, {"aging_ms": 1_000})

    rescore_all(store)

    assert record(reader, job_id) == before


def test_a_retry_is_ranked_by_the_new_scoring_when_it_is_due(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = make(store, JobState.RETRYING, priority=1)
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": None, "retry_penalty": 3.0})
    rescore_all(store)
    clock.advance(ms=HOUR)

    store.promote()

    assert look(reader, job_id).rank == T0 + 2_000


def test_a_reordering_of_an_empty_queue_is_done_by_the_next_rescore(store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT)
    store.save_queue(DEFAULT, {"aging_ms": 1_000})

    rescore_all(store)

    assert queue_of(reader).is_rescoring is False


def test_a_job_that_runs_during_a_reordering_comes_back_with_the_new_scoring(
    store: Store, reader: Reader
) -> None:
    job = started(store, priority=1)
    store.save_queue(DEFAULT, {"aging_ms": 1_000})
    rescore_all(store)

    settle(store, job, Interrupted())

    assert look(reader, job.id).rank == T0 - 1_000


def test_settings_that_do_not_touch_the_scoring_reorder_nothing(store: Store) -> None:
    put(store)

    changed = store.save_queue(DEFAULT, {"lease_ms": 5_000})

    assert (changed.is_rescoring, changed.scoring_version) == (False, 1)
    assert store.rescore() == 0
