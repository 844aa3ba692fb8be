"""A worker asleep, on every engine: what comes to the store wakes it up."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from forebay import Forebay
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.engine import Engine
from forebay.stores.postgres import wakeups
from forebay.worker import coordinator, idle_polling
from forebay.worker.worker import Worker
from tests.worker.support import DEADLINE

NEVER = 10_000.0


class Watched:
    """An engine of a test: another client may do something right after a look at the store, before its worker
    knows what came of it, and wait until a hint about it has come."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.after_look: Callable[[], object] | None = None
        self.notified = Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def store(self) -> Any:
        return WatchedStore(self._engine.store(), self)

    def wakeups(self) -> Any:
        return WatchedWakeups(self._engine.wakeups(), self.notified)


class WatchedStore:
    def __init__(self, store: Any, engine: Watched) -> None:
        self._store = store
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def settle_and_claim(self, *args: Any, **kwargs: Any) -> SettleAndClaimResult:
        answer: SettleAndClaimResult = self._store.settle_and_claim(*args, **kwargs)
        act, self._engine.after_look = self._engine.after_look, None
        if act is not None:
            assert not answer.jobs
            self._engine.notified.clear()
            act()
            assert self._engine.notified.wait(DEADLINE)
        return answer


class WatchedWakeups:
    def __init__(self, wakeups: Any, notified: Event) -> None:
        self._wakeups = wakeups
        self._notified = notified

    def start(self, notify: Callable[[], None]) -> None:
        def heard() -> None:
            notify()
            self._notified.set()

        self._wakeups.start(heard)

    def close(self) -> None:
        self._wakeups.close()


@pytest.mark.shows("R-STORE-30", "R-WORK-22")
def test_a_job_that_comes_between_the_last_look_and_the_sleep_does_not_wait_for_the_poll(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "POLL_SECONDS", NEVER)
    monkeypatch.setattr(coordinator, "MAINTENANCE_SECONDS", NEVER)
    # No word stands for one that comes right after it, and no worker polls again because of that.
    monkeypatch.setattr(wakeups, "NOTIFY_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(idle_polling, "LENGTH_SECONDS", 0.0)
    ran = [Event(), Event()]
    task = app.task(name="note")(lambda number: ran[number].set())
    engine = Watched(app.engine)
    worker = Worker(engine, app.registry)
    worker.start()
    try:
        # The hint about this job is the reason for the look; after it the worker would sleep for hours.
        task.enqueue(0)
        assert ran[0].wait(DEADLINE)
        engine.after_look = lambda: task.enqueue(1)
        worker.resume()  # a reason to look

        assert ran[1].wait(DEADLINE)
    finally:
        worker.stop()
