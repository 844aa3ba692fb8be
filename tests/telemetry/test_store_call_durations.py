from __future__ import annotations

import logging

import pytest

from forebay.telemetry.store_call_durations import log_durations
from forebay.testing.manual_clock import ManualClock


class Slow:
    """Something whose calls take time."""

    name = "slow"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def answer(self, value: int) -> int:
        self._clock.advance(20)
        return value

    def fail(self) -> None:
        self._clock.advance(5)
        raise ValueError("no")


@pytest.mark.shows("R-CLI-18")
def test_calls_of_a_store_tell_how_long_they_took(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.DEBUG, "forebay.stores")
    slow = log_durations(Slow(clock), clock)

    assert (slow.name, slow.answer(3)) == ("slow", 3)
    with pytest.raises(ValueError, match="no"):
        slow.fail()

    assert caplog.messages == ["answer took 20.000 ms", "fail failed after 5.000 ms"]
    assert [record.__dict__["took_ms"] for record in caplog.records] == [20.0, 5.0]


def test_nothing_stands_before_a_store_without_observers() -> None:
    clock = ManualClock()
    slow = Slow(clock)

    assert log_durations(slow, clock) is slow
