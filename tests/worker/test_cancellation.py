"""Cancelling a job that runs, and waiting until it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from time import sleep
from typing import Any

import pytest

from forebay import Forebay, JobHandle, WaitTimeout, current_job
from forebay.domain.job_states import JobState
from tests.worker.support import DEADLINE

Ended = list[tuple[bool, str | None]]


@pytest.fixture
def begun() -> Event:
    return Event()


def endless(begun: Event, ended: Ended) -> None:
    begun.set()
    try:
        while True:
            sleep(0.005)
    finally:
        ended.append((current_job().is_cancelled, current_job().cancel_reason))


async def endless_async(begun: Event, ended: Ended) -> None:
    begun.set()
    try:
        await asyncio.sleep(3_600)
    finally:
        ended.append((current_job().is_cancelled, current_job().cancel_reason))


def listening(begun: Event, ended: Ended) -> None:
    """Asks by heartbeat; an interrupt may be faster."""
    begun.set()
    while True:
        try:
            current_job().heartbeat()
            sleep(0.005)
        except Exception as exc:
            ended.append((current_job().is_cancelled, str(exc)))
            raise


@pytest.mark.shows("R-CANCEL-09")
@pytest.mark.parametrize("func", [endless, endless_async], ids=["thread", "loop"])
def test_a_running_job_is_cancelled_when_the_call_returns_although_no_slot_is_free(
    app: Forebay, begun: Event, func: Callable[..., Any]
) -> None:
    ended: Ended = []

    def run() -> None:
        endless(begun, ended)

    async def run_async() -> None:
        await endless_async(begun, ended)

    task = app.task(name="t")(run_async if func is endless_async else run)
    with app.run_worker(threads=1, coroutines=1):
        handle = task.enqueue()
        assert begun.wait(DEADLINE)
        state = handle.cancel("not needed", wait=True, timeout=DEADLINE)

    assert (state, ended) == (JobState.CANCELLED, [(True, "not needed")])
    assert handle.refresh().reason == "not needed"


def test_a_coroutine_cancels_a_running_job_and_waits(app: Forebay, begun: Event) -> None:
    ended: Ended = []
    task = app.task(name="t")(lambda: endless(begun, ended))

    async def scene() -> JobState:
        handle: JobHandle[Any] = await task.enqueue_async()
        await asyncio.to_thread(begun.wait, DEADLINE)
        return await handle.cancel_async("not needed", wait=True, timeout=DEADLINE)

    with app.run_worker(threads=1):
        assert asyncio.run(scene()) is JobState.CANCELLED
    assert ended == [(True, "not needed")]


def test_a_job_that_does_not_listen_runs_on_and_may_complete(app: Forebay, begun: Event) -> None:
    go_on = Event()

    @app.task(name="deaf")
    def deaf() -> str:
        begun.set()
        while True:
            try:
                assert go_on.wait(DEADLINE)
            except BaseException:  # noqa: S112 - this one is deaf
                continue
            return "done"

    with app.run_worker(threads=1):
        handle = deaf.enqueue()
        assert begun.wait(DEADLINE)
        with pytest.raises(WaitTimeout, match="it was asked to stop and has not"):
            handle.cancel(wait=True, timeout=0.2)
        go_on.set()
        assert handle.cancel(wait=True, timeout=DEADLINE) is JobState.COMPLETED


def test_a_heartbeat_ends_a_cancelled_job(app: Forebay, begun: Event) -> None:
    ended: Ended = []
    task = app.task(name="t")(lambda: listening(begun, ended))
    with app.run_worker(threads=1):
        handle = task.enqueue()
        assert begun.wait(DEADLINE)
        assert handle.cancel("not needed", wait=True, timeout=DEADLINE) is JobState.CANCELLED
    assert handle.refresh().reason == "not needed"
