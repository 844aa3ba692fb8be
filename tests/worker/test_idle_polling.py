"""Looking again for a little while, where one hint stands for several jobs."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from forebay.worker.idle_polling import LENGTH_SECONDS, IdlePolling
from tests.worker.rig import Rig

LOOKS = pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.019])


def test_looks_come_after_1_2_4_ms_and_end_after_50() -> None:
    polling = IdlePolling(is_needed=True)
    assert polling.next_pause() == inf

    polling.begin()
    pauses = [polling.next_pause() for _ in range(7)]

    assert pauses[:6] == LOOKS
    assert sum(pauses[:6]) == pytest.approx(LENGTH_SECONDS)
    assert pauses[6] == inf


def test_where_every_commit_is_told_no_worker_polls_again() -> None:
    polling = IdlePolling(is_needed=False)

    polling.begin()

    assert polling.next_pause() == inf


def pauses(rig: Rig, turn: Callable[[], float]) -> list[float]:
    """How long a coordinator rests after each of its next turns."""
    found = []
    for _ in range(8):
        found.append(turn())
        rig.clock.advance(seconds=found[-1] + 0.001)
    return found


@pytest.mark.shows("R-WORK-22")
def test_a_worker_that_runs_out_of_work_looks_again_before_it_sleeps(rig: Rig) -> None:
    coordinator = rig.coordinator(polls_when_idle=True)
    rig.insert()
    coordinator.tick()
    rig.finish_all()

    found = pauses(rig, coordinator.tick)

    assert found[:6] == LOOKS
    assert found[6] > 0.5


def test_a_worker_that_was_woken_and_found_nothing_looks_again(rig: Rig) -> None:
    coordinator = rig.coordinator(polls_when_idle=True)
    assert coordinator.tick() > 0.5

    rig.inbox.wake()

    assert pauses(rig, coordinator.tick)[:6] == LOOKS


def test_a_job_that_came_after_the_hint_is_found_by_the_next_look(rig: Rig) -> None:
    coordinator = rig.coordinator(polls_when_idle=True)
    rig.inbox.wake()
    coordinator.tick()
    rig.insert()

    rig.clock.advance(seconds=0.001)
    coordinator.tick()

    assert len(rig.threads.given) == 1


def test_a_worker_without_a_free_slot_does_not_look_again(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1, polls_when_idle=True)
    rig.insert()

    coordinator.tick()
    rig.threads.begin()

    assert coordinator.tick() > 0.5
