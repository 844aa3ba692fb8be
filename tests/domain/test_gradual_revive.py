"""A gradual revive goes on while revived jobs do well, and stops when they die again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from forebay.domain.gradual_revive import (
    GradualRevive,
    GradualRevivePlan,
    GradualReviveState,
    evaluate_batch,
    is_still_dead,
)
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo
from forebay.errors import ConfigError, IllegalTransition

NOW = 1_000
REVIVE = GradualRevive(name="r", query=JobQuery(), started_at=NOW, next_batch_at=NOW)


def ids(count: int) -> tuple[JobId, ...]:
    return tuple(JobId(f"job-{n}") for n in range(count))


def fate(job_id: JobId, state: JobState, finished_at: int | None = NOW) -> JobStateInfo:
    return JobStateInfo(
        id=job_id,
        seq=1,
        queue=QueueName("default"),
        task="t",
        state=state,
        finished_at=finished_at,
        reason=None,
        error=None,
    )


def watching(count: int, **changes: Any) -> GradualRevive:
    """A gradual revive whose first batch has just begun."""
    picked = REVIVE.with_picked(ids(count), "7", scanned=count, is_searched=False)
    return replace(picked.start_batch(NOW), **changes)


def after(revive: GradualRevive, *states: JobState) -> GradualRevive:
    """The gradual revive when the first of its watched jobs are in these states."""
    found = dict.fromkeys(revive.watched, fate(JobId("x"), JobState.PENDING, None))
    found.update({job_id: fate(job_id, state) for job_id, state in zip(revive.watched, states, strict=False)})
    return evaluate_batch(revive, found, (), NOW + 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_batch": 0},
        {"initial_batch": 501},
        {"max_batch": 0},
        {"max_batch": 501},
        {"growth_factor": 0.5},
        {"growth_factor": 101},
        {"growth_factor": float("nan")},
        {"every_ms": 999},
        {"every_ms": 86_400_001},
        {"max_failure_percent": -1},
        {"max_failure_percent": 101},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a gradual revive: "):
        GradualRevivePlan(**wrong)


def test_batches_grow_up_to_the_most() -> None:
    assert [GradualRevivePlan().size(n) for n in range(7)] == [10, 20, 40, 80, 160, 320, 500]
    assert GradualRevivePlan(growth_factor=100, initial_batch=1).size(10_000) == 500
    assert (
        GradualRevivePlan(growth_factor=100.0, initial_batch=1).size(10_000) == 500
    )  # a power that is larger than any number
    assert [GradualRevivePlan(growth_factor=1, initial_batch=3, max_batch=2).size(n) for n in (0, 9)] == [
        2,
        2,
    ]


def test_a_gradual_revive_can_be_written_down_and_read_again() -> None:
    revive = watching(3)

    assert msgspec.json.decode(msgspec.json.encode(revive), type=GradualRevive) == revive
    with pytest.raises(ConfigError, match="no failure group"):
        replace(revive, group="x")


def test_jobs_are_picked_up_to_the_size_of_the_batch_and_of_what_can_be_written() -> None:
    long = tuple(JobId(letter * 3_000) for letter in "abcdefgh")

    assert REVIVE.has_room_for(ids(10))
    assert not REVIVE.has_room_for(ids(11))
    assert REVIVE.has_room_for(long[:6])
    assert not REVIVE.has_room_for(long[:7])
    found = REVIVE.with_picked(ids(4), "7", scanned=9, is_searched=True)
    assert (found.wanted, found.scanned, found.after, found.is_searched) == (6, 9, "7", True)


def test_the_next_batch_waits_for_its_time_and_for_half_of_the_last_one() -> None:
    assert REVIVE.is_due(NOW)
    assert not REVIVE.is_due(NOW - 1)
    revive = watching(3)
    assert (revive.batches, revive.size, revive.chosen, revive.revived, revive.picked) == (1, 3, 3, 3, ())
    later = NOW + 30_000
    assert not revive.is_due(later)
    seen = after(revive, JobState.COMPLETED, JobState.COMPLETED)
    assert not seen.is_due(later - 1)
    assert seen.is_due(later)
    assert not replace(seen, is_searched=True).is_due(later)
    assert not seen.pause().is_due(later)


def test_what_has_become_of_revived_jobs_is_counted_once() -> None:
    seen = after(watching(9), JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED, JobState.RUNNING)

    assert (seen.completed_jobs, seen.dead_jobs, seen.removed_jobs, seen.failed_again) == (1, 1, 1, 1)
    assert seen.watched == ids(9)[3:]
    assert after(seen) == seen
    assert evaluate_batch(seen, {}, (), NOW).removed_jobs == 7


def test_a_job_that_is_still_dead_from_before_has_not_died_again() -> None:
    revive = watching(2)
    old = fate(revive.watched[0], JobState.DEAD, NOW - 1)

    assert is_still_dead(revive, old)
    assert not is_still_dead(revive, fate(revive.watched[0], JobState.DEAD, NOW))
    assert not is_still_dead(revive, fate(revive.watched[0], JobState.CANCELLED, NOW - 1))
    assert evaluate_batch(revive, dict.fromkeys(revive.watched, old), (), NOW) == replace(
        revive, checked_at=NOW
    )


def test_watched_jobs_are_looked_at_four_times_for_a_batch_and_before_the_next() -> None:
    revive = watching(2, checked_at=NOW)

    assert not revive.is_check_due(NOW + 7_499)
    assert revive.is_check_due(NOW + 7_500)
    late = replace(revive, checked_at=NOW + 29_000)
    assert not late.is_check_due(NOW + 29_999)
    assert late.is_check_due(NOW + 30_000)
    assert not replace(late, picked=ids(1)).is_check_due(NOW + 30_000)


def test_a_job_that_the_store_does_not_put_back_is_counted_apart() -> None:
    revive = watching(2)

    seen = evaluate_batch(
        revive, dict.fromkeys(revive.watched, fate(JobId("x"), JobState.PENDING)), ids(1), NOW
    )

    assert (seen.refused, seen.revived, seen.watched) == (1, 1, ids(2)[1:])


def test_what_was_not_put_back_does_not_hide_that_the_rest_died() -> None:
    revive = watching(10)
    found = dict.fromkeys(revive.watched, fate(JobId("x"), JobState.PENDING, None))
    found[revive.watched[9]] = fate(revive.watched[9], JobState.DEAD)

    seen = evaluate_batch(revive, found, ids(9), NOW)

    assert (seen.state, seen.size) == (GradualReviveState.STOPPED, 1)
    assert evaluate_batch(watching(1), {}, ids(1), NOW).size == 0


def test_a_gradual_revive_stops_when_more_than_the_share_has_died_again() -> None:
    just = after(watching(10), JobState.DEAD, JobState.DEAD)
    assert just.state is GradualReviveState.RUNNING

    over = after(just, JobState.DEAD)

    assert (over.state, over.ended_at, over.is_open) == (GradualReviveState.STOPPED, NOW + 5, False)
    assert over.reason == "3 jobs failed again, 10 were in the last batch"
    again = over.resume(NOW + 9)
    assert (again.state, again.reason, again.failed_again, again.next_batch_at) == (
        GradualReviveState.RUNNING,
        "",
        0,
        NOW + 9,
    )
    assert (again.dead_jobs, again.ended_at) == (3, None)


def test_with_a_share_of_nothing_one_death_is_enough_and_with_all_none_is() -> None:
    assert not after(watching(5, plan=GradualRevivePlan(max_failure_percent=0)), JobState.DEAD).is_open
    assert after(
        watching(2, plan=GradualRevivePlan(max_failure_percent=100)), JobState.DEAD, JobState.DEAD
    ).is_open


def test_a_gradual_revive_is_completed_when_nothing_is_left_and_all_have_ended() -> None:
    revive = watching(1, is_searched=True)

    assert after(revive).state is GradualReviveState.RUNNING
    assert after(revive, JobState.COMPLETED).state is GradualReviveState.COMPLETED
    assert after(revive.pause(), JobState.COMPLETED).state is GradualReviveState.COMPLETED
    assert after(replace(revive, is_searched=False), JobState.COMPLETED).state is GradualReviveState.RUNNING


def test_a_gradual_revive_can_be_paused_resumed_and_stopped_by_hand() -> None:
    paused = REVIVE.pause()

    assert paused.resume(NOW) == REVIVE
    assert paused.stop(NOW, "by hand").reason == "by hand"
    for wrong in (paused.pause, lambda: REVIVE.resume(NOW), lambda: REVIVE.stop(1, "").stop(1, "")):
        with pytest.raises(IllegalTransition, match="gradual revive r is "):
            wrong()
