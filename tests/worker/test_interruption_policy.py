"""What makes running jobs stop: time, cancel requests, and the end of the worker."""

from __future__ import annotations

import logging

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Cancelled, Completed, Interrupted
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from forebay.worker.task_invoker import JobInterrupted, JobTimeout
from tests.app.watched_store import Watched
from tests.stores.support import WORKER
from tests.worker.rig import Rig


def running(rig: Rig, coordinator: Coordinator) -> Assignment:
    """The one job, started by a turn."""
    coordinator.tick()
    [one] = rig.threads.begin()
    return one


# ------------------------------------------------------------------ time


@pytest.mark.shows("R-WORK-18", "R-EDGE-59")
def test_a_job_is_interrupted_when_its_time_is_over_and_not_before(rig: Rig) -> None:
    rig.insert(timeout_ms=2_000)
    coordinator = rig.coordinator()
    one = running(rig, coordinator)

    rig.clock.advance(seconds=1.9)
    coordinator.tick()
    assert rig.threads.interrupts == []
    rig.clock.advance(seconds=0.1)
    coordinator.tick()

    [(stopped, reason)] = rig.threads.interrupts
    assert stopped is one
    assert isinstance(reason, JobTimeout)
    assert str(reason) == "ran longer than 2 s"


def test_a_turn_sleeps_no_longer_than_until_the_next_timeout(rig: Rig) -> None:
    rig.insert(timeout_ms=300)
    coordinator = rig.coordinator()
    running(rig, coordinator)

    assert coordinator.tick() == pytest.approx(0.3)


def test_a_job_that_may_start_during_the_sleep_is_looked_at_in_time(rig: Rig) -> None:
    rig.insert(timeout_ms=100)

    assert rig.coordinator().tick() == pytest.approx(0.1)


def test_a_job_without_a_limit_is_never_interrupted(rig: Rig) -> None:
    rig.insert(timeout_ms=None)
    coordinator = rig.coordinator()
    running(rig, coordinator)

    rig.clock.advance(seconds=100_000)
    coordinator.tick()

    assert rig.threads.interrupts == []


def test_an_interrupt_that_was_heard_is_not_repeated(rig: Rig) -> None:
    rig.insert(timeout_ms=1_000)
    coordinator = rig.coordinator()
    running(rig, coordinator)

    for _ in range(10):
        rig.clock.advance(seconds=1)
        coordinator.tick()

    assert len(rig.threads.interrupts) == 1


