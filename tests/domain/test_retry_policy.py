"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.domain.retry_policy import DEFAULT_POLICY, MAX_DELAY_MS, MAX_RETRIES, PRESETS, Curve, RetryPolicy
from forebay.errors import ConfigError

EXACT: dict[str, Any] = {"jitter_low": 0.0, "jitter_high": 0.0}
rolls = st.floats(0, 1)

policies = st.builds(
    lambda base, factor, bounds, jitter, extra, curve: RetryPolicy(
        base_ms=base,
        factor=factor,
        floor_ms=min(bounds),
        ceiling_ms=max(bounds),
        jitter_low=min(jitter),
        jitter_high=max(jitter),
        jitter_ms=extra,
        curve=curve,
    ),
    st.integers(0, MAX_DELAY_MS),
    st.floats(1, 1e300),
    st.tuples(st.integers(0, MAX_DELAY_MS), st.integers(0, MAX_DELAY_MS)),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    st.integers(0, MAX_DELAY_MS),
    st.sampled_from(Curve),
)


def delays(policy: RetryPolicy, count: int, roll: float = 0.0) -> list[int]:
    return [policy.delay_ms(failures, roll) for failures in range(1, count + 1)]


@pytest.mark.shows("R-RETRY-05", "R-TEST-18", "R-CFG-52", "R-CFG-54")
def test_the_default_waits_one_two_and_four_seconds() -> None:
    assert delays(DEFAULT_POLICY, DEFAULT_POLICY.max_retries) == [1_000, 2_000, 4_000]


@pytest.mark.shows("R-RETRY-19")
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param(
            "cap_5m",
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000],
            [1_100, 2_200, 4_400, 8_800, 17_600, 35_200, 70_400, 140_800, 281_600, 300_000, 300_000],
            marks=pytest.mark.shows("R-RETRY-15"),
        ),
        pytest.param(
            "base_5s",
            [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 900_000, 900_000],
            [10_000, 15_000, 25_000, 45_000, 85_000, 165_000, 325_000, 645_000, 900_000, 900_000],
            marks=pytest.mark.shows("R-RETRY-16"),
        ),
        pytest.param(
            "jitter_both_ways",
            [900, 1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 115_200, 230_400, 460_800, 921_600],
            [1_100, 2_200, 4_400, 8_800, 17_600, 35_200, 70_400, 140_800, 281_600, 563_200, 1_126_400],
            marks=pytest.mark.shows("R-RETRY-17"),
        ),
        pytest.param(
            "base_1m",
            [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000],
            [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000],
            marks=pytest.mark.shows("R-RETRY-18"),
        ),
    ],
)
@pytest.mark.shows("R-CFG-27")
def test_a_preset_reaches_the_delays_its_users_know(name: str, least: list[int], most: list[int]) -> None:
    assert delays(PRESETS[name], len(least), roll=0.0) == least
    assert delays(PRESETS[name], len(most), roll=1.0) == most


@pytest.mark.shows("R-RETRY-02")
@pytest.mark.parametrize(
    ("name", "retries"),
    [("default", 3), ("cap_5m", 3), ("base_5s", 2), ("jitter_both_ways", 3), ("base_1m", 2)],
)
def test_a_preset_brings_its_limit(name: str, retries: int) -> None:
    assert PRESETS[name].max_retries == retries


