"""What a coordinator does when there is nothing to do, and what must not keep it from its work."""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import pytest

from forebay.errors import StoreUnavailable
from forebay.stores.contract.store import Store
from forebay.worker.coordinator_inbox import LONGEST_SLEEP_SECONDS
from tests.worker.rig import Rig


class CountedTask:
    """A maintenance task of the test's own, which counts its runs and may go wrong."""

    is_ready = True

    def __init__(
        self, name: str, error: Exception | None = None, *, is_endless: bool = False, every_ms: int = 0
    ) -> None:
        self.name = name
        self.every_ms = every_ms
        self.error = error
        self.is_endless = is_endless
        self.runs = 0

    def run(self, store: Store) -> bool:
        self.runs += 1
        if self.error is not None:
            raise self.error
        return self.is_endless


# ------------------------------------------------------------------ sleep


@pytest.mark.shows("R-WORK-22")
def test_an_idle_worker_looks_by_itself_after_a_time_that_chance_varies(rig: Rig) -> None:
    coordinator = rig.coordinator(roll=random.Random(7).random)
    pauses = []
    for _ in range(50):
        pauses.append(coordinator.tick())
        rig.clock.advance(seconds=pauses[-1] + 0.001)  # the clock counts whole milliseconds

    # No wake-up was sent, and after each of these sleeps the queue was asked again.
    assert 0.0 < min(pauses) < max(pauses) <= LONGEST_SLEEP_SECONDS
    assert len(set(pauses)) > 40


@pytest.mark.shows("R-WORK-22")
def test_a_job_whose_wake_up_got_lost_is_found_by_the_next_look(rig: Rig) -> None:
    coordinator = rig.coordinator(roll=lambda: 0.0)
    pause = coordinator.tick()
    rig.insert()

    rig.clock.advance(seconds=pause)
    coordinator.tick()

    assert len(rig.threads.given) == 1


@pytest.mark.shows("R-WORK-22")
def test_workers_that_were_started_together_do_their_maintenance_tasks_at_different_times(rig: Rig) -> None:
    dice = random.Random(7)
    pauses = [rig.coordinator(tasks=[CountedTask("one")], roll=dice.random).tick() for _ in range(20)]

    assert 1.0 <= min(pauses) < max(pauses) <= 1.25
    assert len(set(pauses)) > 15


@pytest.mark.shows("R-SCHED-02")
def test_a_job_delayed_by_five_seconds_is_run_after_five_seconds_and_not_before(rig: Rig) -> None:
    rig.insert(delay_ms=5_000)
    coordinator = rig.coordinator()
    coordinator.tick()

    rig.clock.advance(ms=4_999)
    pause = coordinator.tick()
    before = len(rig.threads.given)
    rig.clock.advance(ms=1)
    coordinator.tick()

    assert (before, len(rig.threads.given)) == (0, 1)
    assert pause == pytest.approx(0.001)


# ------------------------------------------------------------------ maintenance tasks


class CountingStore:
    """Counts for which maintenance tasks the store was asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        self.requests[name] += 1
        return self._store.acquire_maintenance(name, every_ms)


def test_the_store_is_asked_for_a_maintenance_task_no_more_often_than_it_can_be_due(rig: Rig) -> None:
    often, seldom = CountedTask("sweep", every_ms=1_000), CountedTask("prune", every_ms=10_000)
    store = CountingStore(rig.store)
    coordinator = rig.coordinator(tasks=[often, seldom], store=store)

    for _ in range(200):
        coordinator.tick()
        rig.clock.advance(ms=100)

    assert store.requests == {"sweep": often.runs, "prune": seldom.runs}  # never in vain
    assert (often.runs, seldom.runs) == (20, 2)


# ------------------------------------------------------------------ maintenance tasks that go wrong


@pytest.mark.shows("R-HIST-20", "R-WORK-16")
def test_a_maintenance_task_that_always_goes_wrong_keeps_no_job_from_running(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = CountedTask("prune", ZeroDivisionError("a bug")), CountedTask("sweep")
    coordinator = rig.coordinator(tasks=[broken, sound])
    ids = rig.insert(20)

    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            coordinator.tick()
            rig.finish_all()
            rig.clock.advance(seconds=0.5)

    assert rig.states(ids) == {"completed": 20}
    assert broken.runs == sound.runs > 5
    assert "maintenance task 'prune' has failed" in caplog.text


@pytest.mark.shows("R-HIST-20")
def test_a_maintenance_task_for_which_the_store_has_no_room_keeps_no_job_from_running(rig: Rig) -> None:
    full = CountedTask("prune", StoreUnavailable("no room left"))
    coordinator = rig.coordinator(tasks=[full])
    ids = rig.insert(20)

    for _ in range(80):
        rig.clock.advance(seconds=coordinator.tick())
        rig.finish_all()

    assert rig.states(ids) == {"completed": 20}
    assert full.runs > 1


@pytest.mark.shows("R-HIST-20")
def test_a_maintenance_task_that_never_comes_to_an_end_takes_turns_with_the_claims(rig: Rig) -> None:
    endless = CountedTask("prune", is_endless=True)
    coordinator = rig.coordinator(tasks=[endless])
    ids = rig.insert(20)
    longest = 0

    for _ in range(11):
        runs = endless.runs
        coordinator.tick()
        longest = max(longest, endless.runs - runs)
        rig.finish_all()
        rig.clock.advance(seconds=0.125)

    assert rig.states(ids) == {"completed": 20}
    assert 0 < longest <= 10


# ------------------------------------------------------------------ time limits


@pytest.mark.shows("R-CFG-48")
def test_a_job_that_says_nothing_about_it_is_stopped_after_half_an_hour(rig: Rig) -> None:
    rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    rig.threads.begin()

    rig.clock.advance(seconds=1_799)
    coordinator.tick()
    before = len(rig.threads.interrupts)
    rig.clock.advance(seconds=1)
    coordinator.tick()

    assert (before, len(rig.threads.interrupts)) == (0, 1)
