"""Rows of metrics: what is counted, how rows are put together, and that there is a bound to everything."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from forebay.domain.histogram import histogram_of
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.metrics import (
    ALL_WORKERS,
    FINER,
    HOUR,
    MAX_ERRORS,
    MAX_SERIES,
    MINUTE,
    OTHER,
    RETENTION_MS,
    TEN_SECONDS,
    MetricRow,
    QueueSnapshot,
    TaskStats,
    active_consumers,
    bound_errors,
    merge_stats,
    merge_tasks,
    metric_events,
    pack_row,
    roll_up,
    start_of,
    unpack_row,
)
from forebay.domain.queue_counts import Counts
from forebay.domain.settlement import OutcomeKind

START = 1_700_000_040_000  # a whole minute
MAIL = QueueName("mail")


def task_stats(completed: int = 1, ms: int = 5, **errors: int) -> TaskStats:
    lengths = histogram_of([ms * 1_000] * completed)
    return TaskStats({"completed": completed}, errors, lengths, lengths)


def row(
    start: int = START,
    worker: str = "w",
    queue: QueueName = MAIL,
    snapshot: QueueSnapshot | None = None,
    **tasks: TaskStats,
) -> MetricRow:
    return MetricRow(
        resolution_ms=TEN_SECONDS, starts_at=start, queue=queue, worker=worker, tasks=tasks, snapshot=snapshot
    )


def snapshot(at: int, pending: int) -> QueueSnapshot:
    return QueueSnapshot(at, Counts(pending=pending), pending, pending)


@pytest.mark.parametrize(
    ("outcome", "state", "counted"),
    [
        (OutcomeKind.COMPLETED, JobState.COMPLETED, ["completed"]),
        (OutcomeKind.FAILED, JobState.RETRYING, ["failed", "retried"]),
        (OutcomeKind.FAILED, JobState.DEAD, ["failed", "dead"]),
        (OutcomeKind.DISCARDED, JobState.DEAD, ["failed", "dead"]),
        (OutcomeKind.LOST, JobState.PENDING, ["lost", "failed", "retried"]),
        (OutcomeKind.CANCELLED, JobState.CANCELLED, ["cancelled"]),
        (OutcomeKind.SNOOZED, JobState.SCHEDULED, ["snoozed"]),
        (OutcomeKind.INTERRUPTED, JobState.PENDING, []),
        (OutcomeKind.PARKED, JobState.PENDING, []),
    ],
)
def test_each_end_of_an_attempt_is_counted_for_what_it_is(
    outcome: OutcomeKind, state: JobState, counted: list[str]
) -> None:
    assert metric_events(outcome, state) == counted


def test_a_row_comes_back_as_it_was_stored() -> None:
    kept = row(send=task_stats(3, Boom=1), snapshot=snapshot(START, 4))

    assert unpack_row(TEN_SECONDS, START, "mail", "w", pack_row(kept)) == kept


@pytest.mark.parametrize("states", [4, 12])
def test_a_snapshot_that_knows_fewer_states_or_more_can_be_read(states: int) -> None:
    body = msgspec.msgpack.encode([{}, [START, list(range(states)), 7, 2]])

    found = unpack_row(TEN_SECONDS, START, "mail", "w", body).snapshot

    assert found is not None
    assert [getattr(found.counts, state) for state in JobState][:4] == [0, 1, 2, 3]


def test_a_span_begins_at_a_whole_multiple_of_itself() -> None:
    assert start_of(START + 19_999, TEN_SECONDS) == START + TEN_SECONDS
    assert start_of(START + 59_999, MINUTE) == START


@pytest.mark.shows("R-MET-34", "R-MET-38")
def test_rows_are_rolled_up_by_queue_and_time_with_all_workers_together() -> None:
    other = QueueName("other")
    rows = [
        row(send=task_stats(1, ms=1, Boom=1), snapshot=snapshot(START, 9)),
        row(worker="v", send=task_stats(2, ms=4, Boom=2), sort=task_stats(1)),
        row(START + 50_000, snapshot=snapshot(START + 50_000, 3)),
        row(START + MINUTE, queue=other, sort=task_stats(1)),
    ]

    first, second = roll_up(reversed(rows), MINUTE)

    assert (first.resolution_ms, first.starts_at, first.queue, first.worker) == (
        MINUTE,
        START,
        MAIL,
        ALL_WORKERS,
    )
    assert first.tasks["send"].counts == {"completed": 3}
    assert first.tasks["send"].errors == {"Boom": 3}
    assert (first.tasks["send"].run.min_ms, first.tasks["send"].run.max_ms) == (1.0, 4.0)
    assert first.tasks["sort"] == task_stats(1)
    assert first.snapshot == QueueSnapshot(START + 50_000, Counts(pending=3), 3, 9)
    assert (second.starts_at, second.queue, second.snapshot) == (START + MINUTE, other, None)


def test_rolled_up_in_two_steps_or_in_one_it_is_the_same() -> None:
    rows = [row(START + place * 10_000, send=task_stats(place + 1)) for place in range(20)]

    assert roll_up(roll_up(rows, MINUTE), HOUR) == roll_up(rows, HOUR)
    assert roll_up(roll_up(rows, TEN_SECONDS), MINUTE) == roll_up(rows, MINUTE)


def test_nothing_at_all_makes_empty_stats() -> None:
    assert merge_stats([]) == TaskStats()


def test_of_too_many_tasks_the_least_busy_ones_are_one() -> None:
    tasks = {f"t{number}": task_stats(2 if number == MAX_SERIES else 1) for number in range(MAX_SERIES + 1)}

    found = merge_tasks([tasks])

    assert len(found) == MAX_SERIES
    assert f"t{MAX_SERIES}" in found
    assert sum(one.counts["completed"] for one in found.values()) == MAX_SERIES + 2
    assert OTHER in found
    again = merge_tasks([found, tasks])
    assert len(again) <= MAX_SERIES
    assert sum(one.counts["completed"] for one in again.values()) == 2 * (MAX_SERIES + 2)


def test_of_too_many_types_of_error_the_rare_ones_are_one() -> None:
    errors = {OTHER: 100} | {f"E{number:02}": number + 1 for number in range(MAX_ERRORS)}

    found = bound_errors(errors)

    assert len(found) == MAX_ERRORS
    assert found[OTHER] == 100 + 1
    assert sum(found.values()) == sum(errors.values())
    assert bound_errors(found) is found


def test_tiers_are_kept_for_a_week_a_month_and_a_quarter() -> None:
    assert {tier: kept // DAY_MS for tier, kept in RETENTION_MS.items()} == {
        10_000: 7,
        60_000: 30,
        3_600_000: 90,
        DAY_MS: 1_100,
    }
    assert all(tier % finer == 0 for tier, finer in FINER.items())


def test_consumers_of_all_claimants_count_at_their_most_for_as_long_as_they_were_seen_lately() -> None:
    def seen(worker: str, seconds: int, consumers: int, queue: QueueName = MAIL) -> MetricRow:
        start = START - seconds * 1_000
        return MetricRow(
            resolution_ms=TEN_SECONDS, starts_at=start, queue=queue, worker=worker, consumers=consumers
        )

    other = QueueName("other")
    rows = [
        *(seen("a", 50, 9), seen("a", 30, 2), seen("a", 20, 3), seen("a", 10, 1)),
        *(seen("b", 40, 1), seen("b", 10, 0), seen("b", 10, 1, other)),
    ]

    assert active_consumers(rows, START + 1) == {MAIL: 4, other: 1}


def test_a_row_is_read_with_the_consumers_it_was_written_with_and_an_older_one_without() -> None:
    written = replace(row(send=task_stats()), consumers=7)
    key = written.resolution_ms, written.starts_at, written.queue, written.worker

    assert unpack_row(*key, pack_row(written)) == written
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(pack_row(written))[:2])
    assert unpack_row(*key, older) == replace(written, consumers=0)
