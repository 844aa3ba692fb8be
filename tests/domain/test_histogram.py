"""Histograms: fixed steps, percentiles with a known error, and the same whatever is put together first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.histogram import (
    MAX_TOTAL_US,
    MAX_US,
    NOTHING,
    Histogram,
    bounds_us,
    histogram_of,
    merge_histograms,
    step_of,
)

LENGTHS = st.lists(st.integers(0, MAX_US), min_size=1, max_size=50)


@given(st.integers(0, MAX_US))
def test_a_length_lies_within_the_bounds_of_its_step_and_these_are_narrow(length: int) -> None:
    low, above = bounds_us(step_of(length))

    assert low <= length < above
    assert above - low <= max(1, low / 16)


@given(st.integers(0, 800))
def test_a_step_ends_where_the_next_one_begins(step: int) -> None:
    assert bounds_us(step)[1] == bounds_us(step + 1)[0]
    assert step_of(bounds_us(step)[0]) == step


@given(LENGTHS, st.sampled_from([50, 95, 99, 100]))
def test_a_percentile_is_wrong_by_a_thirty_second_part_at_most(lengths: list[int], percent: int) -> None:
    exact = sorted(lengths)[max(0, -(-len(lengths) * percent // 100) - 1)]

    found = histogram_of(lengths).percentile_ms(percent)

    assert found is not None
    assert abs(found * 1_000 - exact) <= exact / 32 + 1


@given(LENGTHS, LENGTHS)
def test_two_put_together_are_one_of_both(some: list[int], others: list[int]) -> None:
    together = merge_histograms([histogram_of(some), NOTHING, histogram_of(others)])

    assert together == histogram_of(some + others)
    assert together == merge_histograms([histogram_of(others), histogram_of(some)])


def test_what_is_known_exactly_is_told_exactly() -> None:
    found = histogram_of([1_000, 2_000, 6_000])

    assert (found.count, found.average_ms, found.min_ms, found.max_ms) == (3, 3.0, 1.0, 6.0)
    assert found.percentile_ms(100) == pytest.approx(6.0, rel=0.032)
    assert (found.count_within(0.5), found.count_within(2), found.count_within(10)) == (0, 2, 3)


def test_nothing_has_no_average() -> None:
    found = merge_histograms([histogram_of([]), NOTHING])

    assert found == NOTHING == Histogram()
    assert (found.count, found.average_ms, found.min_ms, found.max_ms) == (0, None, None, None)
    assert found.percentile_ms(50) is None


def test_one_alone_stays_what_it_is() -> None:
    one = histogram_of([7])

    assert merge_histograms([one]) is one


def test_lengths_that_cannot_be_are_brought_within_bounds() -> None:
    found = histogram_of([-5, MAX_US + 1])

    assert (found.min_us, found.max_us) == (0, MAX_US)


def test_a_total_does_not_outgrow_what_stores_keep() -> None:
    many = histogram_of([MAX_US] * 2_000)

    assert many.total_us == merge_histograms([many, many]).total_us == MAX_TOTAL_US == 2**63 - 1
