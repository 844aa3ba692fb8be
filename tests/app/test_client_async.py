"""Enqueueing from coroutines: the same, through one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from forebay import DuplicateJob, Forebay, PayloadError, StoreError
from forebay.app.client import Client
from forebay.app.offload_thread import OffloadThread
from forebay.domain.job import JobId, QueueName
from forebay.stores.contract.engine import Engine
from forebay.testing.manual_clock import ManualClock
from tests.app.watched_engine import DEADLINE, InsertBarrier, WatchedEngine
from tests.stores.sqlite_support import probe
from tests.stores.support import new_job

DEFAULT = QueueName("default")


def play(scene: Coroutine[Any, Any, Any]) -> Any:
    """Run a scene that must not hang."""

    async def within() -> Any:
        async with asyncio.timeout(DEADLINE):
            return await scene

    return asyncio.run(within())


@pytest.fixture
def barrier() -> InsertBarrier:
    return InsertBarrier()


@pytest.fixture
def watched(engine: Engine, barrier: InsertBarrier) -> WatchedEngine:
    return WatchedEngine(engine, barrier)


async def until(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait, DEADLINE)


def test_a_job_enqueued_by_a_coroutine_is_stored(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)

    handle = play(task.using(priority=3).enqueue_async(1))

    assert (handle.is_new, handle.refresh().priority) == (True, 3)


def test_a_hundred_coroutines_share_few_calls(
    watched: WatchedEngine, barrier: InsertBarrier, clock: ManualClock
) -> None:
    client = Client(watched.contract, clock)

    async def scene() -> list[JobId]:
        first = asyncio.create_task(client.enqueue_async([new_job()]))
        await until(barrier.is_reached)
        others = [asyncio.create_task(client.enqueue_async([new_job(task=f"t{n}")])) for n in range(100)]
        await asyncio.sleep(0)  # lets each of them run up to its hop
        barrier.open()
        answers = await asyncio.gather(first, *others)
        return [handle.id for [handle] in answers]

    ids = play(scene())

    assert watched.inserts == [1, 100]
    found = [client.job(job_id) for job_id in ids[1:]]
    assert [job.task for job in found if job] == [f"t{n}" for n in range(100)]
    client.close()


def test_coroutines_and_threads_are_merged_into_one_call(
    watched: WatchedEngine, barrier: InsertBarrier, clock: ManualClock
) -> None:
    client = Client(watched.contract, clock)

    async def scene() -> list[Any]:
        first = asyncio.create_task(client.enqueue_async([new_job()]))
        await until(barrier.is_reached)
        threads = [asyncio.to_thread(client.enqueue, [new_job()]) for _ in range(3)]
        coroutines = [client.enqueue_async([new_job()]) for _ in range(3)]
        both = asyncio.gather(*threads, *coroutines)
        await asyncio.to_thread(probe, lambda: len(client._pending_inserts) == 6, "all have left their jobs")
        barrier.open()
        return [await first, *await both]

    assert len({handle.id for [handle] in play(scene())}) == 7
    assert watched.inserts == [1, 6]
    client.close()


@pytest.mark.shows("R-ENQ-36")
def test_an_error_reaches_its_own_coroutine_and_no_other(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)
    task.using(id="taken").enqueue(0)

    async def scene() -> list[Any]:
        calls = [task.enqueue_async(1), task.using(id="taken").enqueue_async(2), task.enqueue_async(3)]
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        return answers

    first, refused, last = play(scene())

    assert isinstance(refused, DuplicateJob)
    assert (first.is_new, last.is_new) == (True, True)
    assert app.client.counts()[DEFAULT].pending == 3


def test_arguments_that_cannot_be_stored_are_refused_where_they_are_given(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)

    with pytest.raises(PayloadError):
        play(task.enqueue_async(object()))

    assert app.client.counts() == {}


@pytest.mark.parametrize("atomic", [True, False])
def test_many_jobs_can_be_enqueued_by_a_coroutine(app: Forebay, atomic: bool) -> None:
    task = app.task(name="t")(lambda n: n)

    handles = play(app.enqueue_many_async([task.job(n) for n in range(3)], atomic=atomic))

    assert [handle.is_new for handle in handles] == [True] * 3


def test_a_partial_batch_of_a_coroutine_tells_the_refused_apart(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)
    jobs = [task.using(id="same").job(1), task.using(id="same").job(2)]

    kept, refused = play(app.enqueue_many_async(jobs, atomic=False))

    assert (kept.is_new, type(refused.error)) == (True, DuplicateJob)


def test_a_coroutine_that_is_cancelled_before_its_turn_stores_nothing(
    watched: WatchedEngine, barrier: InsertBarrier, clock: ManualClock
) -> None:
    # It must not lie about either: the next to enqueue would store it, perhaps an hour later.
    client = Client(watched.contract, clock)

    async def scene() -> None:
        first = asyncio.create_task(client.enqueue_async([new_job()]))
        await until(barrier.is_reached)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.enqueue_async([new_job(task="unwanted")]), timeout=0.01)
        barrier.open()
        await first

    play(scene())

    client.enqueue([new_job()])
    assert watched.inserts == [1, 1]
    assert client.counts()[DEFAULT].pending == 2
    client.close()


def test_a_coroutine_that_is_cancelled_during_the_call_may_have_stored_its_job(
    watched: WatchedEngine, barrier: InsertBarrier, clock: ManualClock
) -> None:
    client = Client(watched.contract, clock)

    async def scene() -> None:
        call = asyncio.create_task(client.enqueue_async([new_job()]))
        await until(barrier.is_reached)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        barrier.open()
        await client.enqueue_async([new_job()])

    play(scene())

    assert client.counts()[DEFAULT].pending == 2
    client.close()


def test_an_app_serves_one_event_loop_after_the_other(app: Forebay) -> None:
    task = app.task(name="t")(lambda n: n)

    handles = [play(task.enqueue_async(n)) for n in range(3)]

    assert len(set(handles)) == 3


@pytest.mark.shows("R-EDGE-25")
def test_after_the_end_coroutines_are_refused_too(url: str) -> None:
    app = Forebay(url)
    task = app.task(name="t")(lambda n: n)
    play(task.enqueue_async(1))
    app.close()

    with pytest.raises(StoreError, match="this app is closed"):
        play(task.enqueue_async(2))

    app.close()


def test_blocking_calls_run_on_one_thread_that_bears_a_name() -> None:
    offload = OffloadThread("sample")

    async def scene() -> list[str]:
        names = [offload(lambda: threading.current_thread().name) for _ in range(5)]
        return await asyncio.gather(*names)

    assert set(play(scene())) == {"sample_0"}
    offload.close()
    offload.close()
    assert "sample_0" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("is_used", [True, False])
def test_calls_after_the_end_answer_at_once_and_start_no_thread(is_used: bool) -> None:
    offload = OffloadThread("another")
    if is_used:
        play(offload(threading.get_ident))
    offload.close()

    assert play(offload(threading.get_ident)) == threading.get_ident()
    assert [thread.name for thread in threading.enumerate() if "another" in thread.name] == []
