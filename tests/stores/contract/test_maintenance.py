"""Maintenance tasks, workers and recorded events: what workers tell the store about themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from forebay.domain.job import JobId, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_update import JobUpdate
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, HOUR, MAIL, T0, W1, W2, W3, events_of, kinds_of, put


def test_a_maintenance_task_is_given_to_one_caller_each_interval(
    store: Store, other_store: Store, clock: ManualClock
) -> None:
    assert store.acquire_maintenance("sweep", 1_000) is True
    assert other_store.acquire_maintenance("sweep", 1_000) is False

    clock.advance(ms=999)
    assert store.acquire_maintenance("sweep", 1_000) is False

    clock.advance(ms=1)
    assert other_store.acquire_maintenance("sweep", 1_000) is True
    assert store.acquire_maintenance("sweep", 1_000) is False


def test_maintenance_tasks_of_different_names_do_not_wait_for_each_other(store: Store) -> None:
    store.acquire_maintenance("sweep", 1_000)

    assert store.acquire_maintenance("prune", 1_000) is True


def test_an_interval_counts_from_when_the_maintenance_task_was_last_taken(
    store: Store, clock: ManualClock
) -> None:
    store.acquire_maintenance("sweep", 1_000)
    clock.advance(ms=1_700)
    store.acquire_maintenance("sweep", 1_000)

    clock.advance(ms=999)

    assert store.acquire_maintenance("sweep", 1_000) is False


def test_workers_can_be_asked_for_by_their_ids(store: Store, reader: Reader, clock: ManualClock) -> None:
    for worker in (W2, W1):
        store.heartbeat(WorkerInfo(id=worker))
        clock.advance(ms=1)

    assert [one.id for one in reader.workers([W1, WorkerId("absent"), W1])] == [W1]
    assert [one.id for one in reader.workers([W1, W2])] == [one.id for one in reader.workers()] == [W2, W1]
    assert reader.workers([]) == []


def test_a_worker_is_listed_from_its_first_heartbeat_with_its_last_one(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock
) -> None:
    info = WorkerInfo(id=W1, host="h", pid=7, queues=(DEFAULT, MAIL), state=WorkerState.WORKING)
    store.heartbeat(info)
    clock.advance(ms=5_000)

    store.heartbeat(WorkerInfo(id=W1, host="h", pid=7, queues=(MAIL,), state=WorkerState.STOPPING))

    assert reader.workers() == [
        WorkerInfo(
            id=W1,
            host="h",
            pid=7,
            queues=(MAIL,),
            state=WorkerState.STOPPING,
            started_at=T0,
            heartbeat_at=T0 + 5_000,
            is_remote=engine.features.runs_maintenance,
        )
    ]


EVERYTHING = WorkerInfo(
    id=W1,
    host="h",
    pid=7,
    queues=(DEFAULT, MAIL),
    state=WorkerState.PAUSED,
    started_at=T0 - 9,
    heartbeat_ms=5_000,
    paused=(MAIL,),
    running=(JobId("a"), JobId("b")),
    slots=4,
    stuck=1,
    completed=20,
    failed=3,
    memory=1_000_000,
    cpu=0.5,
    supervisor=99,
    is_remote=True,
    recent=(JobId("c"), JobId("d")),
)


@pytest.mark.shows("R-WORK-06", "R-WORK-07", "R-WORK-47", "R-MET-30")
def test_all_that_a_worker_says_is_on_the_list(store: Store, reader: Reader) -> None:
    store.heartbeat(EVERYTHING)

    assert reader.workers() == [replace(EVERYTHING, heartbeat_at=T0)]


def test_what_a_worker_no_longer_says_is_off_the_list(engine: Engine, store: Store, reader: Reader) -> None:
    store.heartbeat(EVERYTHING)

    store.heartbeat(WorkerInfo(id=W1))

    is_remote = engine.features.runs_maintenance
    assert reader.workers() == [WorkerInfo(id=W1, started_at=T0 - 9, heartbeat_at=T0, is_remote=is_remote)]


@pytest.mark.parametrize("state", WorkerState)
def test_every_state_of_a_worker_can_be_told(store: Store, reader: Reader, state: WorkerState) -> None:
    store.heartbeat(WorkerInfo(id=W1, state=state))

    [worker] = reader.workers()
    assert worker.state is state


@pytest.mark.shows("R-SWEEP-24")
def test_a_job_that_was_due_before_all_was_promoted_and_still_waits_is_a_problem(
    make_engine: Callable[[], Engine], clock: ManualClock
) -> None:
    engine = make_engine()
    store, reader = engine.store(), engine.reader()
    job_id = put(store, delay_ms=1_000)
    clock.advance(ms=61_000)
    store.acquire_maintenance("promote", 1_000)

    left_behind = reader.health().problems
    store.promote()

    assert [problem for problem in left_behind if "was due and has not been moved" in problem]
    assert all(job_id in problem for problem in left_behind)
    assert reader.health().problems == ()
    store.close()
    reader.close()


def test_a_job_that_is_due_where_no_worker_promotes_is_no_problem(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.acquire_maintenance("promote", 1_000)
    put(store, delay_ms=1_000)
    clock.advance(ms=HOUR)

    assert reader.health().problems == ()


def test_a_worker_may_say_when_it_started(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.heartbeat(WorkerInfo(id=W1, started_at=T0 - 777))
    clock.advance(ms=5)

    store.heartbeat(WorkerInfo(id=W1))

    [worker] = reader.workers()
    assert (worker.started_at, worker.heartbeat_at) == (T0 - 777, T0 + 5)


def test_workers_are_listed_by_start_and_id(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.heartbeat(WorkerInfo(id=W3))
    clock.advance(ms=1)
    store.heartbeat(WorkerInfo(id=W2))
    store.heartbeat(WorkerInfo(id=W1))

    assert [worker.id for worker in reader.workers()] == [W3, W1, W2]


def test_a_worker_that_has_ended_in_order_is_off_the_list(store: Store, reader: Reader) -> None:
    store.heartbeat(WorkerInfo(id=W1))
    store.heartbeat(WorkerInfo(id=W2))

    store.remove_worker(W1)
    store.remove_worker(W1)

    assert [worker.id for worker in reader.workers()] == [W2]


def test_a_recorded_event_is_kept_as_it_is(store: Store, reader: Reader) -> None:
    job_id = put(store)
    event = Event(
        kind=EventKind.COMMENT,
        occurred_at=T0 - 5,
        job_id=job_id,
        queue=DEFAULT,
        attempt=3,
        actor="ann",
        detail="größer",
    )

    store.record_events([event])

    assert events_of(reader, job_id) == [event]


def test_an_event_without_a_time_happens_now(store: Store, reader: Reader, clock: ManualClock) -> None:
    clock.advance(ms=9)

    store.record_events([Event(kind=EventKind.COMMENT)])

    [(_, event)] = reader.audit()
    assert event == Event(kind=EventKind.COMMENT, occurred_at=T0 + 9)


@pytest.mark.shows("R-HIST-05")
def test_a_job_has_at_most_100_events_and_then_a_count(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store)
    store.record_events([Event(kind=EventKind.COMMENT, job_id=job_id, detail=str(n)) for n in range(100)])
    clock.advance(ms=1)
    store.record_events(
        [Event(kind=EventKind.COMMENT, job_id=job_id, detail=str(n)) for n in range(100, 105)]
    )
    clock.advance(ms=1)

    store.update_job(job_id, JobUpdate(priority=1))

    *notes, more = events_of(reader, job_id)
    assert [note.detail for note in notes] == [str(n) for n in range(100)]
    assert (more.kind, more.detail, more.occurred_at, more.job_id) == (
        EventKind.EVENTS_OMITTED,
        "6",
        T0 + 2,
        job_id,
    )


def test_the_100th_event_is_still_kept_without_a_count(store: Store, reader: Reader) -> None:
    job_id = put(store)

    store.record_events([Event(kind=EventKind.COMMENT, job_id=job_id)] * 100)

    assert kinds_of(reader, job_id) == [EventKind.COMMENT] * 100


def test_events_of_no_job_are_not_counted_away(store: Store, reader: Reader) -> None:
    store.record_events([Event(kind=EventKind.COMMENT, queue=MAIL)] * 150)

    assert len(reader.audit(limit=1_000)) == 150


def test_the_events_of_one_job_do_not_count_for_another(store: Store, reader: Reader) -> None:
    first, second = put(store), put(store)
    store.record_events([Event(kind=EventKind.COMMENT, job_id=first)] * 150)

    store.record_events([Event(kind=EventKind.COMMENT, job_id=second)] * 2)

    assert kinds_of(reader, second) == [EventKind.COMMENT] * 2


def test_migrating_again_changes_nothing(engine: Engine, store: Store, reader: Reader) -> None:
    put(store)

    first = store.migrate()
    second = store.migrate()

    assert first == second == engine.migrate() == reader.health().schema
    assert len(reader.counts()) == 1


@pytest.mark.shows("R-STORE-68")
def test_a_handle_may_be_closed_twice(engine: Engine) -> None:
    store, reader, wakeups = engine.store(), engine.reader(), engine.wakeups()

    for handle in (store, reader, wakeups):
        handle.close()
        handle.close()

    assert engine.features.name


@pytest.mark.shows("R-TEST-64")
def test_the_store_tells_its_own_time(reader: Reader, clock: ManualClock) -> None:
    clock.advance(ms=123)

    assert reader.now() == T0 + 123


@pytest.mark.shows("R-STORE-01", "R-STORE-03")
def test_an_engine_has_every_method_of_the_store_contract(
    engine: Engine, store: Store, reader: Reader
) -> None:
    contract = [(Store, store), (Reader, reader), (Wakeups, engine.wakeups()), (Engine, engine)]

    missing = [
        f"{protocol.__name__}.{name}"
        for protocol, handle in contract
        for name in vars(protocol)
        if not name.startswith("_") and not hasattr(handle, name)
    ]

    assert missing == []
