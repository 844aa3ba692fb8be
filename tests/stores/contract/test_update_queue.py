"""Updates: jobs that wait are moved to another queue."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Dependency, JobId, UniqueUntil
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed, Failed
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import InvalidJob
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    SECOND,
    T0,
    claimed,
    counts_of,
    events_of,
    look,
    make,
    put,
    record,
    settle,
    start,
    started,
)
from tests.stores.support import new_job

TO_MAIL = JobUpdate(queue=MAIL)


def counts(reader: Reader) -> tuple[Counts, Counts]:
    """Those of the first queue and of the second."""
    return counts_of(reader, DEFAULT), counts_of(reader, MAIL)


def refused(store: Store, reader: Reader, job_id: JobId, change: JobUpdate = TO_MAIL) -> str:
    """Why a job is not moved; nothing of it has changed."""
    before = record(reader, job_id)

    result = store.update_job(job_id, change)

    assert (result.applied, result.state) == (False, before and before["state"])
    assert record(reader, job_id) == before
    return result.reason


@pytest.mark.shows("R-JOB-28")
def test_a_pending_job_goes_on_waiting_in_another_queue_and_nothing_else_of_it_changes(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, payload=b"[1]", metadata={"a": 1})
    before = record(reader, job_id) or {}
    clock.advance(ms=5)

    result = store.update_job(job_id, TO_MAIL)

    assert result == ActionResult(job_id=job_id, applied=True, state=JobState.PENDING)
    assert record(reader, job_id) == {**before, "queue": MAIL, "updated_at": T0 + 5}
    assert counts(reader) == (Counts(), Counts(pending=1))
    assert claimed(store, 1) == []
    assert claimed(store, 1, queue=MAIL) == [job_id]


@pytest.mark.shows("R-JOB-28")
@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYING])
def test_a_job_that_waits_for_its_time_is_due_in_its_new_queue(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)

    result = store.update_job(job_id, TO_MAIL)

    assert (result.applied, look(reader, job_id).state) == (True, state)
    assert counts(reader) == (Counts(), Counts(**{state.value: 1}))
    clock.advance(ms=HOUR)
    assert claimed(store, 1) == []
    assert claimed(store, 1, queue=MAIL) == [job_id]


def test_a_job_is_moved_and_made_pending_by_one_update(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.SCHEDULED)

    store.update_job(job_id, JobUpdate(queue=MAIL, delay_ms=0, priority=3, metadata={"b": 2})).check()

    job = look(reader, job_id)
    assert (job.state, job.priority, job.metadata) == (JobState.PENDING, 3, {"b": 2})
    assert counts(reader) == (Counts(), Counts(pending=1))
    assert claimed(store, 1, queue=MAIL) == [job_id]


def test_a_blocked_job_is_released_into_its_new_queue(store: Store, reader: Reader) -> None:
    parent = put(store)
    child = put(store, depends_on=(Dependency(parent),), limit_keys={FAIRNESS: "acme"})

    store.update_job(child, TO_MAIL).check()
    assert counts(reader) == (Counts(pending=1), Counts(blocked=1))
    settle(store, start(store), Completed(b"1"))
    store.promote()

    assert counts(reader) == (Counts(completed=1), Counts(pending=1))
    assert claimed(store, 1, queue=MAIL) == [child]


def test_a_job_of_a_sequence_keeps_its_turn_in_another_queue(store: Store, reader: Reader) -> None:
    first, second = put(store, sequence="s"), put(store, sequence="s")

    store.update_job(first, TO_MAIL).check()
    store.update_job(second, TO_MAIL).check()
    settle(store, start(store, queue=MAIL), Completed(b"1"))
    store.promote()

    assert look(reader, first).state is JobState.COMPLETED
    assert claimed(store, 1, queue=MAIL) == [second]


def test_a_moved_job_has_its_place_by_its_age_and_the_scoring_of_its_new_queue(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(MAIL, {"aging_ms": 2 * SECOND})
    old = put(store, priority=1)
    clock.advance(ms=SECOND)
    young = put(store, queue=MAIL, priority=1)

    store.update_job(old, TO_MAIL).check()

    assert look(reader, old).rank == T0 - 2 * SECOND
    assert claimed(store, 2, queue=MAIL) == [old, young]


def test_a_job_of_a_fairness_key_waits_for_the_turn_of_its_fairness_key_in_its_new_queue(
    store: Store,
) -> None:
    ids = [put(store, limit_keys={FAIRNESS: "acme"}) for _ in range(3)]
    other = put(store, queue=MAIL, limit_keys={FAIRNESS: "zeta"})

    for job_id in ids:
        store.update_job(job_id, TO_MAIL).check()

    assert claimed(store, 4) == []
    taken = claimed(store, 4, queue=MAIL)
    assert sorted(taken) == sorted([*ids, other])
    assert other in taken[:2]


def test_a_job_that_was_parked_in_its_old_queue_runs_in_its_new_one(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=f"queue:{DEFAULT}", concurrency=1))
    held, waiting = started(store), put(store)
    assert claimed(store, 1) == []

    store.update_job(waiting, TO_MAIL).check()

    assert claimed(store, 1, queue=MAIL) == [waiting]
    assert look(reader, held.id).state is JobState.RUNNING


def test_a_moved_job_takes_its_unique_key_along(store: Store, reader: Reader) -> None:
    job_id = put(store, unique_key="k")

    store.update_job(job_id, TO_MAIL).check()

    [here] = store.insert([_keyed()], on_conflict="ignore")
    [there] = store.insert([_keyed(queue=MAIL)], on_conflict="ignore")
    assert (here.is_new, there.is_new, there.id) == (True, False, job_id)
    assert refused(store, reader, here.id or JobId("")) == f"its unique key is held by {job_id}"


def test_a_job_that_has_freed_its_key_needs_none_in_another_queue(store: Store) -> None:
    job = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)
    settle(store, job, Failed(BOOM, HOUR))
    there = put(store, queue=MAIL, unique_key="k")

    store.update_job(job.id, TO_MAIL).check()

    [receipt] = store.insert([_keyed(queue=MAIL)], on_conflict="ignore")
    assert receipt.id == there


@pytest.mark.parametrize("state", [QueueState.DRAINING, QueueState.DROPPED])
def test_a_queue_that_takes_no_jobs_takes_none_of_another_one(
    store: Store, reader: Reader, state: QueueState
) -> None:
    store.save_queue(MAIL, state=state)
    job_id = put(store)

    assert refused(store, reader, job_id) == f"queue mail is {state}"


def test_a_paused_queue_takes_a_job_and_keeps_it(store: Store) -> None:
    store.save_queue(MAIL, state=QueueState.PAUSED)
    job_id = put(store)

    store.update_job(job_id, TO_MAIL).check()

    assert claimed(store, 1, queue=MAIL) == []
    store.save_queue(MAIL, state=QueueState.ACTIVE)
    assert claimed(store, 1, queue=MAIL) == [job_id]


def test_a_full_queue_takes_no_pending_job_of_another_one(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put(store, queue=MAIL)
    pending, later = put(store), make(store, JobState.SCHEDULED)

    assert refused(store, reader, pending) == "queue mail is full: 1 pending jobs are allowed"
    assert refused(store, reader, later, JobUpdate(queue=MAIL, delay_ms=0)).startswith("queue mail is full")
    assert store.update_job(later, TO_MAIL).applied


def test_a_priority_that_the_new_queue_does_not_have_is_refused(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_priority": 10})
    job_id = put(store, priority=11, unique_key="k")
    before = record(reader, job_id)

    with pytest.raises(InvalidJob, match="outside the range of queue mail: -100 to 10") as caught:
        store.update_job(job_id, TO_MAIL)

    assert (caught.value.field, record(reader, job_id)) == ("priority", before)
    assert counts(reader) == (Counts(pending=1), Counts())
    assert store.update_job(job_id, JobUpdate(queue=MAIL, priority=10)).applied


def test_a_running_job_is_not_moved(store: Store, reader: Reader) -> None:
    job = started(store)

    assert refused(store, reader, job.id) == "it is running"


def test_a_move_to_a_jobs_own_queue_changes_nothing_of_it(store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT, {"max_length": 1})
    job_id = put(store, unique_key="k")
    before = record(reader, job_id)
    store.save_queue(DEFAULT, state=QueueState.DRAINING)

    assert store.update_job(job_id, JobUpdate(queue=DEFAULT)).applied

    assert record(reader, job_id) == before
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-JOB-28")
def test_the_history_says_from_which_queue_to_which(store: Store, reader: Reader) -> None:
    job_id = put(store)

    store.update_job(job_id, TO_MAIL, actor="ann")

    [event] = events_of(reader, job_id)
    assert (event.kind, event.queue, event.actor) == (EventKind.UPDATED, MAIL, "ann")
    assert (event.detail, event.changes) == ("queue", {"queue": (DEFAULT, MAIL)})


def test_a_moved_job_counts_as_gone_here_and_as_one_that_came_there(store: Store) -> None:
    job_id = put(store)

    store.update_job(job_id, TO_MAIL).check()

    snapshot = store.snapshot_queues()
    assert (snapshot[DEFAULT].accepted, snapshot[DEFAULT].counts) == (1, Counts())
    assert (snapshot[MAIL].accepted, snapshot[MAIL].counts) == (1, Counts(pending=1))


def _keyed(**changes: Any) -> Any:
    return new_job(unique_key="k", **changes)
