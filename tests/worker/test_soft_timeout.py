"""A job that takes long is told before it is stopped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from threading import Event
from time import sleep
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob, current_job
from forebay.domain.job_states import JobState
from forebay.worker.assigned_job import Assignment
from forebay.worker.coordinator_inbox import LONGEST_SLEEP_SECONDS, Inbox
from forebay.worker.task_invoker import Invoker
from tests.worker.rig import Rig
from tests.worker.support import DEADLINE, an_assignment, called, eventually


def running(rig: Rig, limit: float) -> tuple[Any, Assignment]:
    """A coordinator with one job that has a soft limit and runs."""
    rig.insert(timeout_ms=None)
    coordinator = rig.coordinator()
    coordinator.tick()
    [one] = rig.threads.begin()
    rig.inbox.add_soft_limit(one, limit)
    return coordinator, one


# ------------------------------------------------------------------ telling


def test_a_job_is_told_and_a_line_is_written_when_its_soft_limit_has_passed_and_not_before(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator, one = running(rig, 2.0)

    rig.clock.advance(seconds=1.9)
    coordinator.tick()
    before = one.context.is_past_soft_timeout
    rig.clock.advance(seconds=0.1)
    for _ in range(3):
        coordinator.tick()
        rig.clock.advance(seconds=1)

    assert (before, one.context.is_past_soft_timeout) == (False, True)
    assert [line for line in caplog.messages if "overdue" in line] == [
        f"job {one.job.id}, attempt 1, is overdue: it runs longer than 2 s"
    ]
    assert rig.threads.interrupts == []


def test_a_turn_sleeps_no_longer_than_until_the_next_soft_limit(rig: Rig) -> None:
    coordinator, _ = running(rig, 0.3)

    assert coordinator.tick() == pytest.approx(0.3)


def test_a_job_that_has_ended_in_time_is_not_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    coordinator, one = running(rig, 2.0)
    rig.threads.finish(one)
    coordinator.tick()

    rig.clock.advance(seconds=10)
    coordinator.tick()

    assert not one.context.is_past_soft_timeout
    assert "overdue" not in caplog.text


def test_a_soft_limit_counts_from_the_start_of_the_attempt(rig: Rig) -> None:
    rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    [one] = rig.threads.given
    rig.inbox.add_soft_limit(one, 0.5)
    rig.clock.advance(seconds=0.4)
    coordinator.tick()
    rig.threads.begin()
    rig.clock.advance(seconds=0.4)
    coordinator.tick()
    before = one.context.is_past_soft_timeout

    rig.clock.advance(seconds=0.1)
    coordinator.tick()

    assert (before, one.context.is_past_soft_timeout) == (False, True)


@pytest.mark.parametrize(("seconds", "is_woken"), [(0.1, True), (LONGEST_SLEEP_SECONDS, False)])
def test_only_a_soft_limit_shorter_than_a_sleep_wakes_the_coordinator(seconds: float, is_woken: bool) -> None:
    inbox, one = Inbox(), an_assignment()

    inbox.add_soft_limit(one, seconds)

    assert inbox._signal.is_set is is_woken
    assert inbox.take_soft_limits() == [(one, seconds)]
    assert inbox.take_soft_limits() == []


def test_only_tasks_with_a_soft_limit_are_watched() -> None:
    app, watched = Forebay("memory://"), []
    app.task(name="plain")(lambda: None)
    app.task(name="soft", soft_timeout=timedelta(milliseconds=1_500))(lambda: None)
    invoke = Invoker(app.registry, lambda one, seconds: watched.append((one.job.task, seconds)))

    for name in ("plain", "soft"):
        called(invoke, an_assignment(name))

    assert watched == [("soft", 1.5)]


# ------------------------------------------------------------------ in a worker


def test_a_blocking_task_can_come_to_an_end_when_it_is_overdue(app: Forebay) -> None:
    @app.task(name="long", soft_timeout=0.05)
    def long() -> str:
        eventually(lambda: current_job().is_past_soft_timeout)
        return "as far as I came"

    with app.run_worker(threads=1):
        assert long.enqueue().result(DEADLINE) == "as far as I came"


def test_a_coroutine_can_come_to_an_end_when_it_is_overdue(app: Forebay) -> None:
    @app.task(name="long", soft_timeout=0.05)
    async def long() -> str:
        while not current_job().is_past_soft_timeout:
            await asyncio.sleep(0.005)
        return "as far as I came"

    with app.run_worker(threads=1):
        assert long.enqueue().result(DEADLINE) == "as far as I came"


def test_a_job_that_does_not_heed_its_soft_limit_is_stopped_by_the_hard_one(app: Forebay) -> None:
    is_reported = Event()

    @app.task(name="deaf", soft_timeout=0.05, timeout=2, retries=0)
    def deaf() -> None:
        while True:
            if current_job().is_past_soft_timeout:
                is_reported.set()
            sleep(0.005)

    with app.run_worker(threads=1):
        job = deaf.enqueue().wait(DEADLINE)

    assert is_reported.is_set()
    assert (job.state, job.reason) == (JobState.DEAD, "Timeout: ran longer than 2 s")


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"soft_timeout": 30, "timeout": 30}, "soft_timeout .30 s. must be shorter than timeout .30 s."),
        ({"soft_timeout": 1_800}, "soft_timeout .1800 s. must be shorter than timeout"),
        ({"soft_timeout": 0}, "soft_timeout must be longer than zero"),
        ({"retry_on_timeout": "no"}, "retry_on_timeout must be True or False"),
        ({"no_retry_for": ("ValueError",)}, "no_retry_for must list classes of exceptions"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_their_name(options: Any, words: str) -> None:
    app = Forebay("memory://")

    with pytest.raises(ConfigError, match=words):
        app.task(name="task", **options)(lambda: None)

    assert "task" not in app.registry


def test_a_soft_limit_must_be_a_length_of_time() -> None:
    with pytest.raises(InvalidJob, match="soft_timeout must be a timedelta or a number of seconds"):
        Forebay("memory://").task(name="task", soft_timeout="soon")  # type: ignore[call-overload]


def test_a_task_without_a_hard_limit_may_have_a_soft_one() -> None:
    task = Forebay("memory://").task(name="task", soft_timeout=86_400, timeout=None)(lambda: None)

    assert task.execution_policy.soft_timeout == 86_400
