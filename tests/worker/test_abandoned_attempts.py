"""Attempts that do not end at their time limits: they are settled, and what still runs is abandoned."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import LeaseLost, StoreUnavailable
from forebay.telemetry.observers import SettledAttempt
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from tests.app.watched_store import Watched
from tests.worker.rig import Rig


def running(rig: Rig, coordinator: Coordinator, most: int = 1) -> list[Assignment]:
    coordinator.tick()
    return rig.threads.begin(most)


def overrun(rig: Rig, coordinator: Coordinator, seconds: float = 1.0) -> None:
    """Let the limit and the grace pass, with a turn after each."""
    rig.clock.advance(seconds=seconds)
    coordinator.tick()
    rig.clock.advance(seconds=0.5)
    coordinator.tick()


@pytest.mark.shows("R-WORK-18", "R-EDGE-78", "R-WORK-19", "R-BUG-03")
def test_an_attempt_that_does_not_stop_is_settled_as_timed_out_half_a_second_after_its_limit(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    [job] = rig.insert(timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=1)
    [one] = running(rig, coordinator)

    rig.clock.advance(seconds=1)
    pause = coordinator.tick()
    assert rig.job(job).state is JobState.RUNNING
    assert pause == pytest.approx(0.5)
    rig.clock.advance(seconds=0.5)
    coordinator.tick()

    assert (rig.job(job).state, rig.job(job).reason) == (JobState.DEAD, "Timeout: ran longer than 1 s")
    assert len(rig.slots) == 0
    assert rig.slots.free(ExecutorKind.CALLS) == 1
    assert rig.threads.replaced == [one]
    assert rig.slots.abandoned_now == 1
    [line] = [line for line in caplog.messages if "abandoned" in line]
    assert job in line


def test_the_slot_of_an_abandoned_attempt_takes_the_next_job_and_is_given_back_once(rig: Rig) -> None:
    ids = rig.insert(2, timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=1)
    [first] = running(rig, coordinator)
    overrun(rig, coordinator)
    [second] = rig.threads.begin()

    rig.threads.finish(first, Completed(b"late"))
    rig.threads.finish(second)
    coordinator.tick()

    assert rig.states(ids) == {"dead": 1, "completed": 1}
    assert rig.slots.free(ExecutorKind.CALLS) == 1
    assert rig.slots.abandoned == ()


def test_an_attempt_that_ends_within_its_grace_is_not_abandoned(rig: Rig) -> None:
    [job] = rig.insert(timeout_ms=1_000)
    coordinator = rig.coordinator(threads=1)
    [one] = running(rig, coordinator)
    rig.clock.advance(seconds=1)
    coordinator.tick()

    rig.threads.finish(one, Completed(b"7"))  # an executor would tell the timeout
    rig.clock.advance(seconds=0.5)
    coordinator.tick()

    assert rig.job(job).state is JobState.COMPLETED
    assert rig.slots.abandoned == ()
    assert rig.slots.free(ExecutorKind.CALLS) == 1


def test_a_job_that_was_cancelled_and_did_not_hear_is_cancelled_at_its_limit(rig: Rig) -> None:
    [job] = rig.insert(timeout_ms=10_000)
    coordinator = rig.coordinator(threads=1)
    [one] = running(rig, coordinator)
    rig.store.cancel([job], "no need")
    rig.clock.advance(seconds=1)
    coordinator.tick()

    overrun(rig, coordinator, seconds=9)

    assert (rig.job(job).state, rig.job(job).reason) == (JobState.CANCELLED, "no need")
    assert str(one.stopped_by) == "no need"


def test_the_code_of_an_abandoned_attempt_can_say_and_store_nothing_more(rig: Rig) -> None:
    [job] = rig.insert(timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    watched = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    [one] = running(rig, coordinator)
    one.context.progress(1, 2, "half")
    overrun(rig, coordinator)
    one.context.mark_renewed(rig.clock.now_ms())  # the answer to a renewal that was under way
    calls_before = len(watched.calls)

    one.context.progress(2, 2, "whole")
    one.context.log("still here")
    with pytest.raises(LeaseLost, match="ran longer than 1 s"):
        one.context.heartbeat()
    with pytest.raises(LeaseLost):
        one.context.step("pay", lambda: 7)
    coordinator.tick()

    assert one.context.is_lease_lost
    assert len(watched.calls) <= calls_before + 1  # the look for cancels
    progress = rig.reader.progress(job).progress
    assert progress is not None
    assert progress.message == "half"


def test_hooks_and_observers_hear_of_the_timeout_once(rig: Rig) -> None:
    hooks, ends, errors = Hooks(), list[SettledAttempt](), list[str]()

    class Observer:
        def on_claimed(self, jobs: Sequence[Job]) -> None: ...

        def on_settled(self, attempts: Sequence[SettledAttempt]) -> None:
            ends.extend(attempts)

        def on_lease_lost(self, jobs: Sequence[Job]) -> None: ...

    hooks.observers.add(Observer())
    hooks.on_error.append(lambda job, error: errors.append(error.message))
    rig.insert(timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=1, hooks=hooks)
    [one] = running(rig, coordinator)

    overrun(rig, coordinator)
    rig.threads.finish(one, Completed(b"late"))
    coordinator.tick()

    assert errors == ["ran longer than 1 s"]
    assert len(ends) == 1
    assert (rig.slots.completed, rig.slots.failed) == (0, 1)


def test_no_more_threads_are_replaced_than_may_be_abandoned_and_the_rest_when_some_come_back(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ids = rig.insert(3, timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=3, max_abandoned=1)
    first, second, third = running(rig, coordinator, 3)

    overrun(rig, coordinator)
    assert rig.states(ids) == {"dead": 3}
    assert rig.threads.replaced == [first]
    assert (rig.slots.free(ExecutorKind.CALLS), rig.slots.abandoned_now) == (1, 3)

    rig.threads.finish(second)  # not replaced: its thread goes on with other jobs
    coordinator.tick()
    assert rig.threads.replaced == [first]
    assert (rig.slots.free(ExecutorKind.CALLS), rig.slots.abandoned_now) == (2, 2)

    rig.threads.finish(first)
    coordinator.tick()
    assert rig.threads.replaced == [first, third]
    assert (rig.slots.free(ExecutorKind.CALLS), rig.slots.abandoned_now) == (3, 1)
    assert len([line for line in caplog.messages if "has ended" in line]) == 2


def test_an_event_loop_that_cannot_be_replaced_takes_all_slots_until_its_task_comes_back(rig: Rig) -> None:
    rig.loop.is_replaceable = False
    rig.insert(task="co wait", timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=1, coroutines=10)
    rig.lanes["default"] = frozenset([ExecutorKind.COROUTINES])
    coordinator.tick()
    [one] = rig.loop.begin()

    overrun(rig, coordinator)
    assert rig.slots.free(ExecutorKind.COROUTINES) == 0
    rig.loop.finish(one)
    coordinator.tick()

    assert rig.slots.free(ExecutorKind.COROUTINES) == 10


def test_an_abandoned_attempt_keeps_its_lease_until_the_store_has_its_settlement(rig: Rig) -> None:
    [job] = rig.insert(timeout_ms=1_000, policy=RetryPolicy(max_retries=0))
    is_away = False

    def trouble(_name: str, _args: object) -> None:
        if is_away:
            raise StoreUnavailable("away")

    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, trouble).contract)
    [one] = running(rig, coordinator)
    is_away = True

    overrun(rig, coordinator)
    assert rig.slots.leases() == [one.lease]
    assert one.renew_at < float("inf")
    assert rig.slots.free(ExecutorKind.CALLS) == 1
    coordinator.interrupt_all()
    assert len(rig.threads.interrupts) == 1  # what was given up is not asked again
    is_away = False
    rig.clock.advance(seconds=10)
    coordinator.tick()

    assert rig.job(job).state is JobState.DEAD
    assert coordinator.is_idle
