"""The circuit breaker, on a clock that stands still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.domain.job import Job, JobId
from forebay.errors import StoreBusy, StoreUnavailable
from forebay.service.runtime import claim_waiters, maintenance_loop
from forebay.service.runtime.circuit_breaker import FAILURES, PAUSE_SECONDS, StoreBreaker
from forebay.service.runtime.store_pool import StorePool
from forebay.stores.factory import open_engine
from forebay.stores.memory.reader import MemoryReader
from forebay.stores.memory.store import MemoryStore
from forebay.testing.manual_clock import ManualClock
from tests.service.live_server import serving
from tests.worker.support import eventually


class Calls:
    """A store that is away or there, and how often it was asked."""

    def __init__(self) -> None:
        self.is_away = True
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return "there"


def test_a_store_that_is_busy_for_one_call_answers_and_stops_no_other() -> None:
    breaker = StoreBreaker(ManualClock())

    def busy() -> str:
        raise StoreBusy("another transaction holds this key")

    for _ in range(2 * FAILURES):
        with pytest.raises(StoreBusy):
            breaker(busy)

    assert breaker(lambda: "there") == "there"


@pytest.mark.shows("R-RATE-14", "R-CFG-61")
def test_a_store_that_is_away_is_tried_once_a_second_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls = ManualClock(), Calls()
    breaker = StoreBreaker(clock)

    def refused(times: int) -> int:
        """How many of so many calls in vain got through to the store."""
        before = calls.count
        for _ in range(times):
            with pytest.raises(StoreUnavailable):
                breaker(calls)
        return calls.count - before

    assert refused(FAILURES + 3) == FAILURES
    clock.advance(seconds=PAUSE_SECONDS)
    assert refused(3) == 1
    clock.advance(seconds=PAUSE_SECONDS)
    calls.is_away = False
    assert [breaker(calls), breaker(calls)] == ["there", "there"]
    calls.is_away = True
    assert refused(FAILURES + 3) == FAILURES  # it counts from the start again
    assert (FAILURES, PAUSE_SECONDS) == (5, 1.0)
    # Once for each outage, however many calls it costs.
    assert [record.levelname for record in caplog.records] == ["CRITICAL", "WARNING", "CRITICAL"]


@pytest.mark.shows("R-EDGE-55", "R-STORE-32", "R-HTTP-26")
def test_a_store_that_goes_away_is_noticed_before_the_next_request_and_takes_nothing_half(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(claim_waiters, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(maintenance_loop, "TICK_SECONDS", 0.01)
    with serving(open_engine("memory://")) as served:
        queue = served.queue()
        with monkeypatch.context() as patch:
            for handle, name in (
                (MemoryStore, "insert"),
                (MemoryStore, "acquire_maintenance"),
                (MemoryReader, "now"),
            ):
                patch.setattr(handle, name, away)
            eventually(lambda: "not answered 5 times in a row" in caplog.text)
            unready = served.ask("GET", "/health/ready")
            refused = [served.post("/v1/jobs", {"task": "t", "queue": queue}) for _ in range(2)]
        eventually(lambda: served.ask("GET", "/health/ready").status_code == 200)
        stored = served.done("POST", "/v1/jobs/search", {"where": {"queues": [queue]}})

    for answer in (unready, *refused):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["code"] == "store_unavailable"
    assert stored["jobs"] == []


def test_other_errors_say_nothing_about_the_store() -> None:
    breaker = StoreBreaker(ManualClock())

    for _ in range(2 * FAILURES):
        with pytest.raises(ZeroDivisionError):
            breaker(lambda: 1 / 0)


def test_who_waits_for_a_job_asks_by_way_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def away(*_: Any, **__: Any) -> list[Job | None]:
        calls.append(1)
        raise StoreUnavailable("away")

    async def run() -> None:
        pool = StorePool(open_engine("memory://"), ManualClock())
        try:
            for _ in range(FAILURES + 3):
                with pytest.raises(StoreUnavailable):
                    await pool.poll_jobs([JobId("j")])
        finally:
            await pool.close()

    monkeypatch.setattr(MemoryReader, "jobs", away)
    asyncio.run(run())

    assert len(calls) == FAILURES


def test_what_looks_and_writes_in_turns_asks_by_way_of_it_too() -> None:
    calls = Calls()

    async def run() -> None:
        pool = StorePool(open_engine("memory://"), ManualClock())
        try:
            for _ in range(FAILURES + 3):
                with pytest.raises(StoreUnavailable):
                    await pool.use(lambda client: client.write(lambda _: calls()))
        finally:
            await pool.close()

    asyncio.run(run())

    assert calls.count == FAILURES
