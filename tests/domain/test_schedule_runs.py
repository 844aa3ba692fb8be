"""Which runs are due, which are enqueued, and what comes next."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.domain.job import NewJob
from forebay.domain.schedule import CatchUp, Overlap, Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import (
    POSTPONE_MS,
    ScheduleAdvance,
    manual_run,
    next_run,
    next_runs,
    plan_advance,
    plan_runs,
    postpone,
)
from tests.stores.contract.steps import DAY, HOUR, MINUTE, SECOND, T0


def schedule(job: dict[str, Any] | None = None, **changes: Any) -> Schedule:
    """A schedule that was saved at T0, a full hour."""
    when = {} if changes.keys() & {"cron", "every_ms", "at"} else {"cron": "* * * * *"}
    definition = ScheduleDefinition(name="tidy", job=NewJob(task="t", **(job or {})), **{**when, **changes})
    return plan_runs(Schedule(definition=definition), T0, 0.0)


def times(move: ScheduleAdvance) -> list[int]:
    return [run.planned_at - T0 for run in move.runs]


def skips(move: ScheduleAdvance) -> list[tuple[int, int | None, int]]:
    return [
        (one.planned_at - T0, one.last_planned_at and one.last_planned_at - T0, one.runs)
        for one in move.skips
    ]


@pytest.mark.shows("R-SCHED-22", "R-TEST-28", "R-SCHED-40", "R-TEST-33")
def test_cp4_3_a_recurring_job_runs_at_each_interval() -> None:
    one, fired = schedule(cron="*/2 * * * *"), []

    for now in range(T0, T0 + 10 * MINUTE + 1, 5 * SECOND):
        if one.check_at is not None and one.check_at <= now:
            move = plan_advance(one, now, 0.0)
            fired += times(move)
            one = replace(one, next_run_at=move.next_run_at, check_at=move.check_at)

    assert fired == [2 * MINUTE, 4 * MINUTE, 6 * MINUTE, 8 * MINUTE, 10 * MINUTE]


def test_a_move_enqueues_the_run_that_is_due_and_names_the_next() -> None:
    move = plan_advance(schedule(), T0 + MINUTE + 800, 0.0)

    assert (times(move), move.skips, move.next_run_at) == ([MINUTE], (), T0 + 2 * MINUTE)


@pytest.mark.shows("R-SCHED-49", "R-SCHED-50", "R-SCHED-53")
@pytest.mark.parametrize(
    ("changes", "late", "enqueued", "skipped"),
    [
        ({}, 3 * MINUTE, [1, 2, 3], []),
        ({"catch_up_limit": 2}, 5 * MINUTE, [3, 4, 5], [(1, 2, 2)]),
        ({"catch_up_limit": 2}, 5 * MINUTE + 30 * SECOND, [4, 5], [(1, 3, 3)]),
        ({"catch_up_ms": 2 * MINUTE}, 5 * MINUTE + 30 * SECOND, [4, 5], [(1, 3, 3)]),
        ({"catch_up": CatchUp.LATEST}, 5 * MINUTE + 30 * SECOND, [5], [(1, 4, 4)]),
        ({"catch_up": CatchUp.LATEST}, 5 * MINUTE + 5 * SECOND, [5], [(1, 4, 4)]),
        ({"catch_up": CatchUp.NONE}, 5 * MINUTE + 5 * SECOND, [5], [(1, 4, 4)]),
        ({"catch_up": CatchUp.NONE}, 5 * MINUTE + 30 * SECOND, [], [(1, 5, 5)]),
        ({"overlap": Overlap.QUEUE}, 5 * MINUTE, [5], [(1, 4, 4)]),
        ({"overlap": Overlap.QUEUE}, 5 * MINUTE + 30 * SECOND, [5], [(1, 4, 4)]),
    ],
)
def test_what_was_missed_is_caught_up_as_the_schedule_says(
    changes: dict[str, Any], late: int, enqueued: list[int], skipped: list[tuple[int, int, int]]
) -> None:
    move = plan_advance(schedule(**changes), T0 + late, 0.0)

    assert times(move) == [minute * MINUTE for minute in enqueued]
    assert skips(move) == [(first * MINUTE, last * MINUTE, count) for first, last, count in skipped]
    assert move.next_run_at == T0 + (late // MINUTE + 1) * MINUTE


@pytest.mark.shows("R-SCHED-50", "R-SCHED-51", "R-EDGE-35")
def test_after_a_year_away_a_schedule_of_every_second_is_caught_up_at_once() -> None:
    move = plan_advance(schedule(cron="* * * * * *"), T0 + 366 * DAY, 0.0)

    assert 10 <= len(move.runs) <= 21
    assert move.runs[-1].planned_at == T0 + 366 * DAY
    [skip] = move.skips
    assert (skip.planned_at, skip.runs >= 1_000) == (T0 + SECOND, True)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_run_that_has_waited_for_the_one_before_was_not_missed(catch_up: CatchUp) -> None:
    one = schedule(overlap=Overlap.QUEUE, catch_up=catch_up, catch_up_ms=0, jitter_ms=5 * SECOND)
    held = replace(one, check_at=T0 + 3 * MINUTE)

    move = plan_advance(held, T0 + 5 * MINUTE + 30 * SECOND, 0.0)

    assert (times(move), skips(move)) == ([5 * MINUTE], [(MINUTE, 4 * MINUTE, 4)])


def test_a_run_for_one_time_is_made_up_for_however_late() -> None:
    one = schedule(at=T0 + HOUR)

    move = plan_advance(one, T0 + 40 * DAY, 0.0)

    assert (times(move), move.next_run_at, move.removes_schedule) == ([HOUR], None, True)


def test_a_run_for_one_time_can_be_given_up() -> None:
    move = plan_advance(schedule(at=T0 + HOUR, catch_up=CatchUp.NONE), T0 + 40 * DAY, 0.0)

    assert (times(move), skips(move), move.removes_schedule) == ([], [(HOUR, HOUR, 1)], False)


def test_intervals_count_from_the_full_time_or_from_the_start() -> None:
    assert schedule(every_ms=15 * MINUTE).next_run_at == T0 + 15 * MINUTE
    assert schedule(every_ms=MINUTE, start_at=T0 + 90 * SECOND).next_run_at == T0 + 90 * SECOND
    assert schedule(every_ms=MINUTE, start_at=T0 - 30 * SECOND).next_run_at == T0 + 30 * SECOND


def test_a_schedule_has_runs_from_its_start_until_its_end() -> None:
    one = schedule(start_at=T0 + 3 * MINUTE, end_at=T0 + 5 * MINUTE).definition

    assert [at - T0 for at in next_runs(one, T0)] == [3 * MINUTE, 4 * MINUTE, 5 * MINUTE]


def test_chance_delays_the_look_and_not_the_time_of_the_run() -> None:
    one = replace(schedule(jitter_ms=40 * SECOND))
    later = plan_runs(one, T0, 0.5)

    move = plan_advance(later, T0 + MINUTE + 20 * SECOND, 1.0)

    assert (later.next_run_at, later.check_at) == (T0 + MINUTE, T0 + MINUTE + 20 * SECOND)
    assert (times(move), move.skips) == ([MINUTE], ())
    assert (move.next_run_at, move.check_at) == (T0 + 2 * MINUTE, T0 + 2 * MINUTE + 40 * SECOND)


@pytest.mark.shows("R-SCHED-24")
def test_a_paused_schedule_knows_its_next_run_and_is_not_due() -> None:
    paused = plan_runs(replace(schedule(), is_paused=True), T0, 0.0)
    resumed = plan_runs(replace(paused, is_paused=False), T0 + HOUR, 0.0)

    assert (paused.next_run_at, paused.check_at) == (T0 + MINUTE, None)
    assert (resumed.next_run_at, resumed.check_at) == (T0 + HOUR + MINUTE, T0 + HOUR + MINUTE)


def test_no_more_is_enqueued_than_a_schedule_may_fire() -> None:
    one = replace(schedule(max_runs=5), enqueued_runs=3)

    assert times(plan_advance(one, T0 + 9 * MINUTE, 0.0)) == [MINUTE, 2 * MINUTE]
    assert plan_runs(replace(one, enqueued_runs=5), T0, 0.0).next_run_at is None


def test_a_schedule_without_a_next_run_moves_nowhere() -> None:
    over = plan_runs(schedule(end_at=T0 + 1), T0, 0.0)

    assert plan_advance(over, T0 + DAY, 0.0) == ScheduleAdvance(name="tidy", revision=0)


def test_a_schedule_is_postponed_with_the_run_that_is_due() -> None:
    one = schedule(every_ms=MINUTE)

    move = postpone(one, T0 + HOUR)

    assert (move.next_run_at, move.check_at) == (one.next_run_at, T0 + HOUR + POSTPONE_MS)
    assert (move.revision, move.runs, move.skips) == (one.revision, (), ())


def test_a_run_by_hand_is_for_now_and_has_no_key_of_its_time() -> None:
    move = manual_run(schedule(), T0 + 7)

    assert (times(move), move.is_manual, move.runs[0].job.idempotency_key) == ([7], True, None)


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */2 * * *", "*/10 * * * * *", "30 2 * * *"]),
    st.lists(st.integers(1, 2 * HOUR), min_size=1, max_size=8),
    st.sampled_from(list(CatchUp)),
    st.floats(0, 1),
)
def test_every_run_is_enqueued_or_skipped_and_none_twice(
    cron: str, waits: list[int], catch_up: CatchUp, roll: float
) -> None:
    one = schedule(cron=cron, catch_up=catch_up, jitter_ms=5 * SECOND)
    now, enqueued, skipped = T0, [], 0

    for wait in waits:
        now += wait
        if one.check_at is not None and one.check_at <= now:
            move = plan_advance(one, now, roll)
            enqueued += [run.planned_at for run in move.runs]
            skipped += sum(one.runs for one in move.skips)
            one = replace(one, next_run_at=move.next_run_at, check_at=move.check_at)

    assert one.next_run_at is not None
    end = one.next_run_at
    past = list(takewhile(lambda at: at < end, next_runs(one.definition, T0)))
    assert enqueued == sorted(set(enqueued))
    assert set(enqueued) <= set(past)
    assert len(enqueued) + skipped == len(past)
    assert next_run(one.definition, one.next_run_at - 1) == one.next_run_at


@pytest.mark.parametrize(
    ("job", "changes", "reason"),
    [
        ({}, {}, "this run was enqueued before"),
        ({}, {"overlap": Overlap.SKIP}, "the run before has not ended"),
        ({}, {"unique_key": "k"}, "its unique key was used within its window"),
        ({"unique_key": "k"}, {}, "its unique key is taken"),
        (
            {},
            {"overlap": Overlap.SKIP, "unique_key": "k"},
            "the run before has not ended or its unique key was used within its window",
        ),
    ],
)
def test_a_run_says_what_it_means_if_its_key_is_taken(
    job: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    [run] = plan_advance(schedule(job, **changes), T0 + MINUTE, 0.0).runs

    assert run.skip_reason == reason
