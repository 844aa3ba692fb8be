"""Handles in the hands of coroutines: the same answers, one thread however many wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from forebay import (
    Forebay,
    InvalidJob,
    JobCancelled,
    JobFailed,
    JobHandle,
    JobNotFound,
    StoreError,
    WaitTimeout,
)
from forebay.domain.job import Job
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.settlement import Settlement, decide
from forebay.payload.codec import encode_result
from tests.stores.sqlite_support import DEADLINE
from tests.stores.support import WORKER, claim, complete
from tests.threads import started_threads


def play(scene: Coroutine[Any, Any, Any]) -> Any:
    """Run a scene that must not hang."""

    async def within() -> Any:
        async with asyncio.timeout(DEADLINE):
            return await scene

    return asyncio.run(within())


def double(number: int = 1) -> int:
    return 2 * number


@pytest.fixture
def handle(app: Forebay) -> JobHandle[int]:
    return app.task(name="double")(double).enqueue()


def claimed(app: Forebay) -> Job:
    [job] = app.client.write(claim)
    return job


def settled(app: Forebay, settlement: Settlement) -> None:
    app.client.write(lambda store: store.settle_and_claim(WORKER, [settlement]))


def client_threads() -> list[str]:
    return [thread.name for thread in started_threads("forebay-client")]


@pytest.mark.shows("R-STORE-10")
def test_a_coroutine_gets_what_a_thread_would_get(app: Forebay, handle: JobHandle[int]) -> None:
    settled(app, complete(claimed(app), encode_result(2)))

    async def scene() -> None:
        assert (await handle.refresh_async()).state is JobState.COMPLETED
        assert (await handle.wait_async()).id == handle.id
        assert await handle.result_async() == 2
        assert (await handle.history_async()).job.id == handle.id
        assert await handle.cancel_async() is False

    play(scene())


@pytest.mark.shows("R-STORE-10")
def test_a_coroutine_cancels_a_job_that_waits(app: Forebay, handle: JobHandle[int]) -> None:
    assert play(handle.cancel_async("not needed")) is True

    with pytest.raises(JobCancelled, match=f"job {handle.id} was cancelled: not needed"):
        play(handle.result_async())
    kinds = [event.kind for event in play(handle.history_async()).events]
    assert EventKind.CANCEL in kinds


def test_a_coroutine_hears_why_a_job_failed_for_good(app: Forebay, handle: JobHandle[int]) -> None:
    error = AttemptError(type="Boom", message="it broke")
    settled(app, decide(claimed(app), Discarded(error), 0.0))

    with pytest.raises(JobFailed, match=r"failed for good: Boom: it broke"):
        play(handle.result_async())


def test_time_that_is_up_is_an_error_that_names_job_and_state(app: Forebay, handle: JobHandle[int]) -> None:
    with pytest.raises(WaitTimeout, match=rf"job {handle.id} is pending after 0\.02 s") as caught:
        play(handle.wait_async(timeout=0.02))

    assert (caught.value.job_id, caught.value.state) == (handle.id, "pending")
    assert isinstance(caught.value, TimeoutError)


def test_a_timeout_of_nothing_means_one_look(app: Forebay, handle: JobHandle[int]) -> None:
    with pytest.raises(WaitTimeout):
        play(handle.result_async(timeout=0))
    settled(app, complete(claimed(app), encode_result(2)))

    assert play(handle.result_async(timeout=0)) == 2


def test_a_wrong_timeout_is_named_before_the_store_is_read(app: Forebay) -> None:
    wrong: Any = "soon"

    with pytest.raises(InvalidJob, match="timeout must be a timedelta or a number of seconds"):
        play(app.job("gone").wait_async(timeout=wrong))


def test_a_job_that_is_not_there_is_an_error(app: Forebay) -> None:
    handle = app.job("gone")

    for call in (handle.refresh_async, handle.history_async, handle.wait_async, handle.result_async):
        with pytest.raises(JobNotFound, match="there is no job gone"):
            play(call())


def test_a_coroutine_that_gives_up_waiting_disturbs_no_other(app: Forebay, handle: JobHandle[int]) -> None:
    async def scene() -> int:
        impatient = asyncio.create_task(handle.wait_async())
        patient = asyncio.create_task(handle.result_async())
        await handle.refresh_async()
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        settled(app, complete(claimed(app), encode_result(2)))
        return await patient

    assert play(scene()) == 2


@pytest.mark.shows("R-STORE-10")
def test_a_thousand_coroutines_wait_for_their_jobs_on_one_thread(live_app: Forebay) -> None:
    task = live_app.task(name="double")(double)
    handles: list[JobHandle[int]] = live_app.enqueue_many([task.job(number) for number in range(1_000)])

    async def scene() -> list[int]:
        waiting = [asyncio.create_task(handle.result_async()) for handle in handles]
        await asyncio.sleep(0)  # lets each of them run up to its hop
        # Behind all of them on the store thread: when it is answered, each of them has looked once.
        await live_app.client.run_in_thread(threading.get_ident)
        assert client_threads() == ["forebay-client_0"]
        with live_app.run_worker(threads=2):
            return await asyncio.gather(*waiting)

    assert play(scene()) == [2 * number for number in range(1_000)]


def test_a_thousand_coroutines_may_wait_for_one_job(app: Forebay, handle: JobHandle[int]) -> None:
    async def scene() -> set[int]:
        waiting = [asyncio.create_task(handle.result_async()) for _ in range(1_000)]
        await handle.refresh_async()
        settled(app, complete(claimed(app), encode_result(2)))
        return set(await asyncio.gather(*waiting))

    assert play(scene()) == {2}


# ------------------------------------------------------------------ the app


def test_an_app_is_closed_at_the_end_of_an_async_block(url: str) -> None:
    async def scene() -> JobHandle[int]:
        async with Forebay(url) as app:
            return await app.task(name="double")(double).enqueue_async(1)

    handle = play(scene())

    assert client_threads() == []
    with pytest.raises(StoreError, match="this app is closed"):
        handle.refresh()


def test_coroutines_that_wait_hear_that_the_app_was_closed(url: str) -> None:
    async def scene() -> list[Any]:
        async with Forebay(url) as app:
            handle = await app.task(name="double")(double).enqueue_async(1)
            waiting = [asyncio.create_task(handle.wait_async()) for _ in range(20)]
            await handle.refresh_async()
        return await asyncio.gather(*waiting, return_exceptions=True)

    errors = play(scene())

    assert {(type(error), str(error)) for error in errors} == {(StoreError, "this app is closed")}
    assert client_threads() == []


@pytest.mark.shows("R-STORE-10")
def test_coroutines_look_at_queues_and_jobs(app: Forebay) -> None:
    task = app.task(name="double", queue="sums")(double)
    first, second = task.enqueue(1), task.enqueue(2)

    async def scene() -> None:
        assert (await app.counts_async("sums"))[task.job().queue].pending == 2
        assert [job.id for job in await app.peek_async("sums")] == [first.id, second.id]
        assert [job.id for job in (await app.search_async()).jobs] == [second.id, first.id]
        assert await app.sweep_async() == 0
        assert (await app.enqueue_async("double", [3])).is_new
        assert (await app.enqueue_async(task.job(4))).is_new

    play(scene())

    assert app.counts()[task.job().queue].pending == 4


def test_a_coroutine_waits_until_a_cancelled_job_has_stopped(app: Forebay, handle: JobHandle[int]) -> None:
    assert play(handle.cancel_async("not needed", wait=True, timeout=5)) is JobState.CANCELLED


def test_a_coroutine_waits_no_longer_than_it_wants_for_a_job_that_does_not_stop(
    app: Forebay, handle: JobHandle[int]
) -> None:
    consumer = app.consumer()
    consumer.claim()

    with pytest.raises(WaitTimeout, match="it was asked to stop and has not"):
        play(handle.cancel_async(wait=True, timeout=0.05))
    consumer.close()
