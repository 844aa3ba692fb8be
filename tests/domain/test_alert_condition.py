"""Conditions of alerts: what can be asked, and that nothing else can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.alert_condition import MAX_CONDITION, MAX_DEPTH, parse_condition
from forebay.errors import ConfigError

KNOWN = ("error_rate", "queue_depth", "wait_p99_ms", "wait_p50_ms")
VALUES = {"error_rate": 0.06, "queue_depth": 2_000.0, "wait_p99_ms": 50.0}


@pytest.mark.shows("R-ALERT-02", "R-SEC-09")
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("error_rate > 0.05 AND queue_depth > 1000", True),
        ("error_rate > 0.05 and queue_depth > 2000", False),
        ("queue_depth>=2000", True),
        ("queue_depth < 2000 or error_rate == 0.06", True),
        ("1999 < queue_depth", True),
        ("queue_depth <= 1999", False),
        ("queue_depth != 2000", False),
        ("error_rate > 1 and queue_depth > 1 or queue_depth > 2", True),
        ("error_rate > 1 and (queue_depth > 1 or queue_depth > 2)", False),
        ("  queue_depth > 10 * wait_p99_ms  ", True),
        ("queue_depth > 40 * wait_p99_ms", False),
        # An unknown value is neither more nor less than another.
        ("wait_p50_ms >= 0", False),
        ("wait_p50_ms < 1 or 0 != wait_p50_ms", False),
        ("wait_p99_ms > 10 * wait_p50_ms", False),
    ],
)
def test_a_condition_compares_metrics_and_joins_what_it_finds(condition: str, holds: bool) -> None:
    assert parse_condition(condition, KNOWN).holds(VALUES.get) is holds


def test_a_condition_names_the_metrics_that_it_needs() -> None:
    found = parse_condition("error_rate > 0 and (2 * queue_depth > 1 or error_rate < wait_p50_ms)", KNOWN)

    assert found.metrics() == {"error_rate", "queue_depth", "wait_p50_ms"}


@pytest.mark.shows("R-SEC-09")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "compares metrics"),
        ("   ", "compares metrics"),
        ("depth > 1", "there is no metric 'depth'; there are error_rate, queue_depth"),
        ("__import__('os').system('x') > 1", "cannot contain"),
        ("queue_depth.real > 1", r"cannot contain '\.real > 1'"),
        ("queue_depth > -1", "cannot contain '-1'"),
        ("queue_depth > 1e9", "cannot contain '1e9'"),
        ("queue_depth > 1; drop table jobs", "cannot contain '; drop table jobs'"),
        ("queue_depth", "has the end where one of > >= < <= == != should be"),
        ("queue_depth > ", "has the end where a metric or a number should be"),
        ("queue_depth > and", "has 'and' where a metric or a number should be"),
        ("queue_depth > 1 2", "has '2' where and, or, or the end should be"),
        ("queue_depth > 1 and", "has the end where a metric or a number should be"),
        ("queue_depth > 2 * 3", "has '3' where a metric or a number should be"),
        ("(queue_depth > 1", "has the end where a closing bracket should be"),
        ("queue_depth > 1)", r"has '\)' where and, or, or the end should be"),
        ("1 > 2", "compares two numbers"),
        ("(" * (MAX_DEPTH + 1) + "queue_depth > 1", "at most 20 brackets"),
        ("queue_depth > 1 " * MAX_CONDITION, "at most 500 characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_is_wrong(condition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_condition(condition, KNOWN)


@given(st.text(alphabet="abe_rqudph0159.<>=!()* \t\"'[]{}", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        found = parse_condition(text, KNOWN)
    except ConfigError:
        return
    assert found.holds(VALUES.get) in (True, False)
