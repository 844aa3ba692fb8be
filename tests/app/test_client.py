"""Enqueueing from many threads: merged into few calls, each thread with its own answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Barrier
from typing import Any

import pytest

from forebay import DuplicateJob, Forebay, InvalidJob, QueueClosed, QueueFull, StoreError, StoreUnavailable
from forebay.app.client import Client
from forebay.app.job_handle import JobHandle
from forebay.domain.job import Dependency, JobId, NewJob, QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.queue import QueueState
from forebay.errors import StoreRefused
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.app.watched_engine import InsertBarrier, WatchedEngine
from tests.stores.sqlite_support import in_thread, probe
from tests.stores.support import new_job

DEFAULT = QueueName("default")
Answer = Callable[[], list[JobHandle[Any]]]


@pytest.fixture
def barrier() -> InsertBarrier:
    return InsertBarrier()


@pytest.fixture
def watched(engine: Engine, barrier: InsertBarrier) -> WatchedEngine:
    """An engine whose first insert waits at a barrier."""
    return WatchedEngine(engine, barrier)


@pytest.fixture
def client(watched: WatchedEngine, clock: ManualClock, barrier: InsertBarrier) -> Iterator[Client]:
    client = Client(watched.contract, clock)
    yield client
    barrier.open()
    client.close()


def behind_the_barrier(
    client: Client, barrier: InsertBarrier, *batches: list[NewJob], **options: Any
) -> list[Answer]:
    """Threads that enqueue a batch each, in this order, while the store is busy; it is busy no more after."""
    first = in_thread(lambda: client.enqueue([new_job(task="first")]))
    barrier.wait()
    answers: list[Answer] = []
    for number, batch in enumerate(batches, start=1):
        answers.append(in_thread(lambda batch=batch: client.enqueue(batch, **options)))  # type: ignore[misc]  # a lambda's default
        probe(lambda number=number: len(client._pending_inserts) == number, "the thread left its jobs")  # type: ignore[misc]
    barrier.open()
    first()
    return answers


def tasks_of(client: Client, handles: list[JobHandle[Any]]) -> list[str]:
    return [handle.refresh().task for handle in handles]


# ------------------------------------------------------------------ merging


@pytest.mark.shows("R-ENQ-19")
def test_threads_that_find_the_store_busy_share_one_call(
    client: Client, watched: WatchedEngine, barrier: InsertBarrier
) -> None:
    answers = behind_the_barrier(client, barrier, *[[new_job(task=f"t{n}")] for n in range(8)])

    handles = [answer()[0] for answer in answers]

    assert watched.inserts == [1, 8]
    assert tasks_of(client, handles) == [f"t{n}" for n in range(8)]


def test_batches_of_any_size_get_their_own_receipts_in_order(
    client: Client, watched: WatchedEngine, barrier: InsertBarrier
) -> None:
    batches = [[new_job(task=f"{n}-{m}") for m in range(n)] for n in range(5)]

    answers = behind_the_barrier(client, barrier, *batches)

    found = [tasks_of(client, answer()) for answer in answers]
    assert found == [[f"{n}-{m}" for m in range(n)] for n in range(5)]
    assert watched.inserts == [1, 10]


@pytest.mark.shows("R-EDGE-23", "R-ENQ-17")
def test_what_eight_threads_enqueue_at_once_is_all_there_under_different_ids(
    engine: Engine, clock: ManualClock
) -> None:
    client = Client(engine, clock)
    start = Barrier(8)

    def enqueue() -> list[JobId]:
        start.wait(100)
        return [handle.id for _ in range(50) for handle in client.enqueue([new_job()])]

    ids = [job_id for answer in [in_thread(enqueue) for _ in range(8)] for job_id in answer()]

    assert len(set(ids)) == 400
    assert client.counts()[DEFAULT].pending == 400
    client.close()


def test_a_store_is_opened_once_for_all_threads(
    client: Client, watched: WatchedEngine, barrier: InsertBarrier
) -> None:
    assert watched.stores == []

    for answer in behind_the_barrier(client, barrier, [new_job()], [new_job()]):
        answer()

    assert len(watched.stores) == 1


# ------------------------------------------------------------------ one that is refused


def fill(store: Store) -> None:
    store.save_queue(QueueName("small"), {"max_length": 1})


def close_queue(store: Store) -> None:
    store.save_queue(QueueName("shut"), state=QueueState.DRAINING)


def take_id(store: Store) -> None:
    store.insert([new_job(id="taken")])


REFUSALS: list[Any] = [
    (take_id, [new_job(id="taken")], DuplicateJob),
    (fill, [new_job(queue="small"), new_job(queue="small")], QueueFull),
    (close_queue, [new_job(queue="shut")], QueueClosed),
]


@pytest.mark.shows("R-ENQ-36", "R-ENQ-33", "R-ENQ-34", "R-EDGE-28")
@pytest.mark.parametrize(("prepare", "batch", "error"), REFUSALS)
def test_a_refusal_reaches_its_own_thread_and_hurts_no_other(
    client: Client,
    barrier: InsertBarrier,
    store: Store,
    prepare: Callable[[Store], None],
    batch: list[NewJob],
    error: type[Exception],
) -> None:
    prepare(store)

    before, refused, after = behind_the_barrier(
        client, barrier, [new_job(task="before")], batch, [new_job(task="after")]
    )

    assert tasks_of(client, before()) == ["before"]
    assert tasks_of(client, after()) == ["after"]
    with pytest.raises(error):
        refused()


def test_something_that_is_no_job_is_refused_before_it_can_hurt_others(
    client: Client, barrier: InsertBarrier
) -> None:
    wrong: Any = ["send"]
    barrier.open()

    with pytest.raises(InvalidJob, match=r"only jobs made by task\.job"):
        client.enqueue(wrong)

    assert not client._pending_inserts


def test_jobs_may_come_from_a_generator_and_a_list_that_changes_later(
    client: Client, watched: WatchedEngine, barrier: InsertBarrier
) -> None:
    growing = [new_job(task="a")]
    made: Any = (new_job(task=name) for name in "bc")

    answers = behind_the_barrier(client, barrier, growing, made)
    growing.append(new_job(task="late"))

    assert [tasks_of(client, answer()) for answer in answers] == [["a"], ["b", "c"]]


def test_two_threads_with_one_key_get_one_job(client: Client, barrier: InsertBarrier) -> None:
    answers = behind_the_barrier(client, barrier, *[[new_job(unique_key="k")] for _ in range(4)])

    handles = [answer()[0] for answer in answers]

    assert len(set(handles)) == 1
    assert [handle.is_new for handle in handles] == [True, False, False, False]


def test_requests_that_want_an_error_for_a_taken_key_are_not_merged(
    client: Client, watched: WatchedEngine, barrier: InsertBarrier
) -> None:
    batches = [[new_job(unique_key="k")] for _ in range(3)]

    first, *others = behind_the_barrier(client, barrier, *batches, on_conflict="raise")

    holder = first()[0].id
    for other in others:
        with pytest.raises(DuplicateJob) as caught:
            other()
        assert caught.value.holder == holder
    assert watched.inserts == [1, 1, 1, 1]


# ------------------------------------------------------------------ a store that does not answer


class Failing:
    """Lets one insert pass, and raises an error of its own in the next ones."""

    def __init__(self, barrier: InsertBarrier, error: BaseException, times: int) -> None:
        self._barrier = barrier
        self._error = error
        self._left = times
        self._passed = False

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if name != "insert":
            return
        self._barrier(name, args)
        if self._passed and self._left:
            self._left -= 1
            raise self._error
        self._passed = True


@pytest.mark.shows("R-EDGE-65")
def test_when_the_store_is_away_each_thread_hears_it_and_the_call_is_not_repeated(
    engine: Engine, clock: ManualClock, barrier: InsertBarrier
) -> None:
    # What was not answered may have happened: a second try by ourselves could store a job twice.
    watched = WatchedEngine(engine, Failing(barrier, StoreUnavailable("away"), times=1))
    client = Client(watched.contract, clock)

    answers = behind_the_barrier(client, barrier, [new_job()], [new_job()], [new_job()])

    heard: list[BaseException] = []
    for answer in answers:
        with pytest.raises(StoreUnavailable, match="away") as caught:
            answer()
        heard.append(caught.value)
    assert len({id(error) for error in heard}) == 3
    assert watched.inserts == [1, 3]
    assert client.enqueue([new_job()])[0].is_new
    client.close()


def test_jobs_are_enqueued_even_if_those_they_wait_for_cannot_be_raised(
    engine: Engine, clock: ManualClock
) -> None:
    def away(name: str, args: tuple[Any, ...]) -> None:
        if name == "update_job":
            raise StoreUnavailable("away")

    watched = WatchedEngine(engine, away)
    client = Client(watched.contract, clock)
    [parent] = client.enqueue([new_job()])

    [child] = client.enqueue([new_job(priority=5, depends_on=(Dependency(parent.id),))])

    assert child.refresh().state is JobState.BLOCKED
    assert parent.refresh().priority < 5
    client.close()


def test_the_audit_log_says_who_has_raised_a_job(engine: Engine, clock: ManualClock) -> None:
    client = Client(engine, clock, actor="billing")
    [parent] = client.enqueue([new_job()])

    client.enqueue([new_job(priority=5, depends_on=(Dependency(parent.id),))])

    events = [event for _, event in client.read(lambda reader: reader.audit())]
    assert [event.actor for event in events if event.kind is EventKind.UPDATED] == ["billing"]
    client.close()


def test_when_the_merged_call_is_refused_its_halves_are_tried_down_to_the_culprit(
    engine: Engine, clock: ManualClock, barrier: InsertBarrier
) -> None:
    error = StoreRefused("cannot hold this")
    watched = WatchedEngine(engine, Failing(barrier, error, times=2))
    client = Client(watched.contract, clock)

    to_blame, *others = behind_the_barrier(client, barrier, [new_job()], [new_job()], [new_job()])

    with pytest.raises(type(error), match=str(error)):
        to_blame()
    assert all(other()[0].is_new for other in others)
    assert watched.inserts == [1, 3, 1, 2]
    client.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_when_the_thread_that_stores_is_interrupted_the_others_are_told(
    engine: Engine, clock: ManualClock, barrier: InsertBarrier, error: BaseException
) -> None:
    # How far it came is unknown, so nothing is tried again.
    watched = WatchedEngine(engine, Failing(barrier, error, times=1))
    client = Client(watched.contract, clock)

    answers = behind_the_barrier(client, barrier, [new_job()], [new_job()])

    outcomes = {type(_error_of(answer)) for answer in answers}
    assert outcomes == {type(error), StoreUnavailable}
    assert watched.inserts == [1, 2]
    assert not client._pending_inserts
    client.close()


def _error_of(answer: Answer) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - which one is what the caller looks at
        answer()
    return caught.value


# ------------------------------------------------------------------ many at once


def test_an_atomic_batch_is_stored_whole_or_not_at_all(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)
    app.client.enqueue([new_job(id="taken")])

    with pytest.raises(DuplicateJob):
        app.enqueue_many([task.job(1), task.using(id="taken").job(2), task.job(3)])

    assert app.client.counts()[DEFAULT].pending == 1


@pytest.mark.shows("R-ENQ-10", "R-EDGE-28")
def test_a_partial_batch_stores_what_it_can_and_tells_the_rest_apart(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)
    app.client.enqueue([new_job(id="taken")])

    first, refused, last = app.enqueue_many(
        [task.job(1), task.using(id="taken").job(2), task.job(3)], atomic=False
    )

    assert [first.error, last.error] == [None, None]
    assert (first.refresh().state, last.refresh().state) == (JobState.PENDING, JobState.PENDING)
    assert isinstance(refused.error, DuplicateJob)
    assert not refused.is_new
    with pytest.raises(DuplicateJob):
        _ = refused.id


@pytest.mark.shows("R-ENQ-12")
def test_a_batch_may_ignore_ids_that_are_taken(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)
    jobs = [task.using(id=name).job(1) for name in ("a", "b")]
    app.enqueue_many(jobs[:1])

    handles = app.enqueue_many(jobs, on_conflict="ignore")

    assert [(handle.id, handle.is_new) for handle in handles] == [("a", False), ("b", True)]


@pytest.mark.shows("R-ENQ-08", "R-ENQ-09")
def test_a_batch_may_span_queues_and_is_answered_in_order(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)

    handles = app.enqueue_many([task.using(queue=f"q{n % 3}").job(n) for n in range(30)])

    assert [handle.refresh().queue for handle in handles] == [f"q{n % 3}" for n in range(30)]


@pytest.mark.shows("R-EDGE-24")
@pytest.mark.parametrize("atomic", [True, False])
def test_an_empty_batch_does_nothing(app: Forebay, atomic: bool) -> None:
    assert app.enqueue_many([], atomic=atomic) == []


# ------------------------------------------------------------------ keys


@pytest.mark.shows("R-IDEM-01", "R-IDEM-09")
@pytest.mark.parametrize("key", ["unique_key", "idempotency_key"])
def test_a_taken_key_gives_the_holders_handle(app: Forebay, key: str) -> None:
    options: Any = {key: "k"}
    task = app.task(name="t")(lambda: None)

    first = task.using(**options).enqueue()
    second = task.using(**options).enqueue()
    elsewhere = task.using(queue="other", **options).enqueue()

    assert (first.is_new, second.is_new, elsewhere.is_new) == (True, False, True)
    assert second == first
    assert elsewhere != first


@pytest.mark.parametrize("key", ["unique_key", "idempotency_key"])
def test_a_taken_key_is_an_error_for_who_asks_for_it(app: Forebay, key: str) -> None:
    options: Any = {key: "k"}
    call = app.task(name="t")(lambda: None).using(on_conflict="raise", **options)
    first = call.enqueue()

    with pytest.raises(DuplicateJob) as caught:
        call.enqueue()

    assert caught.value.holder == first.id
    assert app.client.counts()[DEFAULT].pending == 1


def test_a_unique_key_is_free_again_when_its_job_is_final(app: Forebay) -> None:
    call = app.task(name="t")(lambda: None).using(unique_key="k")
    call.enqueue().cancel()

    assert call.enqueue().is_new


def test_an_idempotency_key_is_held_for_its_time_whatever_becomes_of_the_job(
    app: Forebay, clock: ManualClock
) -> None:
    call = app.task(name="t")(lambda: None).using(idempotency_key="k", idempotency_ttl=60)
    call.enqueue().cancel()

    clock.advance(seconds=59)
    within = call.enqueue()
    clock.advance(seconds=2)
    after = call.enqueue()

    assert (within.is_new, after.is_new) == (False, True)


@pytest.mark.shows("R-EDGE-28")
def test_an_id_of_ones_own_that_is_taken_is_an_error(app: Forebay) -> None:
    call = app.task(name="t")(lambda n: n).using(id="order-1")
    first = call.enqueue(1)

    with pytest.raises(DuplicateJob) as caught:
        call.enqueue(2)

    assert (first.id, caught.value.holder) == ("order-1", "order-1")


# ------------------------------------------------------------------ reads and updates


def test_jobs_can_be_looked_up_searched_and_counted(app: Forebay) -> None:
    handle = app.task(name="t")(lambda: None).enqueue()
    client = app.client

    job, history = client.job(handle.id), client.history(handle.id)

    assert job is not None
    assert history is not None
    assert (job.task, history.job.id) == ("t", handle.id)
    assert [found.id for found in client.search(JobQuery()).jobs] == [handle.id]
    assert client.counts([DEFAULT])[DEFAULT].pending == 1
    assert (client.job(JobId("none")), client.history(JobId("none"))) == (None, None)


def test_jobs_can_be_updated_cancelled_and_revived(app: Forebay) -> None:
    handle = app.task(name="t")(lambda: None).enqueue()
    client = app.client

    assert client.update(handle.id, JobUpdate(priority=7)).applied
    assert [result.applied for result in client.cancel([handle.id], "no")] == [True]
    assert [result.applied for result in client.revive([handle.id])] == [True]

    job = handle.refresh()
    assert (job.state, job.priority) == (JobState.PENDING, 7)


# ------------------------------------------------------------------ closing


@pytest.mark.shows("R-EDGE-25")
def test_after_the_end_nothing_can_be_enqueued_or_asked(url: str) -> None:
    app = Forebay(url)
    task = app.task(name="t")(lambda: None)
    handle = task.enqueue()

    app.close()
    app.close()

    for call in (task.enqueue, handle.refresh, handle.cancel, lambda: app.enqueue_many([], atomic=False)):
        with pytest.raises(StoreError, match="this app is closed"):
            call()


def test_an_app_that_was_never_used_can_be_closed(url: str) -> None:
    Forebay(url).close()


@pytest.mark.shows("R-EDGE-25")
def test_enqueue_and_close_at_one_moment_store_the_job_or_raise(
    client: Client, barrier: InsertBarrier
) -> None:
    stored = in_thread(lambda: client.enqueue([new_job()]))
    barrier.wait()
    closed = in_thread(client.close)

    barrier.open()
    closed()

    [handle] = stored()
    assert handle.is_new
    with pytest.raises(StoreError, match="this app is closed"):
        client.enqueue([new_job()])
