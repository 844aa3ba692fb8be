"""One integer orders waiting jobs; here it is held against a formula in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.domain.job import LATEST_AT
from forebay.domain.job_validation import MAX_PRIORITY, MIN_PRIORITY
from forebay.domain.rank import (
    MAX_PENALTY,
    STEPS,
    STRICT_AGING_MS,
    QueueRank,
    Scoring,
    compute_rank,
    deadline_step,
    effective_priority,
    points_to_ms,
)

HOUR = 3_600_000
NOW = 1_700_000_000_000
EXACT = 2**53

points_in_thousandths = st.integers(0, 1_000_000)
scorings = st.builds(
    Scoring,
    aging_ms=st.sampled_from([1, 7, 1_000, HOUR, STRICT_AGING_MS]) | st.integers(1, STRICT_AGING_MS),
    cap=st.none() | points_in_thousandths,
    retry_penalty=points_in_thousandths,
    deadline_weight=points_in_thousandths,
    deadline_horizon_ms=st.integers(8, 366 * 24 * HOUR),
)
priorities = st.integers(MIN_PRIORITY, MAX_PRIORITY)
failures_so_far = st.integers(0, 101)
near = st.integers(NOW - 100 * HOUR, NOW + 100 * HOUR)
deadlines = st.none() | near


def cut(value: Fraction) -> int:
    """Towards zero, as SQL divides."""
    return int(value)


def boost(scoring: Scoring, deadline_at: int | None, now: int) -> Fraction:
    """The deadline's boost in points, from its definition: weight x (steps done / 8) squared."""
    if deadline_at is None:
        return Fraction(0)
    gone = 1 - Fraction(deadline_at - now, scoring.deadline_horizon_ms)
    done = min(max(int(gone * 8), 0), 8) if gone > 0 else 0
    return Fraction(cut(Fraction(scoring.deadline_weight * done**2, 64)), 1_000)


def plain_place(
    scoring: Scoring, ready_at: int, priority: int, failures: int, deadline_at: int | None, now: int
) -> tuple[bool, int]:
    """Class and rank, straight from the sentence that defines them."""
    penalty = min(failures * Fraction(scoring.retry_penalty, 1_000), Fraction(100))
    points = priority - penalty + boost(scoring, deadline_at, now)
    worth = cut(points * scoring.aging_ms)
    if scoring.cap is not None and now - ready_at >= cut(Fraction(scoring.cap * scoring.aging_ms, 1_000)):
        return True, -worth
    return False, ready_at - worth


def found(scoring: Scoring, ready_at: int = NOW, priority: int = 0, now: int = NOW) -> QueueRank:
    return compute_rank(scoring, ready_at=ready_at, priority=priority, failures=0, deadline_at=None, now=now)


@pytest.mark.shows("R-PRI-12", "R-PRI-13", "R-PRI-15")
@given(scorings, near, priorities, failures_so_far, deadlines, near)
def test_rank_is_what_the_formula_says(
    scoring: Scoring, ready_at: int, priority: int, failures: int, deadline_at: int | None, now: int
) -> None:
    there = compute_rank(
        scoring, ready_at=ready_at, priority=priority, failures=failures, deadline_at=deadline_at, now=now
    )

    assert (there.age_capped, there.rank) == plain_place(
        scoring, ready_at, priority, failures, deadline_at, now
    )


@given(scorings, priorities, failures_so_far, near, st.integers(1, HOUR))
def test_of_two_like_jobs_the_one_that_was_ready_earlier_does_not_come_later(
    scoring: Scoring, priority: int, failures: int, ready_at: int, later: int
) -> None:
    now = ready_at + later
    first, second = (
        compute_rank(scoring, ready_at=at, priority=priority, failures=failures, deadline_at=None, now=now)
        for at in (ready_at, ready_at + later)
    )

    assert effective_priority(scoring, first, now) >= effective_priority(scoring, second, now)


