"""Dead letters are put together by what they died of."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.failure_group import FailureGrouper, check_group, group_of
from forebay.domain.job import JobId, PastError, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo, JobSummary
from forebay.domain.retry_stats import retry_stats_of
from forebay.errors import ConfigError

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/tasks.py", line 1, in charge\n'
BOOM = JobStateInfo(
    id=JobId("a"),
    seq=1,
    queue=QueueName("default"),
    task="charge",
    state=JobState.DEAD,
    finished_at=10,
    reason="Boom: order 1",
    error=PastError(attempt=1, at=10, type="Boom", message="order 1", traceback=TRACEBACK),
)


def died(job_id: str, at: int, **changes: Any) -> JobStateInfo:
    return replace(BOOM, id=JobId(job_id), finished_at=at, **changes)


@pytest.mark.shows("R-DLQ-21")
def test_a_group_tells_what_when_how_often_and_of_which_tasks() -> None:
    gathered = FailureGrouper()
    for fate in (
        died("a", 20, reason="Boom: order 2"),
        died("b", 30, reason="Boom: order 3", task="refund"),
        died("c", 10),
        died("d", 40, reason="queue dropped", error=None),
    ):
        gathered.add(fate)

    assert gathered.jobs == 4
    found = gathered.build_groups(is_complete=False)

    assert (found.jobs, found.is_complete, found.others) == (4, False, 0)
    [boom, dropped] = found.groups
    assert (boom.message, boom.frames) == ("Boom: order #", ("tasks.py:charge",))
    assert (boom.jobs, boom.tasks) == (3, {"charge": 2, "refund": 1})
    assert (boom.first_at, boom.last_at) == (10, 30)
    assert (boom.example, boom.example_reason) == ("b", "Boom: order 3")
    assert (dropped.message, dropped.frames, dropped.jobs) == ("queue dropped", (), 1)
    assert boom.id == group_of(BOOM)


def test_the_largest_group_comes_first_then_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.domain.failure_group.MAX_GROUPS", 2)
    gathered = FailureGrouper()
    for fate in (
        died("a", 1, reason="One"),
        died("b", 2, reason="Two"),
        died("c", 3, reason="Three"),
        died("d", 4, reason="One"),
    ):
        gathered.add(fate)

    found = gathered.build_groups(is_complete=True)

    assert [(group.message, group.jobs) for group in found.groups] == [("One", 2), ("Three", 1)]
    assert (found.jobs, found.others) == (4, 1)


def test_an_error_of_an_earlier_attempt_says_nothing_of_an_end_that_came_otherwise() -> None:
    dropped = died("a", 1, reason="queue dropped")
    silent = replace(BOOM, reason=None, finished_at=None)

    assert group_of(dropped) == group_of(replace(dropped, error=None))
    assert group_of(silent) == group_of(replace(silent, error=None))


def test_what_cannot_be_a_group_is_refused() -> None:
    assert check_group("0123456789abcdef") == "0123456789abcdef"
    for wrong in ("", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdefa", "0123456789abcdef\n"):
        with pytest.raises(ConfigError, match="is no failure group"):
            check_group(wrong)


@pytest.mark.shows("R-RETRY-45")
def test_retries_are_told_by_the_jobs_that_had_failed_before_their_end() -> None:
    def ended(state: JobState, attempt: int, failures: int, reason: str | None = None) -> JobSummary:
        return a_summary(state=state, attempt=attempt, failures=failures, reason=reason)

    found = retry_stats_of(
        [
            ended(JobState.COMPLETED, 1, 0),
            ended(JobState.COMPLETED, 3, 2),
            ended(JobState.DEAD, 4, 4, "Boom: order 1"),
            ended(JobState.DEAD, 4, 4, "Boom: order 2"),
        ],
        is_complete=True,
    )

    assert (found.jobs, found.retried, found.recovered, found.dead) == (4, 3, 1, 2)
    assert found.success_rate == pytest.approx(1 / 3)
    assert found.average_attempts == 3.0
    assert found.errors == {"Boom: order #": 2}
    nothing = retry_stats_of([], is_complete=True)
    assert (nothing.success_rate, nothing.average_attempts) == (None, None)


def a_summary(**fields: Any) -> JobSummary:
    times = {"created_at": 1, "run_at": 1, "started_at": 1, "finished_at": 2}
    row = {"id": "a", "queue": "default", "task": "t", "priority": 0, "worker": None, **times, **fields}
    return JobSummary(**row)
