"""How many jobs may be claimed beyond the free slots."""

from __future__ import annotations

import pytest

from forebay.worker.prefetch import MAX_PREFETCH, PrefetchPolicy


def known(**durations: float) -> PrefetchPolicy:
    """A prefetch policy that has seen fifty runs of each task, and has had time to grow."""
    policy = PrefetchPolicy()
    for task, seconds in durations.items():
        for _ in range(50):
            policy.record_duration(task, seconds)
    for _ in range(20):
        policy.prefetch_count([], 0)
    return policy


def test_there_is_no_prefetch_before_anything_was_claimed() -> None:
    assert PrefetchPolicy().prefetch_count([], 4) == 0


def test_there_is_no_prefetch_for_an_unknown_task() -> None:
    policy = known(quick=0.001)

    assert policy.prefetch_count({"quick"}, 4) > 0
    assert policy.prefetch_count({"quick", "never seen"}, 4) == 0


def test_the_prefetch_is_a_tenth_of_a_second_of_work() -> None:
    assert known(quick=0.01).prefetch_count({"quick"}, 4) == pytest.approx(40, abs=1)


def test_the_slowest_task_of_the_last_batch_decides() -> None:
    assert known(quick=0.001, slow=0.05).prefetch_count({"quick", "slow"}, 4) == pytest.approx(8, abs=1)


def test_long_jobs_give_no_prefetch() -> None:
    assert known(long=2.0).prefetch_count({"long"}, 4) == 0


def test_there_is_no_prefetch_when_some_runs_take_much_longer_than_most() -> None:
    policy = known(mixed=0.001)
    for _ in range(5):
        policy.record_duration("mixed", 0.5)

    assert policy.prefetch_count({"mixed"}, 4) == 0


def test_one_slow_run_in_a_hundred_does_not_make_a_task_uneven() -> None:
    policy = known(quick=0.001)
    policy.record_duration("quick", 0.02)

    assert policy.prefetch_count({"quick"}, 4) > 0


def test_old_runs_are_forgotten() -> None:
    policy = known(once_slow=1.0)
    for _ in range(64):
        policy.record_duration("once_slow", 0.001)

    assert policy.prefetch_count({"once_slow"}, 4) > 100


def test_the_prefetch_never_grows_beyond_its_limit() -> None:
    assert known(instant=0.000_001).prefetch_count({"instant"}, 64) == MAX_PREFETCH


def test_after_a_late_start_the_prefetch_grows_again_from_nothing() -> None:
    policy = known(instant=0.000_1)

    policy.reset()

    assert [policy.prefetch_count({"instant"}, 4) for _ in range(5)] == [1, 2, 4, 8, 16]


def test_slots_that_are_all_taken_by_long_jobs_give_no_prefetch() -> None:
    assert known(quick=0.001).prefetch_count({"quick"}, 0) == 0