@pytest.mark.shows("R-PRI-07")
@given(scorings, st.integers(MIN_PRIORITY, MAX_PRIORITY - 1), failures_so_far, deadlines, near)
def test_of_two_like_jobs_the_higher_priority_leads_by_what_a_point_is_worth(
    scoring: Scoring, priority: int, failures: int, deadline_at: int | None, ready_at: int
) -> None:
    low, high = (
        compute_rank(
            scoring, ready_at=ready_at, priority=one, failures=failures, deadline_at=deadline_at, now=NOW
        )
        for one in (priority, priority + 1)
    )

    assert effective_priority(scoring, high, NOW) - effective_priority(scoring, low, NOW) == pytest.approx(
        scoring.aging_ms, abs=1
    )


@pytest.mark.shows("R-BUG-16")
@pytest.mark.parametrize("priority", [MIN_PRIORITY, MAX_PRIORITY])
@pytest.mark.parametrize("failures", [0, 10**6])
@pytest.mark.parametrize("deadline_at", [None, 0, LATEST_AT])
@pytest.mark.parametrize("ready_at", [0, LATEST_AT])
@pytest.mark.parametrize("now", [0, LATEST_AT])
@pytest.mark.parametrize("cap", [None, 0, 1_000_000])
def test_every_number_is_exact_in_a_double_at_the_extremes(
    priority: int, failures: int, deadline_at: int | None, ready_at: int, now: int, cap: int | None
) -> None:
    extreme = Scoring(
        aging_ms=STRICT_AGING_MS,
        cap=cap,
        retry_penalty=1_000_000,
        deadline_weight=1_000_000,
        deadline_horizon_ms=366 * 24 * HOUR,
    )

    there = compute_rank(
        extreme, ready_at=ready_at, priority=priority, failures=failures, deadline_at=deadline_at, now=now
    )

    numbers = (there.rank, there.rescore_at or 0, effective_priority(extreme, there, now), extreme.cap_ms)
    assert max(map(abs, numbers)) < EXACT


@pytest.mark.shows("R-PRI-15")
@pytest.mark.parametrize(
    ("failures", "points"), [(0, 0), (1, 2), (49, 98), (50, 100), (51, 100), (10**6, 100)]
)
def test_each_failure_costs_two_points_up_to_a_hundred(failures: int, points: int) -> None:
    there = compute_rank(Scoring(), ready_at=NOW, priority=0, failures=failures, deadline_at=None, now=NOW)

    assert there.rank == NOW + points * HOUR
    assert points * 1_000 <= MAX_PENALTY


@pytest.mark.shows("R-EDGE-44")
def test_a_failed_job_lets_a_new_one_of_its_kind_go_first() -> None:
    failed, fresh = (
        compute_rank(Scoring(), ready_at=at, priority=0, failures=failures, deadline_at=None, now=NOW)
        for at, failures in ((NOW - HOUR, 1), (NOW, 0))
    )

    assert effective_priority(Scoring(), fresh, NOW) > effective_priority(Scoring(), failed, NOW)


@pytest.mark.shows("R-PRI-13", "R-PRI-18")
def test_an_hour_of_waiting_is_worth_one_point() -> None:
    old = found(Scoring(), ready_at=NOW - HOUR, priority=4)
    new = found(Scoring(), ready_at=NOW, priority=5)

    assert effective_priority(Scoring(), old, NOW) == effective_priority(Scoring(), new, NOW)


# ------------------------------------------------------------------ deadlines


@pytest.mark.shows("R-PRI-16", "R-PRI-17", "R-EDGE-45", "R-BUG-15")
@pytest.mark.parametrize(
    ("minutes_left", "step"),
    [
        (100_000, 0),
        (61, 0),
        (60, 0),
        (52.51, 0),
        (52.5, 1),
        (45, 2),
        (30, 4),
        (7.5, 7),
        (0.01, 7),
        (0, 8),
        (-100_000, 8),
    ],
)
def test_the_boost_climbs_in_eight_steps_from_the_horizon_to_the_deadline(
    minutes_left: float, step: int
) -> None:
    deadline_at = NOW + round(minutes_left * 60_000)

    assert deadline_step(Scoring(), deadline_at, NOW)[0] == step