def test_an_interrupt_that_was_not_heard_is_repeated_each_second_and_not_in_a_busy_loop(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    running(rig, coordinator)
    rig.threads.listens = False
    rig.store.cancel([job], "no need")

    pauses = []
    for _ in range(8):
        pauses.append(coordinator.tick())
        rig.clock.advance(seconds=0.5)

    assert len(rig.threads.interrupts) == 4
    assert min(pauses) > 0


@pytest.mark.shows("R-WORK-19")
def test_a_cancelled_job_that_does_not_stop_is_reported_once_and_keeps_its_slot(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    ids = rig.insert(2, timeout_ms=None)
    coordinator = rig.coordinator(threads=1)
    one = running(rig, coordinator)
    rig.store.cancel([one.job.id], "no need")

    with caplog.at_level(logging.ERROR):
        for _ in range(20):
            rig.clock.advance(seconds=1)
            coordinator.tick()

    assert len([line for line in caplog.messages if "still running" in line and one.job.id in line]) == 1
    assert rig.states(ids) == {"running": 1, "pending": 1}


def test_an_isolated_job_is_never_reported_as_stuck_because_its_executor_kills_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.threads.kind = ExecutorKind.ISOLATED
    rig.insert(timeout_ms=1_000)
    coordinator = rig.coordinator()
    one = running(rig, coordinator)

    for _ in range(20):
        rig.clock.advance(seconds=1)
        coordinator.tick()

    assert not one.is_stuck
    assert "still running" not in caplog.text


# ------------------------------------------------------------------ cancel


def test_a_running_job_that_is_cancelled_is_told_and_interrupted(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    one = running(rig, coordinator)
    rig.store.cancel([job], "no need")

    coordinator.tick()

    assert one.context.cancel_reason == "no need"
    [(stopped, reason)] = rig.threads.interrupts
    assert stopped is one
    assert isinstance(reason, JobInterrupted)
    rig.threads.finish(one, Cancelled("no need"))
    coordinator.tick()
    assert (rig.job(job).state, rig.job(job).reason) == (JobState.CANCELLED, "no need")


def test_a_cancel_reaches_a_worker_whose_slots_are_all_taken_within_a_second(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator(threads=1)
    one = running(rig, coordinator)
    rig.store.cancel([job], "no need")

    rig.clock.advance(seconds=1)
    coordinator.tick()

    assert one.context.is_cancelled


def test_a_worker_whose_slots_are_all_taken_asks_at_most_once_a_second(rig: Rig) -> None:
    rig.insert()
    watched = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    running(rig, coordinator)

    for _ in range(30):
        rig.clock.advance(seconds=0.1)
        coordinator.tick()

    assert len(watched.calls) <= 4


def test_a_request_from_the_renewal_is_heeded_in_the_next_turn(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator(threads=1)
    one = running(rig, coordinator)
    rig.store.cancel([job], "no need")
    rig.inbox.add_cancels(rig.store.renew(WORKER, [one.lease]).cancels)

    coordinator.tick()

    assert one.context.cancel_reason == "no need"


def test_a_job_is_told_once_that_it_is_cancelled(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    running(rig, coordinator)
    rig.store.cancel([job], "no need")

    for _ in range(5):
        coordinator.tick()

    assert len(rig.threads.interrupts) == 1


def test_a_claimed_job_that_is_cancelled_before_it_starts_never_starts(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    rig.store.cancel([job], "no need")

    coordinator.tick()
    assert rig.threads.begin() == []
    coordinator.tick()

    assert (rig.job(job).state, rig.job(job).reason) == (JobState.CANCELLED, "no need")
    assert coordinator.is_idle


def test_a_claimed_job_that_is_cancelled_before_it_starts_gives_its_tokens_back(rig: Rig) -> None:
    rig.store.save_limit(Limit(scope=GLOBAL, rate=1, burst=2))
    [job] = rig.insert(cost=2)
    coordinator = rig.coordinator()
    coordinator.tick()
    rig.store.cancel([job], "no need")
    coordinator.tick()
    coordinator.tick()
    others = rig.insert(2)

    coordinator.tick()

    assert rig.job(job).state is JobState.CANCELLED
    assert {rig.job(other).state for other in others} == {JobState.RUNNING}


def test_a_job_that_completes_although_it_was_cancelled_is_completed(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    one = running(rig, coordinator)
    rig.store.cancel([job])
    coordinator.tick()

    rig.threads.finish(one, Completed(b"7"))
    coordinator.tick()

    assert rig.job(job).result == b"7"


# ------------------------------------------------------------------ the end of the worker


def test_at_the_end_everything_that_runs_is_interrupted_also_what_did_not_listen_before(rig: Rig) -> None:
    rig.insert(1, timeout_ms=1_000)
    rig.insert(1, timeout_ms=None)
    coordinator = rig.coordinator(threads=2)
    coordinator.tick()
    begun = rig.threads.begin()
    rig.clock.advance(seconds=1)
    coordinator.tick()

    coordinator.interrupt_all()

    assert [one for one, _ in rig.threads.interrupts] == [begun[0], *begun]


@pytest.mark.shows("R-WORK-36")
def test_what_was_interrupted_at_the_end_goes_back_without_a_failure(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    one = running(rig, coordinator)
    coordinator.is_claiming = False
    coordinator.interrupt_all()

    rig.threads.finish(one, Interrupted())
    coordinator.tick()

    assert (rig.job(job).state, rig.job(job).failures) == (JobState.PENDING, 0)
    assert coordinator.is_idle
