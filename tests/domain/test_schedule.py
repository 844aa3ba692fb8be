"""What a schedule may say, and the job of one of its runs."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import NewJob, UniqueUntil
from forebay.domain.schedule import (
    MAX_STORED_RUNS,
    MissedRuns,
    Overlap,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
    add_missed_runs,
    iso,
    job_at,
    missed_runs_since,
)
from forebay.errors import ConfigError, InvalidJob

AT = 1_800_000_000_000


def define(job: dict[str, Any] | None = None, **changes: Any) -> ScheduleDefinition:
    when = {} if changes.keys() & {"cron", "every_ms", "at"} else {"cron": "@daily"}
    return ScheduleDefinition(name="tidy", job=NewJob(task="t", **(job or {})), **{**when, **changes})


@pytest.mark.shows("R-SCHED-11", "R-SCHED-42")
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"cron": None}, "exactly one"),
        ({"cron": "@daily", "every_ms": 60_000}, "exactly one"),
        ({"cron": "61 * * * *"}, "61 is no minute"),
        ({"cron": "0 0 31 2 *"}, "no date ever matches"),
        ({"timezone": "Mars/Olympus"}, "no time zone"),
        ({"every_ms": 999}, "every_ms"),
        ({"at": -1}, "at must be"),
        ({"start_at": 10, "end_at": 9}, "end before it starts"),
        ({"jitter_ms": -1}, "jitter_ms"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"catch_up_ms": -1}, "catch_up_ms"),
        ({"unique_ms": 10}, "unique_ms"),
        ({"max_runs": 0}, "max_runs"),
        ({"unique_key": ""}, "unique_key"),
        ({"job": {"run_at": 5}}, "cannot bring"),
        ({"job": {"metadata": {"x": "y" * 65_500}}}, "metadata has"),  # with what a run adds
        ({"job": {"idempotency_key": "k"}}, "cannot bring"),
        ({"job": {"unique_key": "k"}, "overlap": Overlap.SKIP}, "overlap"),
        ({"at": 5, "overlap": Overlap.QUEUE}, "overlap"),
        ({"unique_key": "k", "overlap": Overlap.QUEUE}, "both wait and be skipped"),
    ],
)
def test_a_definition_that_cannot_be_meant_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises((ConfigError, InvalidJob)) as caught:
        define(**changes)

    assert word in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb"])
def test_a_schedule_has_a_short_name_of_plain_text(name: str) -> None:
    with pytest.raises(InvalidJob, match="name"):
        ScheduleDefinition(name=name, job=NewJob(task="t"), cron="@daily")


@pytest.mark.shows("R-SCHED-17", "R-SCHED-56", "R-SCHED-57")
def test_the_job_of_a_run_says_where_it_comes_from_and_for_when() -> None:
    job = job_at(define({"metadata": {"a": 1}}), AT)

    assert job.metadata == {"a": 1, "schedule_id": "tidy", "scheduled_for": "2027-01-15T08:00:00Z"}
    assert (job.idempotency_key, job.unique_key) == ("schedule tidy 2027-01-15T08:00:00Z", None)


def test_a_key_of_the_schedules_own_is_taken_as_it_is() -> None:
    job = job_at(define(unique_key="mine", unique_ms=90_000), AT)

    assert (job.idempotency_key, job.idempotency_ttl_ms) == ("mine", 90_000)


def test_jobs_that_may_not_overlap_share_a_key_until_they_have_ended() -> None:
    job = job_at(define({"unique_until": UniqueUntil.STARTED}, overlap=Overlap.SKIP), AT)

    assert (job.unique_key, job.unique_until) == ("schedule tidy", UniqueUntil.FINAL)


def test_times_that_count_from_the_run_are_instants_of_its_job() -> None:
    job = job_at(define(expires_ms=5_000, deadline_ms=9_000), AT)

    assert (job.expires_at, job.deadline_at) == (AT + 5_000, AT + 9_000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cron": "@daily"}, "@daily"),
        ({"cron": "0 9 * * *", "timezone": "Europe/Berlin"}, "0 9 * * * (Europe/Berlin)"),
        ({"every_ms": 90_000}, "every 90 s"),
        ({"every_ms": 60_000}, "every minute"),
        ({"every_ms": 7_200_000}, "every 2 hours"),
        ({"at": AT}, "at 2027-01-15T08:00:00Z"),
    ],
)
def test_the_times_of_a_schedule_can_be_read(changes: dict[str, Any], words: str) -> None:
    assert define(**changes).describe_times() == words


@pytest.mark.shows("R-CFG-59", "R-SCHED-58", "R-SCHED-16", "R-CFG-58")
def test_what_is_not_said_about_a_schedule_has_a_usual_value() -> None:
    usual = define()

    assert (usual.timezone, usual.job.queue, usual.unique_ms) == ("UTC", "default", 300_000)


def test_instants_are_shown_in_utc_with_milliseconds_where_there_are_some() -> None:
    assert (iso(AT), iso(AT + 7)) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00.007Z")


def test_other_arguments_are_not_other_times() -> None:
    assert define().has_timing_of(define({"priority": 5}, jitter_ms=3))
    assert not define().has_timing_of(define(timezone="Europe/Berlin"))


ENQUEUED, SKIPPED, ERROR = ScheduleRunStatus


@pytest.mark.shows("R-MET-50")
def test_runs_are_missed_when_it_is_written_down_and_as_many_as_a_line_speaks_of() -> None:
    past = [
        ScheduleRun(planned_at=AT, status=ENQUEUED, recorded_at=AT),
        ScheduleRun(planned_at=AT - 90, status=SKIPPED, recorded_at=AT - 1, last_planned_at=AT - 50, runs=7),
        ScheduleRun(planned_at=AT - 2, status=ERROR, recorded_at=AT - 2),
        ScheduleRun(planned_at=AT - 10, status=ENQUEUED, recorded_at=AT - 10),
        ScheduleRun(planned_at=AT - 11, status=SKIPPED, recorded_at=AT - 11),
    ]

    found = missed_runs_since(past, AT - 10)

    assert found == MissedRuns(10, 8, is_complete=True)
    assert found.rate == 0.8
    assert missed_runs_since(past, AT + 1).rate is None


@pytest.mark.shows("R-MET-50")
def test_a_history_that_does_not_go_back_as_far_says_so_and_so_do_several() -> None:
    past = [ScheduleRun(planned_at=AT, status=ENQUEUED, recorded_at=AT)] * MAX_STORED_RUNS

    often, seldom = missed_runs_since(past, AT), missed_runs_since(past[1:], AT)

    assert (often.is_complete, seldom.is_complete) == (False, True)
    assert add_missed_runs([often, seldom]) == MissedRuns(199, 0, is_complete=False)
    assert add_missed_runs([]) == MissedRuns(0, 0, is_complete=True)
