"""What a worker says about itself once a minute, and how much of a core it takes."""

from __future__ import annotations

import logging

import pytest

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.testing.manual_clock import ManualClock
from forebay.worker.health_log import HealthLog
from forebay.worker.process_usage import CpuLoad, cpu_seconds

INFO = WorkerInfo(
    id=WorkerId("w1"), state=WorkerState.WORKING, completed=7, failed=1, memory=50 * 2**20, cpu=0.25
)


class CountingStore:
    """A store that takes its time."""

    def __init__(self, clock: ManualClock, depths: dict[QueueName, int] | None) -> None:
        self._clock = clock
        self._depths = depths
        self.times = 0

    def depths(self) -> dict[QueueName, int] | None:
        self.times += 1
        self._clock.advance(3)
        return self._depths


@pytest.mark.shows("R-WORK-45")
def test_once_a_minute_a_worker_says_how_it_is(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "forebay.worker")
    store = CountingStore(clock, {QueueName("mail"): 4})
    health = HealthLog(clock, lambda: INFO, store.depths)

    health.log_if_due()
    clock.advance(seconds=60)
    health.log_if_due()
    health.log_if_due()

    assert caplog.messages == [
        "worker w1 is working: up 60 s, 7 completed, 1 failed, 50 MB, 0.25 of a core; pending {'mail': 4}; "
        "the store answers in 3.0 ms"
    ]
    assert caplog.records[0].__dict__["depths"] == {"mail": 4}
    assert caplog.records[0].__dict__["store_ms"] == 3.0


def test_a_store_that_does_not_answer_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "forebay.worker")
    health = HealthLog(clock, lambda: INFO, CountingStore(clock, None).depths)
    clock.advance(seconds=61)

    health.log_if_due()

    assert "pending unknown" in caplog.text


def test_whatever_a_store_does_the_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "forebay.worker")

    def broken() -> dict[QueueName, int] | None:
        raise RuntimeError("odd")

    health = HealthLog(clock, lambda: INFO, broken)
    clock.advance(seconds=61)

    health.log_if_due()

    assert "pending jobs cannot be counted now: odd" in caplog.text
    assert "pending unknown" in caplog.text


def test_the_store_is_not_asked_when_no_observer_listens(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.WARNING, "forebay.worker")
    store = CountingStore(clock, None)
    health = HealthLog(clock, lambda: INFO, store.depths)
    clock.advance(seconds=61)

    health.log_if_due()

    assert store.times == 0


@pytest.mark.shows("R-WORK-47")
def test_a_process_knows_how_much_of_a_core_it_takes() -> None:
    clock = ManualClock()
    load = CpuLoad(clock)
    assert load.sample() is None

    before = cpu_seconds()
    while cpu_seconds() < before + 0.01:
        pass
    clock.advance(seconds=2)

    first = load.sample()
    assert first is not None
    assert first > 0
    assert load.sample() == first  # a second has not passed since