@pytest.mark.shows("R-PRI-17")
@pytest.mark.parametrize(
    ("step", "points"), [(0, 0), (1, 468), (2, 1_875), (4, 7_500), (6, 16_875), (7, 22_968), (8, 30_000)]
)
def test_the_boost_grows_with_the_square_of_the_step(step: int, points: int) -> None:
    now = NOW - HOUR + HOUR * step // STEPS

    there = compute_rank(Scoring(), ready_at=NOW, priority=0, failures=0, deadline_at=NOW, now=now)

    assert there.rank == NOW - points * HOUR // 1_000


@pytest.mark.shows("R-PRI-17")
@pytest.mark.parametrize("scoring", [Scoring(), Scoring(deadline_weight=0)])
def test_without_a_deadline_there_is_no_boost(scoring: Scoring) -> None:
    there = compute_rank(scoring, ready_at=NOW, priority=0, failures=0, deadline_at=None, now=NOW)

    assert there == QueueRank(False, NOW, NOW + scoring.cap_ms)


def test_a_queue_without_a_deadline_weight_never_rescores_for_a_deadline() -> None:
    assert deadline_step(Scoring(deadline_weight=0), NOW, NOW - 1) == (0, None)


@given(st.integers(8, 10**11), near, near)
def test_the_next_step_is_reached_exactly_when_it_is_named(horizon: int, deadline_at: int, now: int) -> None:
    scoring = Scoring(deadline_horizon_ms=horizon)

    step, next_at = deadline_step(scoring, deadline_at, now)

    if next_at is None:
        assert (step, now >= deadline_at) == (STEPS, True)
    else:
        assert now < next_at <= deadline_at
        assert deadline_step(scoring, deadline_at, next_at - 1)[0] == step
        assert deadline_step(scoring, deadline_at, next_at)[0] > step


@pytest.mark.shows("R-PRI-20")
@given(scorings, near, deadlines)
def test_a_job_is_rescored_nine_times_at_most(
    scoring: Scoring, ready_at: int, deadline_at: int | None
) -> None:
    looks: list[int] = []
    now: int | None = NOW - 200 * HOUR
    while now is not None:
        looks.append(now)
        there = compute_rank(
            scoring, ready_at=ready_at, priority=0, failures=0, deadline_at=deadline_at, now=now
        )
        now = there.rescore_at

    assert looks == sorted(set(looks))
    assert len(looks) - 1 <= STEPS + 1


@given(scorings, near, priorities, deadlines, near, st.integers(0, HOUR))
def test_between_two_rescorings_the_place_does_not_change(
    scoring: Scoring, ready_at: int, priority: int, deadline_at: int | None, now: int, later: int
) -> None:
    there, then = (
        compute_rank(
            scoring, ready_at=ready_at, priority=priority, failures=0, deadline_at=deadline_at, now=at
        )
        for at in (now, now + later)
    )

    assert then == there or (there.rescore_at is not None and there.rescore_at <= now + later)


# ------------------------------------------------------------------ the cap


@pytest.mark.shows("R-PRI-14")
def test_after_fifty_hours_a_job_goes_to_the_capped_class_once() -> None:
    before = found(Scoring(), now=NOW + 50 * HOUR - 1)
    at_the_cap = found(Scoring(), now=NOW + 50 * HOUR)

    assert before == QueueRank(False, NOW, NOW + 50 * HOUR)
    assert at_the_cap == QueueRank(True, 0, None)


def test_the_nearer_of_cap_and_deadline_step_is_when_to_look_again() -> None:
    capped_from = NOW + 50 * HOUR

    far, close = (
        compute_rank(Scoring(), ready_at=NOW, priority=0, failures=0, deadline_at=at, now=NOW)
        for at in (capped_from + 2 * HOUR, NOW + HOUR)
    )

    assert far.rescore_at == capped_from
    assert close.rescore_at == NOW + HOUR // STEPS


