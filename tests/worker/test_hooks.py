"""Hooks of a program in a worker: before its first claim, after its last settlement, and for dead jobs."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from forebay import Discard, Forebay, RetryPolicy, current_job
from forebay.domain.job import Job
from forebay.domain.outcome import AttemptError
from forebay.errors import StoreUnavailable
from forebay.worker.worker import Worker
from tests.app.watched_store import Watched
from tests.worker.rig import Rig
from tests.worker.support import DEADLINE, eventually, no_thread_stays

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

Heard = list[tuple[Job | None, AttemptError]]


def test_hooks_run_around_all_jobs_of_a_worker(app: Forebay) -> None:
    order: list[str] = []
    task = app.task(name="t")(lambda: order.append("job"))
    handle = task.enqueue()

    @app.on_start
    def up() -> None:
        order.append(f"up while the job is {handle.refresh().state}")

    @app.on_stop
    def down() -> None:
        order.append(f"down when the job is {handle.refresh().state}")

    with app.run_worker(threads=1):
        handle.wait(timeout=DEADLINE)

    assert order == ["up while the job is pending", "job", "down when the job is completed"]


def test_coroutine_hooks_run_on_the_event_loop_of_the_tasks(app: Forebay) -> None:
    loops: list[object] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    app.on_start(note)
    app.on_stop(note)
    task = app.task(name="t")(note)
    with app.run_worker(threads=1):
        task.enqueue().wait(timeout=DEADLINE)

    assert len(loops) == 3
    assert len(set(loops)) == 1


def test_a_coroutine_that_blocks_the_event_loop_does_not_hold_up_the_stop(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.worker.executors.event_loop_executor.BLOCKED_SECONDS", 0.2)
    blocked, go_on = Event(), Event()

    @app.task(name="block")
    async def block() -> None:
        blocked.set()
        go_on.wait(DEADLINE * 10)

    @app.on_stop
    async def let_go() -> None: ...

    block.enqueue()
    with no_thread_stays():
        worker = Worker(app.engine, app.registry)
        worker.start()
        assert blocked.wait(DEADLINE)
        try:
            with pytest.raises(RuntimeError, match="the event loop is blocked by a task"):
                worker.stop(drain=0)
            assert not go_on.is_set()
        finally:
            go_on.set()


def test_each_worker_of_a_program_calls_the_hooks(app: Forebay) -> None:
    order: list[str] = []
    app.on_start(lambda: order.append("up"))
    app.on_stop(lambda: order.append("down"))

    with app.run_worker(threads=1), app.run_worker(threads=1):
        assert order == ["up", "up"]

    assert order == ["up", "up", "down", "down"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_start_hook_that_fails_keeps_the_worker_from_starting(app: Forebay, is_async: bool) -> None:
    handle = app.task(name="t")(lambda: None).enqueue()
    stopped: list[str] = []

    def fail() -> None:
        raise OSError("no model")

    async def fail_async() -> None:
        fail()

    app.on_start(fail_async if is_async else fail)
    app.on_stop(lambda: stopped.append("down"))
    with no_thread_stays():
        worker = Worker(app.engine, app.registry)
        with pytest.raises(OSError, match="no model"):
            worker.start()

    assert (handle.refresh().state, handle.refresh().attempt, stopped) == ("pending", 0, [])
    assert app.client.read(lambda reader: reader.workers()) == []


def test_stop_hooks_run_when_the_worker_cannot_start_after_the_start_hooks(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    app.on_start(lambda: order.append("up"))
    app.on_stop(lambda: order.append("down"))
    worker = Worker(app.engine, app.registry)

    def fail(_: object) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(worker._wakeups, "start", fail)
    with no_thread_stays(), pytest.raises(OSError, match="no more threads"):
        worker.start()

    assert order == ["up", "down"]


def test_the_error_of_a_stop_hook_comes_out_of_the_stop(app: Forebay) -> None:
    order: list[str] = []

    def fail() -> None:
        raise OSError("cannot flush")

    app.on_stop(lambda: order.append("the other one"))
    app.on_stop(fail)
    handle = app.task(name="t")(lambda: None).enqueue()

    with no_thread_stays(), pytest.raises(OSError, match="cannot flush"), app.run_worker(threads=1):
        handle.wait(timeout=DEADLINE)

    assert order == ["the other one"]


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_jobs_that_are_dead_for_good(app: Forebay) -> None:
    heard: Heard = []
    app.on_error(lambda job, error: heard.append((job, error)))

    @app.task(name="fail", retry_policy=RetryPolicy(max_retries=1, base_ms=1, floor_ms=1))
    def fail() -> None:
        raise KeyError(current_job().attempt)

    @app.task(name="refuse")
    def refuse() -> None:
        raise Discard("never")

    fine = app.task(name="fine")(lambda: None)
    with app.run_worker(threads=1):
        for task in (fine, fail, refuse):
            task.enqueue().wait(timeout=DEADLINE)
        eventually(lambda: len(heard) == 2)

    reports = [(job and (job.task, job.state, job.failures, job.reason), error.type) for job, error in heard]
    assert reports == [
        (("fail", "dead", 2, "KeyError: 2"), "KeyError"),
        (("refuse", "dead", 1, "Discard: never"), "Discard"),
    ]


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_a_job_that_is_dead_because_its_end_could_not_be_stored(app: Forebay) -> None:
    heard: Heard = []
    app.on_error(lambda job, error: heard.append((job, error)))

    @app.task(name="hand on", retries=0)
    def hand_on() -> None:
        current_job().follow_up(hand_on.using(id=current_job().id).job())  # the id of a job that exists

    with app.run_worker(threads=1):
        assert hand_on.enqueue().wait(timeout=DEADLINE).state == "dead"
        eventually(lambda: heard)

    [(job, error)] = heard
    assert job is not None
    assert (job.task, job.state, job.failures, error.type) == ("hand on", "dead", 1, "StoreRefused")


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_jobs_that_the_sweep_gives_up(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would hold back for ten seconds, as after every start.
    monkeypatch.setattr("forebay.maintenance.lease_sweeper.Sweeper.on_connected", lambda _: None)
    heard: Heard = []
    app.on_error(lambda job, error: heard.append((job, error)))
    handle = app.task(name="t", max_crashes=0)(lambda: None).using(lease=1).enqueue()
    consumer = app.consumer()
    assert [job.id for job in consumer.claim()] == [handle.id]
    consumer.close()  # it holds the job and says no more

    with app.run_worker(threads=1):
        handle.wait(timeout=DEADLINE)
        eventually(lambda: heard)

    [(job, error)] = heard
    assert job is not None
    assert (job.id, job.state, error.type) == (handle.id, "dead", "Lost")


@pytest.mark.shows("R-WORK-13")
def test_a_listener_hears_of_errors_of_the_loop_once_for_an_outage(rig: Rig) -> None:
    errors: list[Any] = [StoreUnavailable("away"), StoreUnavailable("away"), None, RuntimeError("our own")]

    def trouble(name: str, _: object) -> None:
        if name == "settle_and_claim" and errors and (error := errors.pop(0)) is not None:
            raise error

    heard: Heard = []
    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, trouble).contract)
    coordinator.hooks.on_error.append(lambda job, error: heard.append((job, error)))
    for _ in range(4):
        rig.insert()
        coordinator.tick()
        rig.clock.advance(seconds=10)
        rig.finish_all()

    assert [(job, error.type) for job, error in heard] == [
        (None, "StoreUnavailable"),
        (None, "RuntimeError"),
    ]


def test_a_listener_that_fails_does_not_stop_the_worker(app: Forebay) -> None:
    is_reported = Event()

    @app.on_error
    def fail(job: Job | None, error: AttemptError) -> None:
        is_reported.set()
        raise OSError("the pager is out of order")

    bad = app.task(name="bad", retries=0)(lambda: 1 / 0)
    good = app.task(name="good")(lambda: 7)
    with app.run_worker(threads=1):
        bad.enqueue().wait(timeout=DEADLINE)
        assert is_reported.wait(DEADLINE)
        assert good.enqueue().result(timeout=DEADLINE) == 7
