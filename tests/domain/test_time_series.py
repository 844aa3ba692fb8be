"""Time series: steps without gaps, a value for each, and what came between two counts."""

from __future__ import annotations

import pytest

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.metrics import HOUR, MINUTE, TEN_SECONDS, MetricRow, QueueSnapshot, TaskStats
from forebay.domain.queue_counts import Counts
from forebay.domain.time_series import (
    METRICS,
    SeriesSteps,
    metric_values,
    series_spans,
    span_between,
    steps_between,
)
from forebay.errors import ConfigError
from tests.domain.test_metrics import MAIL, START, row, snapshot, task_stats

STEPS = SeriesSteps(START, START + 30_000, TEN_SECONDS)


def counted(at: int, accepted: int, queue: QueueName = MAIL, pending: int = 0, dead: int = 0) -> MetricRow:
    return row(at, "~", queue, QueueSnapshot(at, Counts(pending=pending, dead=dead), accepted, pending))


@pytest.mark.parametrize(
    ("span", "length"),
    [
        (HOUR, TEN_SECONDS),
        (6 * HOUR, MINUTE),
        (DAY_MS, 5 * MINUTE),
        (7 * DAY_MS, HOUR),
        (90 * DAY_MS, 6 * HOUR),
        (1_000 * DAY_MS, DAY_MS),
        (95 * DAY_MS, DAY_MS),  # there are no rows of hours for all of it
    ],
)
def test_steps_are_chosen_by_the_time_that_is_shown(span: int, length: int) -> None:
    assert steps_between(START, START + span).length == length


@pytest.mark.shows("R-MET-23")
def test_steps_are_whole_and_made_of_the_coarsest_rows_that_fit() -> None:
    found = steps_between(START + 1, START + 50_001, 30_000)

    assert (found.start, found.end, found.tier) == (START, START + 60_000, TEN_SECONDS)
    assert list(found.starts) == [START, START + 30_000]
    assert steps_between(0, DAY_MS, 2 * HOUR).tier == HOUR
    assert steps_between(0, DAY_MS, 5 * MINUTE).tier == MINUTE


@pytest.mark.parametrize(
    ("start", "end", "length"),
    [(5, 5, None), (0, DAY_MS, 15_000), (0, DAY_MS, 0), (0, DAY_MS, TEN_SECONDS), (0, 8 * DAY_MS, 610_000)],
)
def test_what_cannot_be_shown_is_refused(start: int, end: int, length: int | None) -> None:
    with pytest.raises(ConfigError):
        steps_between(start, end, length)


@pytest.mark.shows("R-MET-23")
def test_each_step_has_a_value_also_where_nothing_happened() -> None:
    rows = [
        row(send=task_stats(2, ms=5), sort=TaskStats({"failed": 2, "completed": 2})),
        row(worker="v", send=task_stats(1, ms=5)),
        row(START + 20_000, sort=task_stats(1, ms=9)),
    ]

    found = series_spans(rows, STEPS)

    assert metric_values(found, "completed") == [5, 0, 1]
    assert metric_values(found, "failed") == [2, 0, 0]
    assert metric_values(found, "error_rate") == [pytest.approx(2 / 7), None, 0.0]
    assert metric_values(found, "run_p99_ms") == [
        pytest.approx(5.0, rel=0.032),
        None,
        pytest.approx(9.0, rel=0.032),
    ]
    assert metric_values(found, "wait_average_ms") == [5.0, None, 9.0]
    assert metric_values(series_spans(rows, STEPS, task="sort"), "completed") == [2, 0, 1]


def test_what_was_enqueued_is_told_by_the_counts_before_and_after() -> None:
    new = QueueName("new")
    rows = [
        counted(START - 10_000, 5),
        counted(START, 7, pending=2),
        counted(START + 5_000, 8, pending=3),
        counted(START + 20_000, 8, pending=1),
        counted(START + 20_000, 4, new, pending=4),
    ]

    found = series_spans(rows, STEPS)

    assert metric_values(found, "enqueued") == [3, None, 4]
    assert metric_values(found, "pending") == [3, None, 5]
    assert metric_values(series_spans(rows[1:], STEPS), "enqueued") == [None, None, 4]
    assert metric_values(series_spans(rows, STEPS, task="send"), "enqueued") == [None, None, None]


@pytest.mark.shows("R-DLQ-22", "R-MET-51")
def test_the_dead_letters_there_are_and_how_fast_they_grow_are_metrics() -> None:
    new = QueueName("new")
    rows = [
        counted(START - 10_000, 9, dead=4),
        counted(START, 9, dead=6),
        counted(START + 20_000, 9, dead=1),
        counted(START + 20_000, 2, new, dead=2),
    ]

    found = series_spans(rows, STEPS)

    assert metric_values(found, "dead_letters") == [6, None, 3]
    assert metric_values(found, "dead_letters_growth") == [2, None, -3]
    assert metric_values(series_spans(rows[1:], STEPS), "dead_letters_growth") == [None, None, -3]


def test_the_most_that_waited_is_that_of_each_queue_at_its_worst() -> None:
    rows = [
        counted(START, 10, pending=7),
        counted(START + 5_000, 10, pending=2),
        counted(START + 5_000, 10, QueueName("other"), pending=4),
    ]

    found = series_spans(rows, STEPS)

    assert metric_values(found, "pending_peak") == [11, None, None]
    assert metric_values(series_spans(rows, STEPS, "send"), "pending_peak") == [None, None, None]


def test_jobs_that_have_left_for_another_queue_are_not_taken_away_from_what_came() -> None:
    rows = [counted(START - 10_000, 5), counted(START, 3)]

    assert metric_values(series_spans(rows, STEPS), "enqueued") == [0, None, None]


def test_an_older_count_is_not_taken_for_a_newer_one() -> None:
    rows = [row(snapshot=snapshot(START + 9, 1)), row(worker="v", snapshot=snapshot(START + 3, 2))]

    assert metric_values(series_spans(rows, STEPS), "pending")[0] == 1


def test_every_metric_has_a_value_or_none() -> None:
    for name, metric in METRICS.items():
        assert len(metric_values(series_spans([], STEPS), name)) == len(STEPS.starts)
        assert metric.unit in ("jobs", "ms", "ratio")
    with pytest.raises(ConfigError, match="there is no metric 'nonsense'; there are enqueued, claimed"):
        metric_values([], "nonsense")


def test_a_span_as_a_whole_begins_with_the_last_count_before_it_or_the_first_one_in_it() -> None:
    rows = [counted(START - 10_000, 5), counted(START, 7), counted(START + 10_000, 8, pending=1)]

    assert span_between(rows, START).enqueued == 3
    assert span_between(rows[1:], START).enqueued == 1
    assert span_between(rows[2:], START).enqueued is None
    assert span_between([], START).enqueued is None
    assert (
        span_between([*rows, row(START, send=task_stats(4)), row(0, send=task_stats(9))], START).count(
            "completed"
        )
        == 4
    )
