"""Prune: how long final jobs, their history, archive lines, events and workers are kept."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import ArchiveEntry
from forebay.domain.outcome import Completed, Failed
from forebay.domain.queue_counts import Counts
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
    T0,
    W1,
    W2,
    counts_of,
    kinds_of,
    look,
    make,
    put,
    record,
    settle,
    start,
    started,
    states,
)
from tests.stores.support import everything

FINAL_STATES = [JobState.COMPLETED, JobState.CANCELLED, JobState.DEAD]
LIVE_STATES = [state for state in STATES if state not in FINAL_STATES]
ARCHIVED = {"archive": True, "keep_finished_ms": MINUTE, "keep_dead_ms": MINUTE}


@pytest.mark.shows("R-EDGE-84")
@pytest.mark.shows(
    "R-DONE-08",
    "R-HIST-09",
    "R-HIST-12",
    "R-HIST-23",
    "R-DLQ-15",
    "R-CFG-37",
    "R-CFG-65",
    "R-CFG-66",
    "R-STORE-42",
)
@pytest.mark.parametrize(
    ("state", "days"), [(JobState.COMPLETED, 7), (JobState.CANCELLED, 7), (JobState.DEAD, 30)]
)
def test_a_final_job_is_kept_for_its_time_and_then_forgotten(
    store: Store, reader: Reader, clock: ManualClock, state: JobState, days: int
) -> None:
    job_id = make(store, state)

    clock.advance(ms=days * DAY - 1)
    assert store.prune() == 0
    assert look(reader, job_id).state is state

    clock.advance(ms=1)
    assert store.prune() == 1
    assert record(reader, job_id) is None
    assert counts_of(reader) == Counts()
    assert everything(reader, JobQuery()) == []


def test_retention_counts_from_the_end_of_the_job_and_not_from_its_start(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=5 * DAY)
    settle(store, job, Completed(b"1"))
    clock.advance(ms=7 * DAY - 1)

    assert store.prune() == 0

    assert look(reader, job.id).state is JobState.COMPLETED


@pytest.mark.shows("R-HIST-12", "R-STORE-43", "R-BUG-21", "R-BUG-22")
@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_live_job_is_never_pruned(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": 1, "keep_dead_ms": 1})
    job_id = make(store, state)
    before = record(reader, job_id)
    clock.advance(ms=1_000 * DAY)

    assert store.prune() == 0

    assert record(reader, job_id) == before


@pytest.mark.shows("R-HIST-09")
@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_retention_of_0_keeps_jobs_for_ever(store: Store, clock: ManualClock, state: JobState) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": 0, "keep_dead_ms": 0})
    make(store, state)
    clock.advance(ms=10_000 * DAY)

    assert store.prune() == 0


def test_each_queue_has_its_own_retention(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": 1_000})
    store.save_queue(MAIL, {"keep_finished_ms": 2_000})
    short, long = make(store, JobState.COMPLETED), make(store, JobState.COMPLETED, queue=MAIL)
    clock.advance(ms=1_999)

    assert store.prune() == 1

    assert states(reader, [short, long]) == [None, JobState.COMPLETED]


def test_dead_and_finished_jobs_of_one_queue_have_their_own_times(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": 2_000, "keep_dead_ms": 1_000})
    done, dead = make(store, JobState.COMPLETED), make(store, JobState.DEAD)
    clock.advance(ms=1_000)

    assert store.prune() == 1

    assert states(reader, [done, dead]) == [JobState.COMPLETED, None]


def test_jobs_of_a_dropped_queue_are_pruned_too(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store)
    store.drop_queue(DEFAULT, force=True)
    clock.advance(ms=30 * DAY)

    assert store.prune() == 1

    assert record(reader, job_id) is None


@pytest.mark.shows("R-HIST-11", "R-EDGE-85", "R-BUG-06", "R-SWEEP-18")
def test_pruning_goes_in_batches_and_begins_with_the_oldest(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = [finished_later(store, clock) for _ in range(5)]
    clock.advance(ms=8 * DAY)

    first = store.prune(limit=2)

    assert first == 2
    assert states(reader, ids) == [None, None, *[JobState.COMPLETED] * 3]
    assert [store.prune(limit=2) for _ in range(3)] == [2, 1, 0]


def finished_later(store: Store, clock: ManualClock) -> JobId:
    clock.advance(ms=1_000)
    return make(store, JobState.COMPLETED)


@pytest.mark.shows("R-HIST-21")
def test_a_pruned_job_takes_its_history_with_it(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store)
    settle(store, job, Failed(BOOM, 1))
    store.cancel([job.id])
    store.record_events([Event(kind=EventKind.COMMENT, job_id=job.id)])
    clock.advance(ms=7 * DAY)

    store.prune()

    assert reader.history(job.id) is None
    assert [event.kind for _, event in reader.audit()] == [EventKind.CANCEL]


def test_a_job_with_an_id_used_before_does_not_inherit_a_history(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = started(store, id="mine")
    settle(store, first, Failed(BOOM, 1))
    store.cancel([first.id])
    clock.advance(ms=7 * DAY)
    store.prune()

    put(store, id="mine")

    timeline = reader.history(first.id)
    assert timeline is not None
    assert (timeline.attempts, timeline.events) == ((), ())


# Archive.


@pytest.mark.shows("R-HIST-13", "R-HIST-14", "R-HIST-09", "R-BUG-01", "R-BUG-08", "R-CFG-17")
def test_a_line_about_each_pruned_job_stays_in_the_archive(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    job_id = put(store, task="t.x")
    clock.advance(ms=500)
    job = start(store)
    clock.advance(ms=250)
    settle(store, job, Completed("ü".encode() * 300), failures=2)
    clock.advance(ms=MINUTE)

    store.prune()

    assert reader.archive() == [
        ArchiveEntry(
            id=job_id,
            queue=DEFAULT,
            task="t.x",
            state=JobState.COMPLETED,
            created_at=T0,
            finished_at=T0 + 750,
            day="2027-01-15",
            duration_ms=250,
            attempt=1,
            failures=2,
            excerpt="ü" * 200,
            reason=None,
        )
    ]
    assert record(reader, job_id) is None


@pytest.mark.shows("R-HIST-13")
def test_the_line_of_a_dead_letter_has_its_reason(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    make(store, JobState.DEAD)
    clock.advance(ms=MINUTE)

    store.prune()

    [line] = reader.archive()
    assert (line.state, line.reason, line.excerpt) == (JobState.DEAD, "Boom: it broke", "")


def test_the_line_of_a_job_that_never_ran_has_no_duration(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    make(store, JobState.CANCELLED)
    clock.advance(ms=MINUTE)

    store.prune()

    [line] = reader.archive()
    assert (line.state, line.duration_ms, line.reason) == (JobState.CANCELLED, None, "cancelled")


def test_the_excerpt_of_a_result_that_is_not_text_can_still_be_read(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    settle(store, started(store), Completed(b"ok \xff\xfe"))
    clock.advance(ms=MINUTE)

    store.prune()

    assert reader.archive()[0].excerpt == "ok \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


@pytest.mark.shows("R-HIST-09")
def test_a_queue_that_does_not_ask_for_it_leaves_no_archive(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    make(store, JobState.COMPLETED)
    clock.advance(ms=7 * DAY)

    assert store.prune() == 1

    assert reader.archive() == []


@pytest.mark.shows("R-HIST-16")
def test_an_archive_line_is_kept_for_its_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    make(store, JobState.COMPLETED)
    clock.advance(ms=90 * DAY - 1)

    store.prune()
    assert len(reader.archive()) == 1

    clock.advance(ms=1)
    store.prune()
    assert reader.archive() == []


@pytest.mark.shows("R-HIST-16")
def test_an_archive_can_be_kept_for_ever(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {**ARCHIVED, "keep_archive_ms": 0})
    make(store, JobState.COMPLETED)
    clock.advance(ms=MINUTE)
    store.prune()
    clock.advance(ms=10_000 * DAY)

    store.prune()

    assert len(reader.archive()) == 1


@pytest.mark.shows("R-HIST-15", "R-BUG-08")
def test_the_archive_is_read_by_utc_day_and_task_last_ended_first(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    first = make(store, JobState.COMPLETED, task="a")
    clock.advance(ms=16 * HOUR - 1)  # the last moment of the day
    second = make(store, JobState.COMPLETED, task="b")
    clock.advance(ms=1)
    third = make(store, JobState.COMPLETED, task="a")
    clock.advance(ms=DAY)
    store.prune()

    assert [line.id for line in reader.archive()] == [third, second, first]
    assert [line.id for line in reader.archive(day="2027-01-15")] == [second, first]
    assert [line.id for line in reader.archive(day="2027-01-16")] == [third]
    assert [line.id for line in reader.archive(task="a")] == [third, first]
    assert [line.id for line in reader.archive(day="2027-01-15", task="a")] == [first]
    assert [line.id for line in reader.archive(limit=2)] == [third, second]


def test_a_job_revived_and_pruned_again_has_a_line_of_each_end(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, ARCHIVED)
    first = make(store, JobState.COMPLETED, id="mine")
    clock.advance(ms=MINUTE)
    store.prune()
    make(store, JobState.DEAD, id="mine")
    clock.advance(ms=MINUTE)

    store.prune()

    assert [(line.id, line.state) for line in reader.archive()] == [
        (first, JobState.DEAD),
        (first, JobState.COMPLETED),
    ]


# Events and workers.


@pytest.mark.shows("R-HIST-05", "R-HIST-29")
def test_an_event_is_kept_for_90_days(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.record_events([Event(kind=EventKind.COMMENT, detail="hello")])
    job_id = put(store)
    store.record_events([Event(kind=EventKind.COMMENT, job_id=job_id)])

    clock.advance(ms=90 * DAY - 1)
    store.prune()
    assert len(reader.audit()) == 2

    clock.advance(ms=1)
    store.prune()
    assert reader.audit() == []
    assert kinds_of(reader, job_id) == []


@pytest.mark.shows("R-SWEEP-17", "R-EDGE-84")
def test_a_worker_that_has_been_silent_for_a_day_is_forgotten(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.heartbeat(WorkerInfo(id=W1))
    clock.advance(ms=1)
    store.heartbeat(WorkerInfo(id=W2))

    clock.advance(ms=DAY - 1)
    store.prune()

    assert [worker.id for worker in reader.workers()] == [W2]


def test_a_worker_that_sends_heartbeats_is_not_forgotten(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.heartbeat(WorkerInfo(id=WorkerId("steady")))
    clock.advance(ms=DAY)
    store.heartbeat(WorkerInfo(id=WorkerId("steady")))

    store.prune()

    assert [worker.id for worker in reader.workers()] == ["steady"]


def test_pruning_an_empty_store_does_nothing(store: Store, reader: Reader) -> None:
    assert store.prune() == 0

    assert reader.counts() == {}
    assert reader.queues([QueueName("default")]) == []