def test_a_capped_job_still_climbs_towards_its_deadline() -> None:
    now = NOW + 60 * HOUR

    there = compute_rank(
        Scoring(), ready_at=NOW, priority=0, failures=0, deadline_at=now + 30 * 60_000, now=now
    )

    assert there == QueueRank(True, -7_500 * HOUR // 1_000, now + 30 * 60_000 - 3 * HOUR // STEPS)


@pytest.mark.shows("R-PRI-14")
@given(scorings.filter(lambda scoring: scoring.cap is not None), near, priorities)
def test_the_lead_does_not_jump_when_the_cap_is_reached(
    scoring: Scoring, ready_at: int, priority: int
) -> None:
    now = ready_at + scoring.cap_ms

    capped = found(scoring, ready_at=ready_at, priority=priority, now=now)
    uncapped = found(replace(scoring, cap=None), ready_at=ready_at, priority=priority, now=now)

    assert capped.age_capped
    assert effective_priority(scoring, capped, now) == effective_priority(scoring, uncapped, now)


@pytest.mark.shows("R-EDGE-42")
def test_an_old_job_overtakes_nothing_beyond_the_greatest_bonus() -> None:
    ancient = found(Scoring(), ready_at=NOW - 10_000 * HOUR, priority=0)
    urgent, less_urgent = (found(Scoring(), priority=priority) for priority in (51, 49))

    assert effective_priority(Scoring(), urgent, NOW) > effective_priority(Scoring(), ancient, NOW)
    assert effective_priority(Scoring(), less_urgent, NOW) < effective_priority(Scoring(), ancient, NOW)


@pytest.mark.shows("R-PRI-19")
def test_a_job_of_low_priority_overtakes_new_urgent_ones_in_the_end() -> None:
    scoring = Scoring(cap=None)
    low = found(scoring, ready_at=NOW - 201 * HOUR, priority=MIN_PRIORITY)
    urgent = found(scoring, priority=MAX_PRIORITY)

    assert effective_priority(scoring, low, NOW) > effective_priority(scoring, urgent, NOW)


def test_between_capped_jobs_points_decide_and_not_age() -> None:
    older, better = (
        found(Scoring(), ready_at=NOW - hours * HOUR, priority=priority)
        for hours, priority in ((900, 1), (60, 2))
    )

    assert effective_priority(Scoring(), better, NOW) > effective_priority(Scoring(), older, NOW)


def test_a_queue_without_a_cap_has_no_capped_class() -> None:
    assert Scoring(cap=None).cap_ms == 0
    assert found(Scoring(cap=None), now=NOW + 10_000 * HOUR) == QueueRank(False, NOW, None)


def test_without_a_cap_only_the_deadline_asks_for_a_second_look() -> None:
    there = compute_rank(
        Scoring(cap=None), ready_at=NOW, priority=0, failures=0, deadline_at=NOW + HOUR, now=NOW
    )

    assert there.rescore_at == NOW + HOUR // STEPS


# ------------------------------------------------------------------ arithmetic


@pytest.mark.parametrize(
    ("points", "aging_ms", "worth"),
    [(1_000, HOUR, HOUR), (1, 999, 0), (-1, 999, 0), (1, 1_999, 1), (-1, 1_999, -1), (-1_500, 1, -1)],
)
def test_division_cuts_towards_zero(points: int, aging_ms: int, worth: int) -> None:
    assert points_to_ms(Scoring(aging_ms=aging_ms), points) == worth


@given(st.integers(-200_000, 1_100_000), st.integers(1, STRICT_AGING_MS))
def test_what_points_are_worth_fits_sql_integers_on_the_way(points: int, aging_ms: int) -> None:
    assert abs(points * aging_ms) < 2**63
    assert points_to_ms(Scoring(aging_ms=aging_ms), points) == cut(Fraction(points * aging_ms, 1_000))


def test_in_strict_order_one_point_outweighs_thirty_years() -> None:
    strict = Scoring(aging_ms=STRICT_AGING_MS, cap=None, retry_penalty=0, deadline_weight=0)
    years = ceil(30 * 365.25 * 24) * HOUR

    old, urgent = (found(strict, ready_at=NOW - age, priority=p) for age, p in ((years, 0), (0, 1)))

    assert effective_priority(strict, urgent, NOW) > effective_priority(strict, old, NOW)
