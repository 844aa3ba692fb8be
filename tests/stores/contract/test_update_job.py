"""Updates: new priorities, times and metadata for jobs that wait."""

from __future__ import annotations

import pytest

from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.queue_counts import Counts
from forebay.errors import InvalidJob
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    T0,
    UNKNOWN,
    claimed,
    counts_of,
    events_of,
    kinds_of,
    look,
    make,
    put,
    record,
    started,
)

WAITING_STATES = [JobState.SCHEDULED, JobState.PENDING, JobState.RETRYING]
FINAL_STATES = [JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED]


@pytest.mark.shows("R-PRI-10", "R-JOB-28", "R-CANCEL-07")
def test_a_pending_job_with_a_new_priority_has_a_new_place(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first, second = put(store), put(store)
    clock.advance(ms=5)

    result = store.update_job(second, JobUpdate(priority=1))

    job = look(reader, second)
    assert result == ActionResult(job_id=second, applied=True, state=JobState.PENDING)
    assert (job.priority, job.rank, job.updated_at) == (1, T0 - HOUR, T0 + 5)
    assert claimed(store, 2) == [second, first]


@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYING])
def test_a_new_priority_of_a_job_that_waits_for_its_time_counts_when_it_is_due(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    store.update_job(job_id, JobUpdate(priority=50))
    clock.advance(ms=HOUR)
    put(store, priority=40)

    assert claimed(store, 1) == [job_id]


@pytest.mark.parametrize("priority", [-1, 11])
def test_a_priority_outside_the_queues_range_is_refused_and_nothing_is_changed(
    store: Store, reader: Reader, priority: int
) -> None:
    store.save_queue(DEFAULT, {"min_priority": 0, "max_priority": 10})
    job_id = put(store, metadata={"a": 1})
    before = record(reader, job_id)

    with pytest.raises(InvalidJob):
        store.update_job(job_id, JobUpdate(priority=priority, metadata={"b": 2}))

    assert record(reader, job_id) == before
    assert kinds_of(reader, job_id) == []


@pytest.mark.shows("R-JOB-52", "R-RETRY-11")
@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYING])
def test_a_job_can_be_made_pending_at_once(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    clock.advance(ms=5)

    result = store.update_job(job_id, JobUpdate(delay_ms=0))

    job = look(reader, job_id)
    assert (result.applied, result.state) == (True, JobState.PENDING)
    assert (job.state, job.run_at) == (JobState.PENDING, T0 + 5)
    assert counts_of(reader) == Counts(pending=1)
    assert claimed(store, 1) == [job_id]


@pytest.mark.shows("R-CANCEL-07")
@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYING])
def test_a_job_can_be_put_off_and_stays_what_it_is(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    clock.advance(ms=5)

    result = store.update_job(job_id, JobUpdate(delay_ms=9 * HOUR))

    assert (result.applied, result.state) == (True, state)
    assert look(reader, job_id).run_at == T0 + 5 + 9 * HOUR
    clock.advance(ms=9 * HOUR - 1)
    assert store.promote() == 0
    clock.advance(ms=1)
    assert store.promote() == 1


@pytest.mark.parametrize("delay", [0, 9 * HOUR])
def test_a_new_time_is_the_ready_time_of_a_job_that_has_never_run(
    store: Store, reader: Reader, delay: int
) -> None:
    job_id = make(store, JobState.SCHEDULED)

    store.update_job(job_id, JobUpdate(delay_ms=delay))

    assert look(reader, job_id).ready_at == T0 + delay


@pytest.mark.parametrize("delay", [0, 9 * HOUR])
def test_a_new_time_leaves_the_ready_time_of_a_job_that_has_run(
    store: Store, reader: Reader, clock: ManualClock, delay: int
) -> None:
    job_id = make(store, JobState.RETRYING)
    clock.advance(ms=5)

    store.update_job(job_id, JobUpdate(delay_ms=delay))

    assert look(reader, job_id).ready_at == T0


def test_a_pending_job_cannot_become_scheduled(store: Store, reader: Reader) -> None:
    job_id = put(store)
    before = record(reader, job_id)

    result = store.update_job(job_id, JobUpdate(delay_ms=1, priority=3))

    assert (result.applied, result.state) == (False, JobState.PENDING)
    assert result.reason == "a pending job cannot become scheduled"
    assert record(reader, job_id) == before


def test_a_pending_job_may_be_made_pending(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store)
    clock.advance(ms=5)

    result = store.update_job(job_id, JobUpdate(delay_ms=0))

    assert (result.applied, result.state) == (True, JobState.PENDING)
    assert look(reader, job_id).run_at == T0


@pytest.mark.shows("R-JOB-13")
@pytest.mark.parametrize("state", [*WAITING_STATES, JobState.RUNNING])
def test_metadata_are_merged_key_by_key(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state, metadata={"keep": 1, "change": 1, "remove": 1})

    result = store.update_job(job_id, JobUpdate(metadata={"change": [2], "remove": None, "add": {"x": None}}))

    job = look(reader, job_id)
    assert (result.applied, job.state) == (True, state)
    assert job.metadata == {"keep": 1, "change": [2], "add": {"x": None}}


def test_metadata_that_were_nothing_before_stay_when_others_are_merged(store: Store, reader: Reader) -> None:
    job_id = put(store, metadata={"empty": None})

    store.update_job(job_id, JobUpdate(metadata={"b": 1}))

    assert look(reader, job_id).metadata == {"empty": None, "b": 1}


def test_new_metadata_leave_a_pending_job_in_its_place(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    job_id = put(store)
    clock.advance(ms=60_000)

    store.update_job(job_id, JobUpdate(metadata={"a": 1}))

    job = look(reader, job_id)
    assert (job.age_capped, job.rank) == (False, T0)


def test_metadata_that_would_grow_too_large_are_refused(store: Store, reader: Reader) -> None:
    job_id = put(store, metadata={"a": "x" * 40_000})

    with pytest.raises(InvalidJob):
        store.update_job(job_id, JobUpdate(metadata={"b": "x" * 40_000}))

    assert look(reader, job_id).metadata.keys() == {"a"}


@pytest.mark.shows("R-PRI-10", "R-JOB-28")
@pytest.mark.parametrize("change", [JobUpdate(priority=1), JobUpdate(delay_ms=0), JobUpdate(delay_ms=5)])
def test_a_running_job_keeps_its_priority_and_time(store: Store, reader: Reader, change: JobUpdate) -> None:
    job = started(store)
    before = record(reader, job.id)

    result = store.update_job(job.id, change)

    assert (result.applied, result.state, result.reason) == (False, JobState.RUNNING, "it is running")
    assert record(reader, job.id) == before
    assert kinds_of(reader, job.id) == []


@pytest.mark.parametrize(
    "change", [JobUpdate(priority=1), JobUpdate(delay_ms=0), JobUpdate(metadata={"a": 1})]
)
@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_final_job_cannot_be_updated(
    store: Store, reader: Reader, state: JobState, change: JobUpdate
) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)

    result = store.update_job(job_id, change)

    assert (result.applied, result.state, result.reason) == (False, state, f"it is already {state}")
    assert record(reader, job_id) == before


def test_an_unknown_job_cannot_be_updated(store: Store) -> None:
    result = store.update_job(UNKNOWN, JobUpdate(priority=1))

    assert (result.job_id, result.applied, result.state) == (UNKNOWN, False, None)


@pytest.mark.shows("R-HIST-02")
def test_an_update_leaves_an_event_that_names_what_was_changed(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.SCHEDULED)

    store.update_job(job_id, JobUpdate(metadata={"a": 1}, delay_ms=0, priority=3), actor="ann")
    store.update_job(job_id, JobUpdate(metadata={"a": 2}), actor="bob")

    assert [(event.kind, event.actor, event.detail) for event in events_of(reader, job_id)] == [
        (EventKind.UPDATED, "ann", "priority,delay_ms,metadata"),
        (EventKind.UPDATED, "bob", "metadata"),
    ]
