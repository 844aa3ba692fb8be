"""Keys: one job at a time (unique), one job in a while (once), and who may free them."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId, QueueName, UniqueUntil
from forebay.domain.job_states import FINAL, JobState
from forebay.domain.outcome import Completed, Discarded, Failed, Interrupted, Snoozed
from forebay.domain.queue_counts import Counts
from forebay.errors import DuplicateJob
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    HOUR,
    MAIL,
    STATES,
    T0,
    W2,
    counts_of,
    holder_of,
    look,
    make,
    put,
    settle,
    start,
    started,
    states,
)
from tests.stores.support import new_job

LIVE_STATES = [state for state in STATES if state not in FINAL]
FINAL_STATES = [state for state in STATES if state in FINAL]


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_unique_key_is_held_while_its_job_is_live(store: Store, reader: Reader, state: JobState) -> None:
    holder = make(store, state, unique_key="k")

    [receipt] = store.insert([new_job(unique_key="k")])

    assert (receipt.id, receipt.is_new, receipt.state) == (holder, False, state)
    assert receipt.error is None
    assert counts_of(reader).total == 1


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_unique_key_is_free_when_its_job_has_ended(store: Store, state: JobState) -> None:
    first = make(store, state, unique_key="k")

    second = put(store, unique_key="k")

    assert second != first


@pytest.mark.parametrize("outcome", [Failed(BOOM, 1), Snoozed(1), Interrupted()])
def test_a_unique_key_is_held_when_its_job_goes_back_to_waiting(
    store: Store, outcome: Failed | Snoozed | Interrupted
) -> None:
    job = started(store, unique_key="k")

    settle(store, job, outcome)

    assert holder_of(store, unique_key="k") == job.id


def test_a_unique_key_until_started_is_held_while_its_job_waits(store: Store) -> None:
    waiting = put(store, unique_key="k", unique_until=UniqueUntil.STARTED)

    assert holder_of(store, unique_key="k") == waiting


def test_a_unique_key_until_started_is_freed_by_the_claim(store: Store, reader: Reader) -> None:
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)

    second = put(store, unique_key="k", unique_until=UniqueUntil.STARTED)

    assert states(reader, [first.id, second]) == [JobState.RUNNING, JobState.PENDING]


def test_two_jobs_of_one_batch_with_one_unique_key_become_one(store: Store, reader: Reader) -> None:
    first, second = store.insert([new_job(unique_key="k"), new_job(unique_key="k")])

    assert (first.is_new, second.is_new, second.id) == (True, False, first.id)
    assert second.state is JobState.PENDING
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-IDEM-01")
def test_two_jobs_of_one_batch_with_one_idempotency_key_become_one(store: Store, reader: Reader) -> None:
    first, second = store.insert([new_job(idempotency_key="k"), new_job(idempotency_key="k")])

    assert (first.is_new, second.is_new, second.id) == (True, False, first.id)
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-IDEM-01", "R-JOB-22")
@pytest.mark.parametrize("state", STATES)
def test_an_idempotency_key_is_held_whatever_becomes_of_its_job(
    store: Store, reader: Reader, state: JobState
) -> None:
    holder = make(store, state, idempotency_key="k")

    [receipt] = store.insert([new_job(idempotency_key="k")])

    assert (receipt.id, receipt.is_new, receipt.state) == (holder, False, state)
    assert counts_of(reader).total == 1


def test_an_idempotency_key_answers_with_its_holder_even_when_that_is_gone(store: Store) -> None:
    holder = put(store, idempotency_key="k")
    store.delete([holder])

    [receipt] = store.insert([new_job(idempotency_key="k")])

    assert (receipt.id, receipt.is_new, receipt.state) == (holder, False, None)


@pytest.mark.shows("R-IDEM-01", "R-EDGE-29", "R-CFG-29", "R-IDEM-03", "R-EDGE-84")
def test_an_idempotency_key_is_held_for_24_hours_and_then_makes_a_new_job(
    store: Store, clock: ManualClock
) -> None:
    holder = put(store, idempotency_key="k")

    clock.advance(ms=24 * HOUR - 1)
    assert holder_of(store, idempotency_key="k") == holder

    clock.advance(ms=1)
    assert put(store, idempotency_key="k") != holder


def test_an_idempotency_key_is_held_for_the_time_asked_for(store: Store, clock: ManualClock) -> None:
    holder = put(store, idempotency_key="k", idempotency_ttl_ms=5_000)

    clock.advance(ms=4_999)
    assert holder_of(store, idempotency_key="k") == holder

    clock.advance(ms=1)
    assert put(store, idempotency_key="k") != holder


def test_an_idempotency_key_taken_again_is_held_for_a_whole_new_time(
    store: Store, clock: ManualClock
) -> None:
    put(store, idempotency_key="k", idempotency_ttl_ms=5_000)
    clock.advance(ms=5_000)
    second = put(store, idempotency_key="k", idempotency_ttl_ms=5_000)

    clock.advance(ms=4_999)

    assert holder_of(store, idempotency_key="k") == second


def test_an_answered_request_does_not_lengthen_the_time_of_an_idempotency_key(
    store: Store, clock: ManualClock
) -> None:
    holder = put(store, idempotency_key="k", idempotency_ttl_ms=5_000)
    clock.advance(ms=4_000)
    holder_of(store, idempotency_key="k", idempotency_ttl_ms=5_000)

    clock.advance(ms=1_000)

    assert put(store, idempotency_key="k") != holder


@pytest.mark.shows("R-EDGE-29")
@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_a_key_belongs_to_its_queue(store: Store, kind: str) -> None:
    first = put(store, **{kind: "k"})

    second = put(store, queue=MAIL, **{kind: "k"})

    assert first != second


@pytest.mark.shows("R-BUG-19")
@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_queue_and_key_are_not_run_together(store: Store, kind: str) -> None:
    first = put(store, queue=QueueName("ab"), **{kind: "c"})

    second = put(store, queue=QueueName("a"), **{kind: "bc"})

    assert first != second


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize("other", ["K", "k ", " k", "ķ", "k%", "k\u200b"])
def test_keys_that_are_nearly_alike_are_different(store: Store, kind: str, other: str) -> None:
    put(store, **{kind: "k"})

    [receipt] = store.insert([new_job(**{kind: other})])

    assert receipt.is_new


def test_unique_once_and_id_are_different_kinds_of_keys(store: Store) -> None:
    put(store, unique_key="k")
    put(store, idempotency_key="k")

    [receipt] = store.insert([new_job(id=JobId("k"))])

    assert receipt.is_new


def test_a_taken_unique_key_is_answered_before_a_taken_idempotency_key(store: Store) -> None:
    unique = put(store, unique_key="u")
    put(store, idempotency_key="o")

    assert holder_of(store, unique_key="u", idempotency_key="o") == unique


def test_a_job_answered_for_one_key_does_not_take_the_other(store: Store) -> None:
    put(store, idempotency_key="o")
    holder_of(store, unique_key="u", idempotency_key="o")

    [receipt] = store.insert([new_job(unique_key="u")])

    assert receipt.is_new


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_a_taken_key_can_be_an_error_that_names_the_holder(store: Store, reader: Reader, kind: str) -> None:
    holder = put(store, **{kind: "k"})

    with pytest.raises(DuplicateJob) as caught:
        store.insert([new_job(), new_job(**{kind: "k"})], on_conflict="raise")

    assert caught.value.holder == holder
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_a_taken_key_is_an_error_in_its_receipt_alone_when_not_atomic(
    store: Store, reader: Reader, kind: str
) -> None:
    put(store, **{kind: "k"})

    taken, fine = store.insert([new_job(**{kind: "k"}), new_job()], on_conflict="raise", atomic=False)

    assert (type(taken.error), fine.is_new) == (DuplicateJob, True)
    assert counts_of(reader) == Counts(pending=2)


@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
def test_a_taken_key_is_still_an_answer_when_taken_ids_are_ignored(store: Store, kind: str) -> None:
    holder = put(store, **{kind: "k"})

    [receipt] = store.insert([new_job(**{kind: "k"})], on_conflict="ignore")

    assert (receipt.id, receipt.is_new) == (holder, False)


# Another job has the key: whatever becomes of the first job, only its own keys are freed.


def rivals(store: Store) -> tuple[JobId, JobId]:
    """A job that has lost its key by starting and waits again, and the one that has the key now."""
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)
    rival = put(store, unique_key="k", delay_ms=HOUR)
    settle(store, first, Snoozed(HOUR // 2))
    return first.id, rival


@pytest.mark.parametrize("outcome", [Completed(b"1"), Discarded(BOOM)])
def test_settling_does_not_free_the_key_of_another_job(store: Store, outcome: Completed | Discarded) -> None:
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)
    rival = put(store, unique_key="k", delay_ms=HOUR)

    settle(store, first, outcome)

    assert holder_of(store, unique_key="k") == rival


def test_starting_again_does_not_free_the_key_of_another_job(store: Store, clock: ManualClock) -> None:
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)
    rival = put(store, unique_key="k", delay_ms=HOUR)
    settle(store, first, Interrupted())

    start(store, W2)

    assert holder_of(store, unique_key="k") == rival


def test_cancelling_does_not_free_the_key_of_another_job(store: Store) -> None:
    first, rival = rivals(store)

    store.cancel([first])

    assert holder_of(store, unique_key="k") == rival


def test_cancelling_by_force_does_not_free_the_key_of_another_job(store: Store) -> None:
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED)
    rival = put(store, unique_key="k", delay_ms=HOUR)

    store.cancel([first.id], force=True)

    assert holder_of(store, unique_key="k") == rival


def test_deleting_a_live_job_does_not_free_the_key_of_another_job(store: Store) -> None:
    first, rival = rivals(store)

    store.delete([first])

    assert holder_of(store, unique_key="k") == rival


@pytest.mark.parametrize("state", FINAL_STATES)
def test_deleting_a_final_job_does_not_free_the_keys_of_another_job(store: Store, state: JobState) -> None:
    first = make(store, state, unique_key="k")
    rival = put(store, unique_key="k")

    store.delete([first])

    assert holder_of(store, unique_key="k") == rival


def test_expiry_does_not_free_the_key_of_another_job(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    first = started(store, unique_key="k", unique_until=UniqueUntil.STARTED, expires_at=T0 + 1_000)
    rival = put(store, unique_key="k", delay_ms=HOUR)
    settle(store, first, Snoozed(HOUR // 2))
    clock.advance(ms=1_000)

    store.promote()

    assert look(reader, first.id).state is JobState.CANCELLED
    assert holder_of(store, unique_key="k") == rival


def test_dropping_a_queue_does_not_free_the_key_of_a_job_that_is_left(store: Store) -> None:
    first, rival = rivals(store)
    store.drop_queue(QueueName("default"), force=True, limit=1)

    store.save_queue(QueueName("default"))

    assert holder_of(store, unique_key="k") == rival
    assert first != rival


@pytest.mark.parametrize("state", FINAL_STATES)
def test_pruning_frees_no_key_of_another_job(store: Store, clock: ManualClock, state: JobState) -> None:
    store.save_queue(QueueName("default"), {"keep_finished_ms": 1, "keep_dead_ms": 1})
    make(store, state, unique_key="u", idempotency_key="o", idempotency_ttl_ms=1)
    clock.advance(ms=1)
    rival = put(store, unique_key="u", idempotency_key="o")

    assert store.prune() == 1

    assert holder_of(store, unique_key="u") == rival
    assert holder_of(store, idempotency_key="o") == rival


@pytest.mark.shows("R-IDEM-03")
def test_pruning_leaves_an_idempotency_key_that_has_time_left(store: Store, clock: ManualClock) -> None:
    store.save_queue(QueueName("default"), {"keep_finished_ms": 1})
    holder = make(store, JobState.COMPLETED, idempotency_key="o", idempotency_ttl_ms=DAY)
    clock.advance(ms=DAY - 1)

    assert store.prune() == 1

    [receipt] = store.insert([new_job(idempotency_key="o")])
    assert (receipt.id, receipt.is_new, receipt.state) == (holder, False, None)


def test_a_deleted_id_is_free_again(store: Store) -> None:
    put(store, id=JobId("mine"))
    store.delete([JobId("mine")])

    [receipt] = store.insert([new_job(id=JobId("mine"))])

    assert receipt.is_new


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_pruned_id_is_free_again(store: Store, clock: ManualClock, state: JobState) -> None:
    store.save_queue(QueueName("default"), {"keep_finished_ms": 1, "keep_dead_ms": 1})
    make(store, state, id=JobId("mine"))
    clock.advance(ms=1)
    store.prune()

    [receipt] = store.insert([new_job(id=JobId("mine"))])

    assert receipt.is_new
