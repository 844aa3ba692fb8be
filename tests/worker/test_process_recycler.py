"""When a worker process has done enough."""

from __future__ import annotations

from math import inf, nan

import pytest

from forebay.errors import ConfigError
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.process_recycler import ProcessLimits, Recycler, Retirement, ThreadHealth
from forebay.worker.slots import Slots
from tests.domain.sample_jobs import a_job


def recycling(clock: ManualClock, slots: Slots, memory: int = 0, **limits: float) -> Recycler:
    return Recycler(ProcessLimits(**limits), slots, clock, lambda: memory, ThreadHealth(slots, 2))  # type: ignore[arg-type]  # all are numbers


def test_without_limits_a_process_goes_on_for_ever() -> None:
    clock, slots = ManualClock(), Slots(1)
    slots.completed = 10**9
    chosen = recycling(clock, slots, memory=2**40)

    clock.advance(10**9)

    assert chosen.due() is None


def test_jobs_count_whatever_became_of_them() -> None:
    slots = Slots(1)
    chosen = recycling(ManualClock(), slots, max_jobs=10)

    slots.completed, slots.failed = 6, 3
    assert chosen.due() is None
    slots.failed = 4

    assert chosen.due() == Retirement("it has run 10 jobs", inf)


def test_memory_is_looked_at_once_a_second() -> None:
    clock = ManualClock()
    used = [0]
    chosen = Recycler(ProcessLimits(max_memory=100), Slots(1), clock, lambda: used[0] * 2**20)
    assert chosen.due() is None

    used[0] = 150
    assert chosen.due() is None
    clock.advance(1_000)

    assert chosen.due() == Retirement("it uses 150 MB of memory", inf)


def test_age_counts_from_the_start() -> None:
    clock = ManualClock()
    chosen = recycling(clock, Slots(1), max_age=60)
    assert chosen.due() is None

    clock.advance(60_000)

    assert chosen.due() == Retirement("it has run for 60 s", inf)


def test_a_process_with_nothing_but_stuck_threads_has_limited_time_to_end() -> None:
    clock, slots = ManualClock(), Slots(2, 1)
    stuck = [Assignment(a_job(id=name), 0.0) for name in ("one", "other")]
    coroutine = Assignment(a_job(id="coroutine"), 0.0, kind=ExecutorKind.COROUTINES)
    slots.add([*stuck, coroutine])
    chosen = recycling(clock, slots)

    stuck[0].is_stuck = coroutine.is_stuck = True
    assert chosen.due() is None
    stuck[1].is_stuck = True
    clock.advance(1_000)

    assert chosen.due() == Retirement("each of its threads runs a job that does not stop", 25.0)


def abandoned(slots: Slots, count: int) -> list[Assignment]:
    """Attempts that were given up, with threads that others have replaced."""
    given_up = [Assignment(a_job(id=f"abandoned {number}"), 0.0) for number in range(count)]
    slots.add(given_up)
    for one in given_up:
        slots.abandon(one, 0.0)
        slots.end(one)
        slots.vacate(one)
    return given_up


@pytest.mark.shows("R-SWEEP-16")
def test_a_process_with_more_abandoned_threads_than_it_may_have_lets_its_other_jobs_end() -> None:
    clock, slots = ManualClock(), Slots(4)
    chosen = recycling(clock, slots)
    abandoned(slots, 2)
    assert chosen.due() is None

    [third] = abandoned(slots, 1)
    clock.advance(1_000)

    assert chosen.due() == Retirement("it has 3 abandoned threads", inf)
    third.ended_at = 1.0
    assert ThreadHealth(slots, 2).reason() is None


def test_a_process_whose_event_loop_is_blocked_and_not_replaced_is_worn() -> None:
    slots = Slots(4, 10)
    blocked = Assignment(a_job(), 0.0, kind=ExecutorKind.COROUTINES)
    slots.add([blocked])
    slots.abandon(blocked, 0.0)
    slots.end(blocked)
    wear = ThreadHealth(slots)
    assert wear.reason() is None

    slots.occupy(blocked)

    assert wear.reason() == Retirement("its event loop is blocked by a task beyond its time limit", inf)


def test_a_process_that_nothing_would_replace_goes_on_with_the_slots_it_has() -> None:
    clock, slots = ManualClock(), Slots(4)
    chosen = Recycler(ProcessLimits(), slots, clock, lambda: 0)
    abandoned(slots, 100)

    assert chosen.due() is None


def test_fewer_than_no_abandoned_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_abandoned must be a number from 0 on, not -1"):
        ThreadHealth(Slots(1), -1)


@pytest.mark.parametrize("name", ["max_jobs", "max_memory", "max_age"])
@pytest.mark.parametrize("value", [0, -1, nan, inf])
def test_limits_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a number above 0"):
        ProcessLimits(**{name: value})  # type: ignore[arg-type]  # as a program without types would
