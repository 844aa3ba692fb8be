"""Cancel and delete: what an operator may do to single jobs."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Failed, Interrupted
from forebay.domain.queue_counts import Counts
from forebay.errors import IllegalTransition, JobNotFound, StoreRefused
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    MAIL,
    T0,
    UNKNOWN,
    W1,
    attempts_of,
    claimed,
    counts_of,
    events_of,
    kinds_of,
    look,
    make,
    put,
    record,
    settle,
    started,
    states,
)

WAITING_STATES = [JobState.SCHEDULED, JobState.PENDING, JobState.RETRYING]
FINAL_STATES = [JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED]


# Cancel.


@pytest.mark.shows("R-CANCEL-01", "R-CANCEL-04", "R-JOB-53", "R-CANCEL-07", "R-JOB-46", "R-EXT-02")
@pytest.mark.parametrize("state", WAITING_STATES)
def test_a_waiting_job_is_cancelled_at_once(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state, unique_key="k")
    clock.advance(ms=5)

    results = store.cancel([job_id], "no longer needed", actor="ann")

    job = look(reader, job_id)
    assert results == [ActionResult(job_id=job_id, applied=True, state=JobState.CANCELLED)]
    assert (job.state, job.reason, job.cancel_reason) == (JobState.CANCELLED, "no longer needed", None)
    assert (job.finished_at, job.updated_at, job.lease_expires_at) == (T0 + 5, T0 + 5, None)
    assert counts_of(reader) == Counts(cancelled=1)
    assert put(store, unique_key="k") != job_id


@pytest.mark.shows("R-CANCEL-04", "R-HIST-02", "R-HIST-27")
def test_a_cancel_leaves_an_event_with_who_and_why(store: Store, reader: Reader) -> None:
    job_id = put(store)

    store.cancel([job_id], "no longer needed", actor="ann")

    [event] = events_of(reader, job_id)
    assert (event.kind, event.actor, event.detail) == (EventKind.CANCEL, "ann", "no longer needed")
    assert (event.occurred_at, event.queue) == (T0, DEFAULT)


def test_a_cancel_without_a_reason_has_one(store: Store, reader: Reader) -> None:
    job_id = put(store)

    store.cancel([job_id])

    assert look(reader, job_id).reason == "cancelled"


@pytest.mark.parametrize("state", WAITING_STATES)
def test_a_cancelled_job_never_runs(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state)
    store.cancel([job_id])
    clock.advance(ms=DAY)

    assert (store.promote(), claimed(store, 9)) == (0, [])

    assert look(reader, job_id).state is JobState.CANCELLED


def test_a_running_job_is_asked_to_stop_and_runs_on(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store, unique_key="k")
    before = record(reader, job.id)
    assert before is not None

    results = store.cancel([job.id], "stop it", actor="ann")

    after = record(reader, job.id)
    assert results == [ActionResult(job_id=job.id, applied=True, state=JobState.RUNNING)]
    assert after == before | {"cancel_reason": "stop it"}
    assert [(event.kind, event.actor, event.detail) for event in events_of(reader, job.id)] == [
        (EventKind.CANCEL, "ann", "stop it")
    ]


def test_the_first_cancel_request_stands(store: Store, reader: Reader) -> None:
    job = started(store)
    store.cancel([job.id], "first")

    [result] = store.cancel([job.id], "second")

    assert (result.applied, result.state) == (True, JobState.RUNNING)
    assert look(reader, job.id).cancel_reason == "first"
    assert kinds_of(reader, job.id) == [EventKind.CANCEL]


@pytest.mark.shows("R-CANCEL-01", "R-CANCEL-06", "R-BUG-11", "R-JOB-56")
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_final_job_cannot_be_cancelled(store: Store, reader: Reader, state: JobState, force: bool) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)
    events = events_of(reader, job_id)

    [result] = store.cancel([job_id], "again", force=force)

    assert (result.applied, result.state, result.reason) == (False, state, f"it is already {state}")
    assert record(reader, job_id) == before
    assert events_of(reader, job_id) == events


@pytest.mark.shows("R-CANCEL-01")
def test_an_unknown_job_cannot_be_cancelled(store: Store, reader: Reader) -> None:
    [result] = store.cancel([UNKNOWN])

    assert (result.job_id, result.applied, result.state) == (UNKNOWN, False, None)
    assert reader.audit() == []


def test_results_come_in_the_order_asked_and_see_what_went_before(store: Store) -> None:
    first, second = put(store), put(store)

    results = store.cancel([second, UNKNOWN, first, second])

    assert [(result.job_id, result.applied) for result in results] == [
        (second, True),
        (UNKNOWN, False),
        (first, True),
        (second, False),
    ]
    assert results[3].reason == "it is already cancelled"


def test_the_audit_log_has_the_events_of_one_call_in_the_order_asked(store: Store, reader: Reader) -> None:
    running = started(store).id
    waiting, scheduled = put(store), put(store, delay_ms=DAY)

    store.cancel([waiting, running, scheduled])

    newest_first = [event.job_id for _, event in reader.audit()]
    assert newest_first == [scheduled, running, waiting]


def test_a_refused_result_can_be_raised(store: Store) -> None:
    job_id = make(store, JobState.COMPLETED)

    done, missing = store.cancel([job_id, UNKNOWN])

    with pytest.raises(IllegalTransition, match="already completed"):
        done.check()
    with pytest.raises(JobNotFound):
        missing.check()


# By force.


@pytest.mark.shows("R-JOB-48")
def test_force_takes_the_lease_of_a_running_job_away_and_marks_it_dead(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store, unique_key="k")
    clock.advance(ms=5)

    results = store.cancel([job.id], "stuck", actor="ann", force=True)

    dead = look(reader, job.id)
    assert results == [ActionResult(job_id=job.id, applied=True, state=JobState.DEAD)]
    assert (dead.state, dead.reason, dead.worker) == (JobState.DEAD, "stuck", None)
    assert (dead.finished_at, dead.lease_expires_at, dead.attempt) == (T0 + 5, None, 1)
    assert counts_of(reader) == Counts(dead=1)
    assert put(store, unique_key="k") != job.id
    assert events_of(reader, job.id) == [
        Event(
            kind=EventKind.FORCE_CANCELLED,
            occurred_at=T0 + 5,
            job_id=job.id,
            queue=DEFAULT,
            attempt=1,
            actor="ann",
            detail="stuck",
            changes={"state": ("running", "dead")},
        )
    ]


def test_force_makes_no_difference_to_a_waiting_job(store: Store, reader: Reader) -> None:
    job_id = put(store)

    store.cancel([job_id], force=True)

    assert look(reader, job_id).state is JobState.CANCELLED


def test_a_worker_is_not_asked_to_stop_a_job_that_was_taken_from_it(store: Store) -> None:
    job = started(store)
    store.cancel([job.id])
    store.cancel([job.id], force=True)

    answer = store.settle_and_claim(W1, known=[])

    assert (answer.cancels, answer.recovered) == ((), ())


# Delete.


@pytest.mark.shows("R-ENQ-44", "R-DLQ-10", "R-HIST-21", "R-STORE-68")
@pytest.mark.parametrize("state", [*WAITING_STATES, *FINAL_STATES])
def test_a_job_that_does_not_run_is_deleted_for_good(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state, unique_key="k", queue=MAIL)

    results = store.delete([job_id])

    assert results == [ActionResult(job_id=job_id, applied=True, state=None)]
    assert (record(reader, job_id), reader.history(job_id)) == (None, None)
    assert counts_of(reader, MAIL) == Counts()
    assert put(store, unique_key="k", queue=MAIL) != job_id


def test_a_running_job_cannot_be_deleted(store: Store, reader: Reader) -> None:
    job = started(store)
    before = record(reader, job.id)

    [result] = store.delete([job.id])

    assert (result.applied, result.state, result.reason) == (False, JobState.RUNNING, "it is running")
    assert record(reader, job.id) == before


@pytest.mark.shows("R-ENQ-44")
def test_deleting_an_unknown_job_says_so(store: Store, reader: Reader) -> None:
    [result] = store.delete([UNKNOWN])

    assert (result.job_id, result.applied, result.state) == (UNKNOWN, False, None)
    assert reader.audit() == []


@pytest.mark.shows("R-HIST-30", "R-HIST-27")
def test_a_deletion_stays_in_the_audit_log_when_the_history_is_gone(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    settle(store, job, Failed(BOOM, 1))
    store.cancel([job.id])
    clock.advance(ms=5)

    store.delete([job.id], actor="ann")

    (_, event), (_, cancelled) = reader.audit()
    assert (cancelled.kind, cancelled.job_id) == (EventKind.CANCEL, job.id)
    assert event == Event(
        kind=EventKind.DELETED,
        occurred_at=T0 + 5,
        job_id=job.id,
        queue=DEFAULT,
        actor="ann",
        detail="cancelled",
        changes={"state": ("cancelled", None)},
    )


def test_a_new_job_of_a_deleted_id_has_no_errors_of_the_old_one(store: Store, reader: Reader) -> None:
    old = started(store, id=JobId("mine"))
    settle(store, old, Failed(BOOM, 1))
    store.delete([old.id])

    put(store, id=JobId("mine"))

    assert attempts_of(reader, JobId("mine")) == []
    assert look(reader, JobId("mine")).errors == ()


def test_deleting_several_jobs_answers_for_each(store: Store, reader: Reader) -> None:
    running = started(store)
    waiting = put(store)

    results = store.delete([waiting, running.id, waiting, UNKNOWN])

    assert [(result.job_id, result.applied) for result in results] == [
        (waiting, True),
        (running.id, False),
        (waiting, False),
        (UNKNOWN, False),
    ]
    assert states(reader, [running.id, waiting]) == [JobState.RUNNING, None]


def test_a_job_handed_back_can_be_deleted(store: Store, reader: Reader) -> None:
    job = started(store)
    settle(store, job, Interrupted())

    store.delete([job.id])

    assert settle(store, job, Completed(b"1")).refused[0].reason == "gone"


@pytest.mark.shows("R-HIST-27")
def test_each_deletion_of_an_id_used_again_stays_in_the_audit_log(store: Store, reader: Reader) -> None:
    put(store, id=JobId("mine"))
    store.delete([JobId("mine")], actor="ann")
    put(store, id=JobId("mine"))

    store.delete([JobId("mine")], actor="bob")

    assert [event.actor for _, event in reader.audit()] == ["bob", "ann"]


def test_a_deletion_is_no_part_of_the_history_of_the_next_job_of_that_id(
    store: Store, reader: Reader
) -> None:
    put(store, id=JobId("mine"))
    store.delete([JobId("mine")])

    put(store, id=JobId("mine"))

    assert kinds_of(reader, JobId("mine")) == []


@pytest.mark.parametrize(("reason", "actor"), [("\ud800", "ann"), ("stop", "\ud800")])
@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
def test_a_cancel_with_text_that_cannot_be_written_changes_nothing(
    store: Store, reader: Reader, state: JobState, reason: str, actor: str
) -> None:
    job_id = make(store, state)
    before = record(reader, job_id)

    with pytest.raises(StoreRefused):
        store.cancel([job_id], reason, actor=actor)

    assert record(reader, job_id) == before
    assert kinds_of(reader, job_id) == []
