"""What the alert evaluator has under way ends with its runner."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from forebay.maintenance.alert_evaluator import AlertEvaluator
from forebay.operations.maintenance_task import close_tasks
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock

DEADLINE = 60.0


class Held(MemoryEngine):
    """Holds each thread that opens a store until it may go on; knows what is open and which thread has opened
    it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.thread = threading.current_thread()
        self.opened: list[str] = []
        self.closed: list[str] = []

    def store(self) -> Any:
        self.thread = threading.current_thread()
        self.began.set()
        assert self.goes_on.wait(DEADLINE)
        return self._counted("store", super().store())

    def reader(self) -> Any:
        return self._counted("reader", super().reader())

    def _counted(self, name: str, handle: Any) -> Any:
        self.opened.append(name)
        handle.close = lambda: self.closed.append(name)
        return handle


def test_a_stop_waits_for_a_look(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.maintenance.alert_evaluator.CLOSE_SECONDS", DEADLINE)
    engine = Held(clock)
    task = AlertEvaluator(engine, clock)
    task.run(MemoryEngine(clock=clock).store())
    assert engine.began.wait(DEADLINE)
    threading.Timer(0.05, engine.goes_on.set).start()

    close_tasks([task])

    assert not engine.thread.is_alive()
    assert sorted(engine.closed) == sorted(engine.opened) != []


def test_a_look_that_hangs_holds_no_stop_up_and_opens_nothing_more_then(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.maintenance.alert_evaluator.CLOSE_SECONDS", 0.01)
    engine = Held(clock)
    task = AlertEvaluator(engine, clock)
    task.run(MemoryEngine(clock=clock).store())
    assert engine.began.wait(DEADLINE)

    close_tasks([task, task])
    engine.goes_on.set()
    engine.thread.join(DEADLINE)

    assert (engine.opened, engine.closed) == (["store"], ["store"])
    clock.advance(seconds=60)
    assert not task.is_ready
    task.run(MemoryEngine(clock=clock).store())
    close_tasks([task])
    assert engine.opened == ["store"]


def test_a_maintenance_task_that_cannot_be_closed_leaves_the_others_to_be_closed(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MemoryEngine(clock=clock)
    bad, good = AlertEvaluator(memory, clock), AlertEvaluator(memory, clock)
    monkeypatch.setattr(bad, "close", lambda: 1 // 0)

    close_tasks([bad, good])

    clock.advance(seconds=60)
    assert not good.is_ready
    assert "maintenance task 'alert' could not be closed" in caplog.text