@pytest.mark.shows("R-RETRY-21")
@pytest.mark.parametrize(
    ("curve", "seconds"),
    [
        (Curve.EXPONENTIAL, [1, 2, 4, 8, 16, 32]),
        (Curve.LINEAR, [1, 2, 3, 4, 5, 6]),
        (Curve.FIBONACCI, [1, 1, 2, 3, 5, 8]),
        (Curve.FIXED, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_a_curve_grows_as_it_is_called(curve: Curve, seconds: list[int]) -> None:
    policy = RetryPolicy(curve=curve, **EXACT)

    assert delays(policy, 6) == [one * 1_000 for one in seconds]


@pytest.mark.shows("R-RETRY-23", "R-TEST-24", "R-CFG-54", "R-TEST-18")
@pytest.mark.parametrize("name", ["default", "cap_5m", "jitter_both_ways", "base_5s"])
@pytest.mark.parametrize("failures", [1, 3, 7])
def test_a_thousand_rolls_stay_inside_the_band_and_differ(name: str, failures: int) -> None:
    policy, dice = PRESETS[name], random.Random(failures)
    grown = policy.base_ms * 2 ** (failures - 1)

    waits = [policy.delay_ms(failures, dice.random()) for _ in range(1_000)]

    assert min(waits) >= grown * (1 + policy.jitter_low)
    assert max(waits) <= grown * (1 + policy.jitter_high) + policy.jitter_ms
    assert len(set(waits)) > 50


@pytest.mark.shows("R-RETRY-22")
def test_without_jitter_chance_changes_nothing() -> None:
    policy = RetryPolicy(**EXACT)

    assert {policy.delay_ms(3, roll / 100) for roll in range(101)} == {4_000}


@pytest.mark.shows("R-RETRY-22")
@pytest.mark.parametrize("failures", [-5, 0, 1])
@pytest.mark.parametrize("curve", Curve)
def test_fewer_than_one_failure_counts_as_one(failures: int, curve: Curve) -> None:
    assert RetryPolicy(curve=curve, **EXACT).delay_ms(failures, 0.0) == 1_000


@pytest.mark.shows("R-RETRY-24")
@pytest.mark.parametrize("curve", [Curve.EXPONENTIAL, Curve.LINEAR, Curve.FIBONACCI])
@pytest.mark.parametrize("factor", [2.0, 1.5, 1e308])
@pytest.mark.parametrize("failures", [100, 5_000, 10**6])
def test_many_failures_end_at_the_ceiling_and_never_overflow(
    curve: Curve, factor: float, failures: int
) -> None:
    policy = RetryPolicy(curve=curve, factor=factor, ceiling_ms=90_000, base_ms=1_000)

    assert policy.delay_ms(failures, 1.0) == 90_000


@given(policies, st.integers(1, 10**6), rolls)
def test_every_delay_is_a_whole_number_between_floor_and_ceiling(
    policy: RetryPolicy, failures: int, roll: float
) -> None:
    wait = policy.delay_ms(failures, roll)

    assert type(wait) is int
    assert policy.floor_ms <= wait <= policy.ceiling_ms


@given(policies, st.integers(1, MAX_RETRIES), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_delay_never_shrinks_with_another_failure(policy: RetryPolicy, failures: int, roll: float) -> None:
    assert policy.delay_ms(failures, roll) <= policy.delay_ms(failures + 1, roll)


@pytest.mark.shows("R-RETRY-17", "R-CFG-54")
@pytest.mark.parametrize("failures", [20, 61, 62, 100])
def test_far_above_the_ceiling_chance_no_longer_shortens_the_wait(failures: int) -> None:
    assert PRESETS["jitter_both_ways"].delay_ms(failures, 0.0) == 3_600_000


@pytest.mark.shows("R-RETRY-17", "R-CFG-54")
@pytest.mark.parametrize("failures", [1, 60, 61, 62, 100, 10**6])
def test_a_base_of_nothing_stays_at_the_floor(failures: int) -> None:
    assert RetryPolicy(base_ms=0).delay_ms(failures, 1.0) == 100


@pytest.mark.shows("R-RETRY-28")
@pytest.mark.parametrize(
    ("policy", "total"),
    [
        (RetryPolicy(max_retries=0), 0),
        (RetryPolicy(max_retries=3, **EXACT), 7_000),
        (RetryPolicy(max_retries=3), 7_700),
        (PRESETS["base_5s"], 25_000),
    ],
)
def test_the_longest_wait_is_the_sum_of_the_worst_delays(policy: RetryPolicy, total: int) -> None:
    assert policy.longest_wait_ms() == total


@pytest.mark.shows("R-ENQ-26")
@pytest.mark.parametrize("count", [0, MAX_RETRIES])
@pytest.mark.parametrize("field", ["max_retries", "max_crashes"])
def test_a_limit_at_its_own_limit_is_allowed(field: str, count: int) -> None:
    assert getattr(replace(RetryPolicy(), **{field: count}), field) == count


@pytest.mark.shows("R-ENQ-26")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", -1),
        ("max_retries", 101),
        ("max_retries", 3.0),
        ("max_retries", True),
        ("max_retries", None),
        ("max_crashes", -1),
        ("max_crashes", 101),
        ("base_ms", -1),
        ("base_ms", MAX_DELAY_MS + 1),
        ("floor_ms", -1),
        ("floor_ms", MAX_DELAY_MS + 1),
        ("ceiling_ms", 99),
        ("ceiling_ms", MAX_DELAY_MS + 1),
        ("jitter_ms", -1),
        ("jitter_ms", MAX_DELAY_MS + 1),
        ("factor", 0.99),
        ("factor", float("inf")),
        ("factor", float("nan")),
        ("jitter_low", -1.1),
        ("jitter_low", 0.2),
        ("jitter_low", float("nan")),
        ("jitter_high", 1.1),
        ("jitter_high", float("nan")),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        RetryPolicy(**{field: value})
