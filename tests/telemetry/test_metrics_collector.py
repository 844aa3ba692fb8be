"""Gathering: claims and ends become rows of ten seconds by queue and task, by the store's time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.domain.job import Job, QueueName
from forebay.domain.metrics import MAX_SERIES, OTHER, TEN_SECONDS, MetricRow
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Interrupted, Outcome
from forebay.domain.settlement import Settlement, decide
from forebay.telemetry.metrics_collector import RAW, MetricsCollector
from tests.domain.sample_jobs import NOW, a_job

START = NOW - NOW % TEN_SECONDS
BOOM = AttemptError(type="Boom", message="it broke")


def job(task: str = "send", wait_ms: int = 0, queue: str = "mail") -> Job:
    due_at = NOW - wait_ms
    return a_job(task=task, queue=QueueName(queue), ready_at=due_at, run_at=due_at, started_at=NOW)


def end(
    outcome: Outcome | None = None, seconds: float | None = 0.002, task: str = "send", queue: str = "mail"
) -> tuple[Job, Settlement, float | None]:
    one = job(task, queue=queue)
    return one, decide(one, outcome or Completed(b"1"), 0.0), seconds


def only(rows: list[MetricRow]) -> MetricRow:
    [row] = rows
    return row


@pytest.mark.shows("R-MET-27", "R-MET-34", "R-MET-28", "R-MET-29")
def test_claims_and_ends_of_ten_seconds_become_a_row_for_each_queue() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([job(wait_ms=5), job(wait_ms=15), job("sort", queue="a")], 100.0)
    ends = [end(), end(Failed(BOOM), 0.004), end(Discarded(BOOM), None), end(task="sort", queue="a")]
    gathering.on_settled(ends, 101.0)
    assert gathering.take_rows(101.0) == []

    rows = {row.queue: row for row in gathering.take_rows(111.0)}

    mail = rows[QueueName("mail")]
    assert (mail.resolution_ms, mail.starts_at, mail.worker) == (TEN_SECONDS, START, "w")
    assert mail.tasks["send"].counts == {
        "claimed": 2,
        "completed": 1,
        "failed": 2,
        "retried": 1,
        "dead": 1,
    }
    assert mail.tasks["send"].errors == {"Boom": 2}
    assert (mail.tasks["send"].wait.min_ms, mail.tasks["send"].wait.max_ms) == (5.0, 15.0)
    assert (mail.tasks["send"].run.count, mail.tasks["send"].run.max_ms) == (2, 4.0)
    assert rows[QueueName("a")].tasks["sort"].counts == {"claimed": 1, "completed": 1}
    assert gathering.take_rows(200.0) == []


def test_what_was_handed_back_counts_for_nothing() -> None:
    gathering = MetricsCollector("w")
    gathering.on_settled([end(Interrupted(started=False), None)], 1.0)

    assert only(gathering.take_all_rows()).tasks["send"].counts == {}


def test_a_span_begins_by_the_store_time_that_the_last_claim_has_told() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([job()], 50.0)
    gathering.on_claimed([replace(job(), started_at=NOW + 3 * TEN_SECONDS)], 60.0)

    assert only(gathering.take_rows(60.0)).starts_at == START
    assert only(gathering.take_all_rows()).starts_at == START + 3 * TEN_SECONDS


def test_an_answer_that_took_its_time_does_not_begin_a_span_again() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([replace(job(), started_at=START)], 0.0)
    gathering.on_settled([end()], 10.001)
    gathering.on_claimed([replace(job(), started_at=START + 9_999)], 9.999)
    gathering.on_settled([end()], 10.002)

    rows = gathering.take_all_rows()

    assert [row.starts_at for row in rows] == [START, START + TEN_SECONDS]
    assert [row.tasks["send"].counts for row in rows] == [{"claimed": 1}, {"claimed": 1, "completed": 2}]


def test_after_the_clock_of_the_store_was_set_back_no_row_takes_the_place_of_another() -> None:
    gathering = MetricsCollector("w")
    for minutes in (0, -1, 0, -1):
        gathering.on_claimed([replace(job(), started_at=START + minutes * 60_000)], 5.0)

    rows = gathering.take_all_rows()

    assert [(row.worker, row.starts_at - START) for row in rows] == [
        ("w", 0),
        ("w.1", -60_000),
        ("w.1", 0),
        ("w.2", -60_000),
    ]


def test_what_was_claimed_some_time_ago_tells_the_time_only_if_nothing_else_does() -> None:
    gathering = MetricsCollector("w")
    for seconds in (-80, -85):
        gathering.on_claimed([replace(job(), started_at=START + seconds * 1_000)], 5.0, is_new=False)
    gathering.on_claimed([job()], 6.0)
    gathering.on_claimed([replace(job(), started_at=START - 60_000)], 6.0, is_new=False)

    rows = gathering.take_all_rows()

    assert [(row.worker, row.starts_at - START) for row in rows] == [("w", -80_000), ("w", 0)]
    assert [row.tasks["send"].counts for row in rows] == [{"claimed": 2}] * 2


def test_no_claim_at_all_changes_nothing() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([], 5.0)

    assert gathering.take_all_rows() == []


def test_a_job_that_waited_for_its_time_has_waited_since_then() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([replace(job(wait_ms=60_000), run_at=NOW - 10)], 5.0)

    assert only(gathering.take_all_rows()).tasks["send"].wait.max_ms == 10.0


def test_a_long_list_of_lengths_is_folded_before_the_span_is_over() -> None:
    gathering = MetricsCollector("w")
    for _ in range(3):
        gathering.on_claimed([job(wait_ms=1)] * (RAW // 2 + 1), 5.0)
        gathering.on_settled([end()] * 10, 5.0)

    task_stats = only(gathering.take_all_rows()).tasks["send"]
    assert task_stats.counts["claimed"] == task_stats.wait.count == 3 * (RAW // 2 + 1)
    assert task_stats.counts["completed"] == task_stats.run.count == 30


@pytest.mark.shows("R-EDGE-84")
def test_of_too_many_tasks_the_last_ones_are_one() -> None:
    gathering = MetricsCollector("w", max_series=3)
    gathering.on_claimed([job(f"t{number}") for number in range(5)], 5.0)

    assert set(only(gathering.take_all_rows()).tasks) == {"t0", "t1", "t2", OTHER}
    assert MAX_SERIES == 1_000


def test_counts_that_come_too_late_for_their_span_belong_to_the_present_one() -> None:
    gathering = MetricsCollector("w")
    gathering.on_claimed([job()], 100.0)
    gathering.on_settled([end()], 100.0 + 600)

    row = only(gathering.take_rows(100.0 + 610))

    assert row.starts_at == START + 600_000
    assert row.tasks["send"].counts == {"claimed": 1, "completed": 1}


def test_a_row_tells_the_most_consumers_of_its_span_and_none_of_the_next() -> None:
    gathering = MetricsCollector("w")
    gathering.set_store_time(START, 100.0)
    mail, other = QueueName("mail"), QueueName("other")
    gathering.set_consumers({mail: 1}, 100.0)
    gathering.set_consumers({mail: 3, other: 1}, 101.0)
    gathering.set_consumers({mail: 2}, 102.0)

    rows = gathering.take_rows(111.0)

    assert {row.queue: (row.consumers, row.tasks) for row in rows} == {mail: (3, {}), other: (1, {})}
    assert gathering.take_rows(121.0) == []


def test_consumers_of_too_many_queues_are_not_told() -> None:
    gathering = MetricsCollector("w", max_series=2)
    gathering.set_consumers({QueueName(name): 1 for name in "abc"}, 100.0)

    assert [row.queue for row in gathering.take_all_rows()] == ["a", "b"]


def test_consumers_that_were_seen_too_long_ago_are_not_told_in_the_present_span() -> None:
    gathering = MetricsCollector("w")
    gathering.set_store_time(START, 100.0)
    gathering.set_consumers({QueueName("mail"): 1}, 100.0)

    assert gathering.take_rows(100.0 + 600) == []
