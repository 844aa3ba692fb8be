"""Queues: create, configure, pause, drain, drop."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.queue import Queue, QueueMode, QueueSettings, QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import ConfigError, InvalidJob, QueueClosed, QueueFull, QueueNotEmpty, QueueNotFound
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    MAIL,
    STATES,
    SWEEPER,
    T0,
    W1,
    claimed,
    counts_of,
    events_of,
    lease,
    look,
    make,
    put,
    put_many,
    queue_of,
    settle,
    started,
    states,
)
from tests.stores.support import new_job

LIVE_STATES = [JobState.SCHEDULED, JobState.PENDING, JobState.RUNNING, JobState.RETRYING]
WAITING_STATES = [JobState.SCHEDULED, JobState.PENDING, JobState.RETRYING]
FINAL_STATES = [state for state in STATES if state not in LIVE_STATES]


@pytest.mark.shows("R-QUEUE-01", "R-CFG-44")
def test_a_new_queue_is_active_with_default_settings(store: Store, reader: Reader) -> None:
    saved = store.save_queue(MAIL)

    assert saved == Queue(name=MAIL, created_at=T0, updated_at=T0)
    assert (saved.state, saved.settings.weight, saved.settings.max_length) == (QueueState.ACTIVE, 1, None)
    assert reader.queues([MAIL]) == [saved]


@pytest.mark.shows("R-QUEUE-01", "R-QUEUE-16", "R-QUEUE-13")
def test_all_settings_of_a_queue_are_kept(store: Store, reader: Reader) -> None:
    settings = QueueSettings(
        mode=QueueMode.FIFO,
        weight=3,
        lease_ms=5_000,
        max_length=9,
        default_priority=5,
        min_priority=-5,
        max_priority=50,
        aging_ms=7_000,
        max_aging_bonus=2.5,
        retry_penalty=0.125,
        deadline_weight=1.75,
        deadline_horizon_ms=9_000,
        keep_finished_ms=1,
        keep_dead_ms=2,
        archive=True,
        keep_archive_ms=3,
    )
    changes = {name: getattr(settings, name) for name in settings.__struct_fields__}

    saved = store.save_queue(MAIL, changes)

    assert saved.settings == settings
    assert queue_of(reader, MAIL).settings == settings


@pytest.mark.shows("R-QUEUE-03", "R-PRI-24")
def test_only_the_named_settings_are_changed(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"weight": 3, "max_length": 9})
    clock.advance(ms=5)

    store.save_queue(MAIL, {"max_length": None})

    queue = queue_of(reader, MAIL)
    assert (queue.settings.weight, queue.settings.max_length) == (3, None)
    assert (queue.created_at, queue.updated_at) == (T0, T0 + 5)


def test_a_queue_that_an_insert_has_made_can_be_configured(store: Store, reader: Reader) -> None:
    put(store)

    store.save_queue(DEFAULT, {"weight": 7})

    assert queue_of(reader).settings.weight == 7
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": 0},
        {"lease_ms": 999},
        {"max_length": 0},
        {"colour": "red"},
        {"weight": "three"},
        {"mode": "random"},
        {"max_priority": 101},
        {"aging_ms": 0},
    ],
)
def test_wrong_settings_are_refused_and_nothing_is_changed(
    store: Store, reader: Reader, changes: dict[str, Any]
) -> None:
    before = store.save_queue(MAIL, {"weight": 3})

    with pytest.raises(ConfigError):
        store.save_queue(MAIL, {"keep_dead_ms": 1, **changes}, state=QueueState.PAUSED)

    assert reader.queues([MAIL]) == [before]


def test_a_queue_with_wrong_settings_is_not_created(store: Store, reader: Reader) -> None:
    with pytest.raises(ConfigError):
        store.save_queue(MAIL, {"weight": 0})

    assert reader.queues([MAIL]) == []


@pytest.mark.shows("R-QUEUE-02")
@pytest.mark.parametrize("name", ["", "a:b", "a b", "x" * 51, "ä", "a\n"])
def test_a_wrong_name_is_refused(store: Store, reader: Reader, name: str) -> None:
    with pytest.raises(InvalidJob):
        store.save_queue(QueueName(name))

    assert reader.queues() == []


@pytest.mark.shows("R-QUEUE-02")
@pytest.mark.parametrize("name", ["a", "x" * 50, "test-queue", "a.b_c-D9"])
def test_a_good_name_is_taken_as_it_is(store: Store, reader: Reader, name: str) -> None:
    store.save_queue(QueueName(name))

    assert [queue.name for queue in reader.queues()] == [name]


@pytest.mark.shows("R-QUEUE-06", "R-QUEUE-05")
@pytest.mark.parametrize("state", [QueueState.PAUSED, QueueState.DRAINING])
def test_a_queue_can_be_put_into_a_state_and_back(store: Store, reader: Reader, state: QueueState) -> None:
    job_id = put(store)

    store.save_queue(DEFAULT, state=state)
    assert queue_of(reader).state is state

    store.save_queue(DEFAULT, state=QueueState.ACTIVE)
    assert queue_of(reader).state is QueueState.ACTIVE
    assert (put(store) != job_id, claimed(store, 1)) == (True, [job_id])


@pytest.mark.parametrize("state", [QueueState.PAUSED, QueueState.DRAINING])
def test_changing_settings_leaves_the_state(store: Store, reader: Reader, state: QueueState) -> None:
    store.save_queue(MAIL, state=state)

    store.save_queue(MAIL, {"weight": 2})

    assert queue_of(reader, MAIL).state is state


@pytest.mark.shows("R-QUEUE-13")
def test_the_state_of_one_queue_is_not_that_of_another(store: Store) -> None:
    here, there = put(store), put(store, queue=MAIL)

    store.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert (claimed(store, 1), claimed(store, 1, queue=MAIL)) == ([], [there])
    assert here != there


@pytest.mark.shows("R-QUEUE-14", "R-HIST-27")
def test_each_change_of_a_queue_leaves_an_event(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"weight": 2}, actor="ann")
    clock.advance(ms=5)
    store.save_queue(MAIL, state=QueueState.PAUSED, actor="bob")
    store.drop_queue(MAIL, actor="cid")

    events = [event for _, event in reader.audit()]
    assert events == [
        Event(
            kind=EventKind.QUEUE_CHANGED,
            occurred_at=T0 + 5,
            queue=MAIL,
            actor="cid",
            detail="dropped",
            changes={"state": ("paused", "dropped")},
        ),
        Event(
            kind=EventKind.QUEUE_CHANGED,
            occurred_at=T0 + 5,
            queue=MAIL,
            actor="bob",
            detail="paused",
            changes={"state": ("active", "paused")},
        ),
        Event(
            kind=EventKind.QUEUE_CHANGED,
            occurred_at=T0,
            queue=MAIL,
            actor="ann",
            detail="settings",
            changes={"weight": (1, 2)},
        ),
    ]


@pytest.mark.shows("R-RATE-17")
def test_a_limit_lowered_below_the_present_length_holds_back_only_new_jobs(
    store: Store, reader: Reader
) -> None:
    ids = put_many(store, 3)
    running = claimed(store, 1)

    store.save_queue(DEFAULT, {"max_length": 1})

    with pytest.raises(QueueFull):
        store.insert([new_job()])
    assert states(reader, running) == [JobState.RUNNING]
    assert claimed(store, 9) == ids[1:]


# Drop.


def test_an_unknown_queue_cannot_be_dropped(store: Store, reader: Reader) -> None:
    with pytest.raises(QueueNotFound):
        store.drop_queue(MAIL)
    with pytest.raises(QueueNotFound):
        store.drop_queue(MAIL, force=True)

    assert reader.audit() == []


@pytest.mark.shows("R-QUEUE-04")
@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_queue_with_live_jobs_is_not_dropped_without_force(
    store: Store, reader: Reader, state: JobState
) -> None:
    job_id = make(store, state)
    before = reader.queues([DEFAULT])

    with pytest.raises(QueueNotEmpty):
        store.drop_queue(DEFAULT)

    assert reader.queues([DEFAULT]) == before
    assert look(reader, job_id).state is state


@pytest.mark.shows("R-QUEUE-04")
@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_queue_with_only_final_jobs_is_dropped_and_they_stay(
    store: Store, reader: Reader, state: JobState
) -> None:
    job_id = make(store, state)

    assert store.drop_queue(DEFAULT) == 0

    assert queue_of(reader).state is QueueState.DROPPED
    assert look(reader, job_id).state is state


@pytest.mark.shows("R-QUEUE-04", "R-DLQ-20", "R-EDGE-52")
@pytest.mark.parametrize("state", WAITING_STATES)
def test_force_marks_the_waiting_jobs_dead(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job_id = make(store, state, unique_key="k")
    clock.advance(ms=5)

    left = store.drop_queue(DEFAULT, force=True, actor="ann")

    dead = look(reader, job_id)
    assert left == 0
    assert (dead.state, dead.reason) == (JobState.DEAD, "queue dropped")
    assert (dead.finished_at, dead.updated_at, dead.lease_expires_at) == (T0 + 5, T0 + 5, None)
    assert counts_of(reader) == Counts(dead=1)
    assert [(event.kind, event.queue) for event in events_of(reader, job_id)] == [
        (EventKind.DROPPED, DEFAULT)
    ]


def test_the_unique_key_of_a_job_marked_dead_is_free(store: Store) -> None:
    job_id = put(store, unique_key="k")
    store.drop_queue(DEFAULT, force=True)

    store.save_queue(DEFAULT)

    assert put(store, unique_key="k") != job_id


@pytest.mark.shows("R-QUEUE-04")
def test_force_goes_in_batches_in_the_order_of_insertion(store: Store, reader: Reader) -> None:
    ids = put_many(store, 5)

    first = store.drop_queue(DEFAULT, force=True, limit=2)

    assert first == 3
    assert states(reader, ids) == [JobState.DEAD] * 2 + [JobState.PENDING] * 3
    assert [store.drop_queue(DEFAULT, force=True, limit=2) for _ in range(3)] == [1, 0, 0]
    assert states(reader, ids) == [JobState.DEAD] * 5


def test_a_queue_takes_no_jobs_from_the_first_batch_on(store: Store) -> None:
    put_many(store, 5)
    store.drop_queue(DEFAULT, force=True, limit=1)

    with pytest.raises(QueueClosed):
        store.insert([new_job()])

    assert claimed(store, 9) == []


def test_dropping_in_batches_is_one_event_of_the_queue(store: Store, reader: Reader) -> None:
    put_many(store, 3)

    store.drop_queue(DEFAULT, force=True, limit=2)
    store.drop_queue(DEFAULT, force=True, limit=2)

    kinds = [event.kind for _, event in reader.audit()]
    assert kinds.count(EventKind.QUEUE_CHANGED) == 1
    assert kinds.count(EventKind.DROPPED) == 3


@pytest.mark.shows("R-QUEUE-04", "R-EDGE-52")
def test_running_jobs_of_a_queue_dropped_by_force_may_end(store: Store, reader: Reader) -> None:
    job = started(store)

    left = store.drop_queue(DEFAULT, force=True)

    assert (left, look(reader, job.id).state) == (0, JobState.RUNNING)
    assert store.renew(W1, [lease(job)]).renewed == (lease(job),)
    assert settle(store, job, Completed(b"1")).settled == (job.id,)
    assert look(reader, job.id).state is JobState.COMPLETED


def test_force_leaves_other_queues_alone(store: Store, reader: Reader) -> None:
    put(store)
    other = put(store, queue=MAIL)

    store.drop_queue(DEFAULT, force=True)
    store.sweep(SWEEPER)

    assert look(reader, other).state is JobState.PENDING


@pytest.mark.shows("R-QUEUE-04")
def test_the_name_of_a_dropped_queue_stays_until_it_is_saved_again(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"weight": 3})
    store.drop_queue(MAIL)
    with pytest.raises(QueueClosed):
        store.insert([new_job(queue=MAIL)])

    saved = store.save_queue(MAIL)

    assert (saved.state, saved.settings.weight) == (QueueState.ACTIVE, 3)
    assert put(store, queue=MAIL)


def test_saving_a_dropped_queue_without_a_state_is_a_change_of_settings(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)
    store.drop_queue(MAIL)

    store.save_queue(MAIL, actor="ann")

    [(_, event)] = reader.audit(limit=1)
    assert (event.actor, event.detail) == ("ann", "settings")


def test_a_dropped_queue_can_be_saved_in_another_state(store: Store) -> None:
    store.save_queue(MAIL)
    store.drop_queue(MAIL)

    saved = store.save_queue(MAIL, state=QueueState.PAUSED)

    assert saved.state is QueueState.PAUSED


@pytest.mark.shows("R-QUEUE-10")
def test_queues_are_listed_by_name_and_dropped_ones_only_if_named(store: Store, reader: Reader) -> None:
    names = [QueueName(name) for name in ("b", "c", "a")]
    [store.save_queue(name) for name in names]
    store.drop_queue(QueueName("c"))

    assert [queue.name for queue in reader.queues()] == ["a", "b"]
    assert [queue.name for queue in reader.queues([QueueName("c"), QueueName("b")])] == ["b", "c"]
    assert reader.queues([QueueName("unknown")]) == []
