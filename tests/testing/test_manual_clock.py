"""A clock that moves only when it is told to."""

from __future__ import annotations

import doctest

import pytest

from forebay.clock import Clock
from forebay.errors import ConfigError
from forebay.testing import manual_clock as module
from forebay.testing.manual_clock import ManualClock


def test_it_starts_where_it_is_set_and_stands_still() -> None:
    clock: Clock = ManualClock(now_ms=1_000)

    assert [clock.now_ms(), clock.now_ms()] == [1_000, 1_000]
    assert [clock.monotonic(), clock.monotonic()] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("step", "passed_ms"),
    [
        ({"ms": 1}, 1),
        ({"seconds": 2}, 2_000),
        ({"seconds": 0.25}, 250),
        ({"ms": 5, "seconds": 1}, 1_005),
        ({"ms": 0}, 0),
        ({}, 0),
    ],
)
def test_advancing_moves_both_clocks(step: dict[str, int], passed_ms: int) -> None:
    clock = ManualClock(now_ms=1_000)

    clock.advance(**step)

    assert clock.now_ms() == 1_000 + passed_ms
    assert clock.monotonic() == passed_ms / 1_000


def test_many_small_steps_lose_nothing() -> None:
    clock = ManualClock()

    for _ in range(1_000):
        clock.advance(seconds=0.1)

    assert (clock.now_ms(), clock.monotonic()) == (100_000, 100.0)


@pytest.mark.parametrize("now_ms", [0, 500, 99_000])
def test_setting_moves_the_wall_clock_alone(now_ms: int) -> None:
    clock = ManualClock(now_ms=1_000)
    clock.advance(seconds=3)

    clock.set(now_ms)

    assert (clock.now_ms(), clock.monotonic()) == (now_ms, 3.0)


@pytest.mark.parametrize("step", [{"ms": -1}, {"seconds": -0.5}, {"ms": 100, "seconds": -1}])
def test_time_does_not_run_backwards(step: dict[str, int]) -> None:
    clock = ManualClock(now_ms=1_000)

    with pytest.raises(ConfigError, match="use set"):
        clock.advance(**step)

    assert (clock.now_ms(), clock.monotonic()) == (1_000, 0.0)


def test_its_example_is_true() -> None:
    result = doctest.testmod(module)

    assert (result.failed, result.attempted > 0) == (0, True)
