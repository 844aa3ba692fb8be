"""The duty that goes on with ramps."""

from __future__ import annotations

import pytest

from forebay.app.ramping import start_ramp
from forebay.domain.query import JobQuery
from forebay.errors import StoreUnavailable
from forebay.scheduler.ramping import Ramping
from forebay.stores.memory.store import MemoryEngine
from forebay.stores.protocol import Reader
from forebay.testing.clock import ManualClock


def test_where_no_ramp_runs_nobody_looks_again_so_soon(clock: ManualClock) -> None:
    engine = MemoryEngine(clock=clock)
    store, duty = engine.store(), Ramping(engine.reader, clock)

    def asked(*seconds: int) -> list[bool]:
        answers = []
        for later in seconds:  # a consumer asks after each claim
            clock.advance(seconds=later)
            answers.append(duty.is_ready)
        return answers

    assert asked(0, 0) == [True, False]
    assert not duty.run(store)
    assert asked(9, 1) == [False, True]
    start_ramp(store, engine.reader(), JobQuery())
    clock.advance(seconds=1)
    assert not duty.run(store)
    assert asked(1) == [True]


def test_what_goes_wrong_costs_a_line_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> Reader:
        raise StoreUnavailable("gone")

    assert not Ramping(away, clock).run(MemoryEngine(clock=clock).store())

    assert "ramps are left to a later turn: gone" in caplog.text
