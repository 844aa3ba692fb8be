"""What is special to the memory engine: it forgets, it hands out nothing of its own, it undoes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest
from msgspec.structs import asdict, replace

from forebay.domain.job import JobId, JobUpdate, QueueName
from forebay.domain.job_history import Event as HistoryEvent
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Interrupted
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.query import JobQuery
from forebay.domain.queue import QueueState
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import DuplicateJob, QueueClosed, StoreError, StoreRefused
from forebay.stores.contract.engine import Wakeups
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.memory.job_heap import JobHeap, StoredJob
from forebay.stores.memory.state import State
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, counting_ids, everything, new_job
from tests.threads import started_threads

DEFAULT = QueueName("default")
ABSENT = JobId("absent")
PATIENCE = 120


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[MemoryEngine]:
    engine = MemoryEngine(clock=clock, new_id=counting_ids())
    yield engine
    assert engine.reader().health().problems == ()


@pytest.fixture
def wakeups(engine: MemoryEngine) -> Iterator[Wakeups]:
    wakeups = engine.wakeups()
    yield wakeups
    wakeups.close()


def listening_threads() -> list[Thread]:
    return started_threads("forebay-memory-wakeups")


@pytest.mark.shows("R-STORE-71")
def test_nothing_is_left_for_the_next_engine(store: Store, clock: ManualClock) -> None:
    store.insert([new_job()])

    assert everything(MemoryEngine(clock=clock).reader()) == []


@pytest.mark.shows("R-STORE-71")
def test_it_says_that_it_is_neither_durable_nor_shared(engine: MemoryEngine) -> None:
    assert (engine.features.name, engine.features.is_durable, engine.features.is_shared) == (
        "memory",
        False,
        False,
    )


@pytest.mark.shows("R-STORE-70")
def test_it_tells_its_size_what_has_come_and_gone_and_whether_it_is_closed(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job() for _ in range(3)])
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 2)])
    store.save_queue(DEFAULT, state=QueueState.DRAINING)

    snapshot = store.snapshot_queues()[DEFAULT]

    assert (snapshot.counts.pending, snapshot.accepted, snapshot.accepted - snapshot.counts.pending) == (
        1,
        3,
        2,
    )
    assert [queue.state for queue in reader.queues()] == [QueueState.DRAINING]
    with pytest.raises(QueueClosed):
        store.insert([new_job()])


def test_closing_a_handle_loses_no_jobs(engine: MemoryEngine, reader: Reader) -> None:
    store = engine.store()
    store.insert([new_job()])

    store.close()

    assert len(everything(reader)) == 1


WRITES: list[Callable[[Store], object]] = [
    lambda store: store.insert([new_job()]),
    lambda store: store.insert([]),
    lambda store: store.settle_and_claim(WORKER),
    lambda store: store.renew(WORKER, [Lease(ABSENT, 1)]),
    lambda store: store.sweep(WORKER),
    lambda store: store.promote(),
    lambda store: store.rescore(),
    lambda store: store.prune(),
    lambda store: store.cancel([ABSENT]),
    lambda store: store.update_job(ABSENT, JobUpdate(priority=1)),
    lambda store: store.revive([ABSENT]),
    lambda store: store.delete([ABSENT]),
    lambda store: store.save_queue(DEFAULT),
    lambda store: store.drop_queue(DEFAULT),
    lambda store: store.heartbeat(WorkerInfo(id=WORKER)),
    lambda store: store.remove_worker(WORKER),
    lambda store: store.send_command(CommandKind.STOP),
    lambda store: store.take_commands([WORKER]),
    lambda store: store.answer_command("absent", "done"),
    lambda store: store.acquire_maintenance("sweep", 1_000),
    lambda store: store.record_events([HistoryEvent(kind=EventKind.COMMENT)]),
    lambda store: store.migrate(),
]

READS: list[Callable[[Reader], object]] = [
    lambda reader: reader.jobs([ABSENT]),
    lambda reader: reader.search(JobQuery()),
    lambda reader: reader.counts(),
    lambda reader: reader.peek(DEFAULT),
    lambda reader: reader.position(ABSENT),
    lambda reader: reader.queues(),
    lambda reader: reader.workers(),
    lambda reader: reader.commands(["absent"]),
    lambda reader: reader.progress(ABSENT),
    lambda reader: reader.history(ABSENT),
    lambda reader: reader.audit(),
    lambda reader: reader.archive(),
    lambda reader: reader.now(),
    lambda reader: reader.health(),
]


@pytest.mark.shows("R-STORE-69")
@pytest.mark.parametrize("write", WRITES)
def test_a_closed_handle_writes_no_more(store: Store, write: Callable[[Store], object]) -> None:
    store.close()
    store.close()

    with pytest.raises(StoreError, match="this handle is closed"):
        write(store)


@pytest.mark.shows("R-STORE-69")
@pytest.mark.parametrize("read", READS)
def test_a_closed_handle_reads_no_more(reader: Reader, read: Callable[[Reader], object]) -> None:
    reader.close()
    reader.close()

    with pytest.raises(StoreError, match="this handle is closed"):
        read(reader)


@pytest.mark.shows("R-STORE-69")
def test_closing_wakes_a_waiting_listener(wakeups: Wakeups) -> None:
    wakeups.start(lambda: None)
    [thread] = listening_threads()

    wakeups.close()

    assert not thread.is_alive()
    assert listening_threads() == []


def test_a_listener_may_be_closed_twice_or_before_its_start(wakeups: Wakeups) -> None:
    wakeups.close()
    wakeups.close()

    with pytest.raises(StoreError, match="this handle is closed"):
        wakeups.start(lambda: None)


def test_a_listener_starts_once(wakeups: Wakeups) -> None:
    wakeups.start(lambda: None)

    with pytest.raises(StoreError, match="listens already"):
        wakeups.start(lambda: None)


def test_a_wakeup_may_close_its_own_listener(store: Store, wakeups: Wakeups) -> None:
    closed = Event()

    def notify() -> None:
        wakeups.close()
        closed.set()

    wakeups.start(notify)
    store.insert([new_job()])

    assert closed.wait(PATIENCE)


def running(store: Store) -> None:
    store.insert([new_job()])
    claim(store)


def waiting(store: Store) -> None:
    store.insert([new_job(id="mine", delay_ms=5)])


def cancelled(store: Store) -> None:
    waiting(store)
    store.cancel([JobId("mine")])


def send_heartbeat(store: Store) -> None:
    store.heartbeat(WorkerInfo(id=WORKER))


def nothing(store: Store) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "write"),
    [
        (nothing, lambda store: store.insert([new_job()])),
        (nothing, lambda store: store.insert([new_job(delay_ms=5)])),
        (nothing, lambda store: store.save_queue(DEFAULT)),
        (waiting, lambda store: store.update_job(JobId("mine"), JobUpdate(delay_ms=0))),
        (waiting, lambda store: store.cancel([JobId("mine")])),
        (send_heartbeat, lambda store: store.send_command(CommandKind.STOP)),
        (cancelled, lambda store: store.revive([JobId("mine")])),
        (
            running,
            lambda store: store.settle_and_claim(
                WORKER,
                [
                    decide(job, Interrupted(), 0.0)
                    for job in store.settle_and_claim(WORKER, known=[]).recovered
                ],
            ),
        ),
        (
            running,
            lambda store: store.cancel(
                [job.id for job in store.settle_and_claim(WORKER, known=[]).recovered]
            ),
        ),
    ],
)
def test_a_listener_is_notified_by(
    store: Store, wakeups: Wakeups, before: Callable[[Store], None], write: Callable[[Store], object]
) -> None:
    before(store)
    notified = Event()
    wakeups.start(notified.set)

    write(store)

    assert notified.wait(PATIENCE)


def test_a_call_that_changes_nothing_notifies_no_listener(engine: MemoryEngine, store: Store) -> None:
    running(store)
    rung = engine._broadcast.add_listener()

    [job] = store.settle_and_claim(WORKER, known=[]).recovered
    store.renew(WORKER, [Lease(job.id, job.attempt)])
    store.promote()
    store.send_command(CommandKind.STOP)
    store.take_commands([WORKER])
    store.settle_and_claim(
        WORKER, [complete(job)], updates=[ProgressUpdate(lease=Lease(job.id, job.attempt))]
    )

    assert not rung.is_set()


def test_what_a_caller_does_to_metadata_does_not_reach_the_store(store: Store, reader: Reader) -> None:
    metadata: dict[str, object] = {"list": [1]}
    [receipt] = store.insert([new_job(metadata=metadata)])
    assert receipt.id is not None

    metadata["list"] = "mine"
    for found in [*reader.jobs([receipt.id]), *claim(store)]:
        assert found is not None
        found.metadata["more"] = 1

    [job] = reader.jobs([receipt.id])
    assert job is not None
    assert job.metadata == {"list": [1]}


def test_a_call_that_raises_leaves_no_trace(store: Store, reader: Reader) -> None:
    store.insert([new_job(id="first", unique_key="k")])
    [job] = claim(store)
    before = asdict(job)
    good = complete(job)
    bad = replace(good, follow_ups=(new_job(queue="other", unique_key="x"), new_job(id="first")))

    with pytest.raises(StoreRefused) as refused:
        store.settle_and_claim(WORKER, [bad])

    assert isinstance(refused.value.__cause__, DuplicateJob)
    [job_after] = reader.jobs([job.id])
    assert job_after is not None
    assert asdict(job_after) == before
    assert [queue.name for queue in reader.queues()] == ["default"]
    assert store.settle_and_claim(WORKER, [good]).settled == (job.id,)


def test_a_claim_that_is_undone_can_be_made_again(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job(id="ready"), new_job(id="due", delay_ms=5)])
    clock.advance(ms=5)

    # The claim goes through the orders before its worker's name turns out to be unwritable.
    with pytest.raises(StoreRefused):
        claim(store, 2, worker=type(WORKER)("\ud800"))

    assert reader.health().problems == ()
    assert [job.id for job in claim(store, 2)] == ["ready", "due"]


@pytest.mark.parametrize("use", [0, 1])
def test_text_that_cannot_be_written_as_utf_8_is_refused(store: Store, reader: Reader, use: int) -> None:
    store.insert([new_job(id="mine")])
    texts = {"reason": "\ud800" if use == 0 else "fine", "actor": "\udfff" if use == 1 else "fine"}

    with pytest.raises(StoreRefused, match="UTF-8"):
        store.cancel([JobId("mine")], texts["reason"], actor=texts["actor"])

    assert reader.audit() == []
    assert [job.state for job in everything(reader)] == ["pending"]


@pytest.mark.shows("R-STORE-66")
def test_an_order_does_not_grow_with_what_has_left_it(store: Store, reader: Reader) -> None:
    store.insert([new_job(id="mine")])
    [job] = reader.jobs([JobId("mine")])
    assert job is not None
    jobs = {job.id: StoredJob(job)}
    order = JobHeap(jobs, lambda record: record.job.rank)

    for rank in range(10_000):
        old = jobs[job.id]
        jobs[job.id] = StoredJob(replace(job, rank=rank))
        order.add(jobs[job.id], old)

    first = order.first()
    assert first is not None
    assert first.job.rank == 9_999
    assert len(order._heap) < 100


def unplaced(state: State) -> None:
    state.jobs_by_state[DEFAULT, JobState.PENDING].clear()


def misplaced(state: State) -> None:
    state.jobs_by_state[DEFAULT, JobState.DEAD] = state.jobs_by_state.pop((DEFAULT, JobState.PENDING))


def unheld(state: State) -> None:
    state.leases.clear()


def unleased(state: State) -> None:
    change(state, "running", lease_expires_at=None)


def leased(state: State) -> None:
    change(state, "ready", lease_expires_at=5)


def ended_alive(state: State) -> None:
    change(state, "ready", finished_at=5)


def unqueued(state: State) -> None:
    state.queues.clear()


def unordered(state: State) -> None:
    state.ready.clear()


def keyless(state: State) -> None:
    state.unique_keys.clear()


def loose_key(state: State) -> None:
    state.unique_keys[DEFAULT, "other"] = JobId("ready")


def loose_attempts(state: State) -> None:
    state.attempts[ABSENT] = ()


def loose_notes(state: State) -> None:
    state.progress[ABSENT] = JobProgress()


def loose_events(state: State) -> None:
    state.job_events[JobId("ready")] = (99,)


def change(state: State, job_id: str, **changes: object) -> None:
    state.put(StoredJob(replace(state.jobs[JobId(job_id)].job, **changes)))


@pytest.mark.shows("R-SWEEP-24", "R-SWEEP-23")
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (unplaced, "1 jobs are counted, 2 are there"),
        (misplaced, "is counted as dead in queue default and is not there"),
        (unheld, "the leases by worker are not the running jobs"),
        (unleased, "is running without a lease"),
        (leased, "has a lease but is not running"),
        (ended_alive, "is pending, and its end does not say so"),
        (unqueued, "is in no known queue"),
        (unordered, "is missing in an order"),
        (keyless, "does not hold its unique key"),
        (loose_key, "is held by no live job"),
        (loose_attempts, "is gone and its attempts are not"),
        (loose_notes, "is gone and its notes are not"),
        (loose_events, "has events that are gone"),
    ],
)
def test_health_finds(damage: Callable[[State], None], problem: str, clock: ManualClock) -> None:
    engine = MemoryEngine(clock=clock)
    store = engine.store()
    store.insert([new_job(id="running")])
    claim(store)
    store.insert([new_job(id="ready", unique_key="k")])
    assert engine.reader().health().problems == ()

    damage(engine._state)

    assert problem in "; ".join(engine.reader().health().problems)
