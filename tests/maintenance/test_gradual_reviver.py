"""The maintenance task that goes on with gradual revives."""

from __future__ import annotations

from typing import Any, cast

import pytest

from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnavailable
from forebay.maintenance.gradual_reviver import GradualReviver
from forebay.operations.gradual_revive import start_gradual_revive, stop_gradual_revive
from forebay.operations.maintenance_task import close_tasks
from forebay.stores.contract.reader import Reader
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import make


def test_where_no_gradual_revive_runs_the_reviver_waits_longer(clock: ManualClock) -> None:
    engine = MemoryEngine(clock=clock)
    store, task = engine.store(), GradualReviver(engine.reader, clock)

    def readiness_after(*seconds: int) -> list[bool]:
        answers = []
        for later in seconds:  # a consumer asks after each claim
            clock.advance(seconds=later)
            answers.append(task.is_ready)
        return answers

    assert readiness_after(0, 0) == [True, False]
    assert not task.run(store)
    assert readiness_after(9, 1) == [False, True]
    start_gradual_revive(store, engine.reader(), JobQuery())
    clock.advance(seconds=1)
    assert not task.run(store)
    assert readiness_after(1) == [True]


def test_what_goes_wrong_costs_a_line_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> Reader:
        raise StoreUnavailable("gone")

    assert not GradualReviver(away, clock).run(MemoryEngine(clock=clock).store())

    assert "gradual revives go on at a later run: gone" in caplog.text


class Opened:
    """Readers, and which of them are still open."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine
        self.count = self.open = 0

    def __call__(self) -> Reader:
        reader: Any = self.engine.reader()
        self.count += 1
        self.open += 1
        reader.close = self._closed
        return cast(Reader, reader)

    def _closed(self) -> None:
        self.open -= 1


def test_the_reader_is_held_while_a_gradual_revive_is_running(clock: ManualClock) -> None:
    engine = MemoryEngine(clock=clock)
    store, opened = engine.store(), Opened(engine)
    task = GradualReviver(opened, clock)
    make(store, JobState.DEAD)
    clock.advance(seconds=1)
    revive = start_gradual_revive(store, engine.reader(), JobQuery())
    clock.advance(seconds=1)

    for _ in range(3):  # the job is put back, and no worker runs it
        assert task.is_ready
        task.run(store)
        clock.advance(seconds=2)
    assert (opened.count, opened.open) == (1, 1)

    clock.advance(seconds=10)  # others had all turns
    assert task.is_ready
    assert opened.open == 0

    task.run(store)
    assert (opened.count, opened.open) == (2, 1)
    close_tasks([task])
    close_tasks([task])
    assert opened.open == 0

    task.run(store)
    stop_gradual_revive(store, engine.reader(), revive.name)
    task.run(store)
    assert (opened.count, opened.open) == (3, 0)
