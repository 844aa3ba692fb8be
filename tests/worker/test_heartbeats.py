"""A worker's heartbeats: they survive an outage, say when they fail, and end with the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS, WorkerInfo, WorkerState
from forebay.errors import StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.testing.manual_clock import ManualClock
from forebay.worker.lease_renewal import JOIN_SECONDS, LeaseRenewal
from forebay.worker.slots import Slots
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.stores.support import WORKER
from tests.worker.support import DEADLINE, eventually, no_thread_stays

HEARTBEAT_SECONDS = DEFAULT_HEARTBEAT_MS / 1_000


class Bench:
    """A renewal whose ticks the test plays itself, on a store that may be away."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.is_away = False
        self.before: Callable[[], object] = lambda: None
        self.heartbeats = 0
        self.info = WorkerInfo(id=WORKER)
        self.renewal = LeaseRenewal(
            engine=WatchedEngine(engine, self._hear).contract,
            worker=self.info,
            slots=Slots(1),
            clock=clock,
            on_cancels=lambda cancels: None,
            report=lambda: self.info,
        )

    def _hear(self, name: str, args: tuple[Any, ...]) -> None:
        self.before()
        if self.is_away:
            raise StoreUnavailable("away")
        self.heartbeats += name == "heartbeat"


@pytest.fixture
def bench(engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("forebay.worker.lease_renewal.TICK_SECONDS", 3_600.0)
    bench = Bench(engine, clock)
    with no_thread_stays():
        bench.renewal.start()
        yield bench
        bench.is_away = False
        bench.renewal.stop()


@pytest.mark.shows("R-WORK-40")
def test_a_heartbeat_that_fails_is_tried_again_and_two_missed_ones_are_said(
    bench: Bench, clock: ManualClock
) -> None:
    bench.is_away = True
    healthy = [bench.renewal.is_heartbeat_fresh]
    for _ in range(2):
        clock.advance(seconds=HEARTBEAT_SECONDS)
        with pytest.raises(StoreUnavailable):
            bench.renewal.renew_due()
        healthy.append(bench.renewal.is_heartbeat_fresh)
    failures = bench.renewal.renewals.failures

    bench.is_away = False
    bench.renewal.renew_due()  # at once: it does not wait for the next heartbeat

    assert healthy == [True, True, False]
    assert failures == 2
    assert bench.renewal.is_heartbeat_fresh
    assert bench.heartbeats == 2


def test_a_change_is_said_with_the_next_tick_and_nothing_else_is(
    bench: Bench, clock: ManualClock, reader: Reader
) -> None:
    bench.renewal.renew_due()
    assert bench.heartbeats == 1

    bench.info = WorkerInfo(id=WORKER, state=WorkerState.PAUSED)
    bench.renewal.request_heartbeat()
    bench.renewal.renew_due()
    bench.renewal.renew_due()

    assert bench.heartbeats == 2
    assert [one.state for one in reader.workers()] == [WorkerState.PAUSED]


def test_a_change_during_a_heartbeat_is_said_by_the_next_one(bench: Bench, reader: Reader) -> None:
    def changing() -> WorkerInfo:
        info, bench.info = bench.info, WorkerInfo(id=WORKER, state=WorkerState.PAUSED)
        if info.state is not WorkerState.PAUSED:
            bench.renewal.request_heartbeat()  # from another thread, while the old state is on its way
        return info

    bench.renewal._report = changing
    bench.renewal.request_heartbeat()
    bench.renewal.renew_due()
    bench.renewal.renew_due()

    assert [one.state for one in reader.workers()] == [WorkerState.PAUSED]


@pytest.mark.shows("R-WORK-40")
def test_the_heartbeat_thread_survives_an_outage(app: Forebay) -> None:
    is_away, heartbeats = Event(), list[str]()

    def hear(name: str, args: tuple[Any, ...]) -> None:
        if is_away.is_set():
            raise StoreUnavailable("away")
        if name == "heartbeat":
            heartbeats.append(name)

    worker = Worker(WatchedEngine(app.engine, hear).contract, app.registry)
    worker.start()
    try:
        is_away.set()
        worker._renewal.request_heartbeat()
        eventually(lambda: worker.renewals.failures >= 2)
        seen = len(heartbeats)
        is_away.clear()
        eventually(lambda: len(heartbeats) > seen)
        eventually(lambda: worker.renewals.failures == 0)
    finally:
        is_away.clear()
        worker.stop()


@pytest.mark.shows("R-WORK-41")
def test_stopping_does_not_wait_for_the_next_heartbeat_and_leaves_no_thread(bench: Bench) -> None:
    assert threads_of_the_renewal() == {"forebay-renewal", "forebay-renewal-watch"}

    bench.renewal.stop()  # its thread would sleep for an hour

    assert threads_of_the_renewal() == set()


@pytest.mark.shows("R-WORK-41")
def test_a_heartbeat_that_hangs_does_not_hold_up_the_stop_and_the_worker_leaves_when_it_ends(
    engine: Engine, clock: ManualClock, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.worker.lease_renewal.TICK_SECONDS", 0.01)
    monkeypatch.setattr("forebay.worker.lease_renewal.JOIN_SECONDS", 0.1)
    hangs, go_on = Event(), Event()
    bench = Bench(engine, clock)
    with no_thread_stays():
        bench.renewal.start()

        def hang() -> None:
            hangs.set()
            go_on.wait()

        bench.before = hang
        try:
            bench.renewal.request_heartbeat()
            assert hangs.wait(DEADLINE)
            bench.renewal.stop()  # comes back, though the heartbeat does not
            listed = [one.id for one in reader.workers()]
        finally:
            go_on.set()

    assert JOIN_SECONDS == 5.0
    assert listed == [WORKER]
    assert reader.workers() == []


def threads_of_the_renewal() -> set[str]:
    return {thread.name for thread in enumerate_threads() if thread.name.startswith("forebay-renewal")}


@pytest.mark.shows("R-WORK-43")
def test_a_worker_can_be_paused_by_the_job_that_finds_it_overloaded(app: Forebay) -> None:
    ran: list[str] = []

    @app.task(name="note")
    def note(word: str) -> None:
        ran.append(word)

    with app.run_worker(threads=1, queues=["heavy", "light"]) as worker:

        @app.task(name="measure")
        def measure(load: float) -> None:
            if load > 0.9:
                worker.pause("heavy")

        measure.using(queue="light").enqueue(1.0).wait(DEADLINE)
        later = note.using(queue="heavy").enqueue("heavy")
        # Each of these takes a turn in which the other job could have been claimed.
        for _ in range(3):
            note.using(queue="light").enqueue("light").wait(DEADLINE)
        assert (ran, later.refresh().state) == (["light"] * 3, JobState.PENDING)
        assert worker.status().info.paused == ("heavy",)

        worker.resume()
        later.wait(DEADLINE)

    assert ran == [*["light"] * 3, "heavy"]
