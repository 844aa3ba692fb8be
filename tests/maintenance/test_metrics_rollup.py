"""Measuring: jobs are counted, rows are rolled up and put together, and what is old goes."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from forebay.domain.histogram import histogram_of
from forebay.domain.job import DAY_MS, DEFAULT_QUEUE
from forebay.domain.metrics import (
    ALL_WORKERS,
    HOUR,
    MINUTE,
    RETENTION_MS,
    SAMPLE,
    TEN_SECONDS,
    MetricRow,
    TaskStats,
    pack_row,
    start_of,
)
from forebay.errors import StoreRefused, StoreUnavailable
from forebay.maintenance.alert_evaluator import AlertEvaluator
from forebay.maintenance.metrics_rollup import COARSE_MS, OVER_MS, MetricsRollup
from forebay.stores.contract.metrics import MetricReader
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.shared.metric_rows import iter_rows
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.app.watched_store import Watched
from tests.stores.support import new_job


def row(at: int, worker: str = "w", jobs: int = 1, tier: int = TEN_SECONDS) -> MetricRow:
    lengths = histogram_of([1_000] * jobs)
    return MetricRow(
        resolution_ms=tier,
        starts_at=start_of(at, tier),
        queue=DEFAULT_QUEUE,
        worker=worker,
        tasks={"t": TaskStats({"completed": jobs}, {}, lengths, lengths)},
    )


def rows(reader: MetricReader, tier: int) -> list[MetricRow]:
    return list(iter_rows(reader, tier, 0, 2**52))


def completed(reader: MetricReader, tier: int) -> list[int]:
    return [one.tasks["t"].counts["completed"] for one in rows(reader, tier) if one.tasks]


@pytest.mark.shows("R-MET-34", "R-BUG-26", "R-HIST-22", "R-BUG-14")
def test_what_workers_have_seen_is_rolled_up_to_minutes_hours_and_days(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job() for _ in range(3)])
    clock.advance(ms=5 * MINUTE)  # into the hour, so that all of it lies in one
    now = clock.now_ms()
    store.record_metrics([row(now - MINUTE, jobs=2), row(now), row(now, "v", jobs=4)])

    for _ in range(2):  # the second time nothing changes
        assert not MetricsRollup(clock).run(store)

    assert completed(reader, MINUTE) == [2, 5]
    assert completed(reader, HOUR) == completed(reader, DAY_MS) == [7]
    [day] = rows(reader, DAY_MS)
    assert day.snapshot is not None
    assert (day.snapshot.accepted, day.snapshot.pending_peak) == (3, 3)


@pytest.mark.shows("R-TEST-40")
def test_cp5_7_aggregation_yields_correct_history_stored_compactly(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    clock.advance(ms=30 * MINUTE)
    now, dice = start_of(clock.now_ms(), MINUTE), Random(7)
    lengths = [[dice.randrange(1_000, 500_000) for _ in range(20)] for _ in range(4 * 6 * 3)]
    written = [
        MetricRow(
            resolution_ms=TEN_SECONDS,
            starts_at=now - 4 * MINUTE + place // 3 * TEN_SECONDS,
            queue=DEFAULT_QUEUE,
            worker=f"w{place % 3}",
            tasks={"t": TaskStats({"completed": len(some)}, {}, histogram_of(some), histogram_of(some))},
        )
        for place, some in enumerate(lengths)
    ]
    store.record_metrics(written)

    MetricsRollup(clock).run(store)

    whole = histogram_of([length for some in lengths for length in some])
    minutes = [one for one in rows(reader, MINUTE) if one.tasks]
    [hour] = [one for one in rows(reader, HOUR) if one.tasks]
    assert completed(reader, MINUTE) == [6 * 3 * 20] * 4
    assert hour.tasks["t"].counts == {"completed": whole.count}
    assert hour.tasks["t"].run == whole
    sizes = [sum(len(pack_row(one)) for one in some) for some in (written, minutes, [hour])]
    assert sizes[0] > 3 * sizes[1] > 3 * sizes[2]


@pytest.mark.shows("R-CFG-62")
def test_jobs_are_counted_every_ten_seconds_and_all_tiers_are_made_within_thirty(clock: ManualClock) -> None:
    assert MetricsRollup(clock).every_ms == 10_000
    assert MetricsRollup(clock).every_ms + COARSE_MS <= 30_000


def test_a_row_that_comes_late_changes_what_was_rolled_up(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    measuring = MetricsRollup(clock)
    store.record_metrics([row(now)])
    measuring.run(store)
    clock.advance(ms=MINUTE)
    store.record_metrics([row(now, "late", jobs=4), row(now + MINUTE)])

    measuring.run(store)

    assert completed(reader, MINUTE) == [5, 1]


def test_after_a_long_silence_it_goes_on_where_rows_are(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    store.record_metrics([row(now - 20 * DAY_MS), row(now - 3 * DAY_MS), row(now)])

    assert not MetricsRollup(clock).run(store)

    assert completed(reader, MINUTE) == [1, 1, 1]
    assert completed(reader, HOUR) == [1, 1, 1]


def test_a_long_past_is_rolled_up_in_several_runs(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    store.record_metrics([row(now - place * HOUR) for place in range(25)])
    measuring = MetricsRollup(clock)

    runs = 1
    while measuring.run(store):
        runs += 1

    assert runs == 3
    assert completed(reader, MINUTE) == [1] * 25


@pytest.mark.shows("R-MET-35")
def test_rows_of_all_workers_become_one_when_no_worker_writes_them_any_more(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    measuring = MetricsRollup(clock)
    now = clock.now_ms()
    store.record_metrics([row(now, "u"), row(now, "v", jobs=2)])
    measuring.run(store)
    assert {one.worker for one in rows(reader, TEN_SECONDS)} == {"u", "v", SAMPLE}

    clock.advance(ms=OVER_MS + MINUTE)
    for _ in range(2):
        MetricsRollup(clock).run(store)

    whole, _ = rows(reader, TEN_SECONDS)
    assert (whole.worker, whole.tasks["t"].counts) == (ALL_WORKERS, {"completed": 3})
    assert whole.snapshot is not None
    assert completed(reader, MINUTE) == [3]


@pytest.mark.shows("R-MET-37", "R-MET-38", "R-MET-39", "R-EDGE-84", "R-CFG-64", "R-CLI-19")
def test_each_tier_is_kept_for_its_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    old = [row(now - kept - tier, jobs=9, tier=tier) for tier, kept in RETENTION_MS.items()]
    young = [row(now - kept + tier, jobs=1, tier=tier) for tier, kept in RETENTION_MS.items()]
    store.record_metrics([*old, *young])

    MetricsRollup(clock).run(store)

    kept = [one for tier in RETENTION_MS for one in rows(reader, tier) if one.worker == "w"]
    assert kept == young
    assert (MetricsRollup.every_ms, AlertEvaluator.every_ms, RETENTION_MS[TEN_SECONDS]) == (
        10_000,
        10_000,
        7 * DAY_MS,
    )


@pytest.mark.shows("R-MET-41")
@pytest.mark.parametrize(
    "fault",
    [StoreUnavailable("it is full"), StoreRefused("it will not"), OverflowError("too large")],
    ids=repr,
)
def test_a_store_that_takes_no_metrics_costs_a_turn_and_old_ones_are_forgotten_all_the_same(
    store: Store, reader: Reader, clock: ManualClock, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store.insert([new_job()])
    store.record_metrics([row(clock.now_ms() - 2 * RETENTION_MS[TEN_SECONDS])])

    def trouble(name: str, _: object) -> None:
        if name == "record_metrics":
            raise fault

    with caplog.at_level(logging.WARNING):
        assert not MetricsRollup(clock).run(Watched(store, trouble).contract)

    assert f"metrics are rolled up at the next run: {fault}" in caplog.text
    assert rows(reader, TEN_SECONDS) == []


def test_a_clock_that_was_ahead_for_a_while_does_not_stop_the_rolling_up(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    measuring = MetricsRollup(clock)
    now = clock.now_ms()
    clock.set(now + 3 * DAY_MS)
    measuring.run(store)
    clock.set(now)
    store.record_metrics([row(now)])

    measuring.run(store)

    assert [completed(reader, tier) for tier in (MINUTE, HOUR, DAY_MS)] == [[1]] * 3


def test_a_row_that_comes_late_for_an_hour_that_is_over_counts_in_it(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    measuring = MetricsRollup(clock)
    end = start_of(clock.now_ms(), DAY_MS) + DAY_MS
    clock.set(end + 5_000)
    store.record_metrics([row(end)])
    measuring.run(store)
    clock.set(end + MINUTE + 30_000)
    store.record_metrics([row(end - TEN_SECONDS, "late", jobs=4)])

    measuring.run(store)

    assert [completed(reader, tier) for tier in (MINUTE, HOUR, DAY_MS)] == [[4, 1]] * 3


def test_hours_and_days_are_not_made_each_time_and_only_those_that_may_change(
    store: Store, clock: ManualClock
) -> None:
    store.insert([new_job()])
    clock.set(start_of(clock.now_ms(), DAY_MS) + DAY_MS + 30 * MINUTE)
    now = clock.now_ms()
    store.record_metrics([row(now - HOUR), row(now)])
    MetricsRollup(clock).run(store)
    requested: list[tuple[int, int]] = []

    def look(name: str, args: tuple[int, ...]) -> None:
        if name == "metrics":
            requested.append((args[0], now - args[1]))

    watched, measuring = Watched(store, look).contract, MetricsRollup(clock)
    measuring.run(watched)
    assert max(since for tier, since in requested if tier == MINUTE) < HOUR
    assert {tier for tier, _ in requested} == {TEN_SECONDS, MINUTE, HOUR}
    requested.clear()

    measuring.run(watched)

    assert {tier for tier, _ in requested} == {TEN_SECONDS}


def test_a_row_that_cannot_be_read_is_left_out(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "jobs.db", clock.now_ms()
    store = SqliteEngine(str(path), clock=clock).store()
    store.insert([new_job()])
    store.record_metrics([row(now, jobs=9), row(now + TEN_SECONDS), row(now + MINUTE, jobs=2)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "update forebay_metrics set body = x'c1' where starts_at = ?", [start_of(now, TEN_SECONDS)]
        )
    clock.advance(ms=2 * MINUTE)

    with caplog.at_level(logging.WARNING):
        assert not MetricsRollup(clock).run(store)

    assert completed(store, MINUTE) == [1, 2]
    assert "metrics of default by 'w'" in caplog.text
    store.close()


def test_who_was_held_up_after_reading_rows_writes_nothing_of_them(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    store.record_metrics([row(clock.now_ms())])

    def hold_up(name: str, _: object) -> None:
        if name == "metrics":
            clock.advance(ms=2 * MINUTE)

    MetricsRollup(clock).run(Watched(store, hold_up, too_late=True).contract)

    assert rows(reader, MINUTE) == []


def test_without_any_job_there_is_nothing_to_count(store: Store, reader: Reader, clock: ManualClock) -> None:
    assert not MetricsRollup(clock).run(store)

    assert rows(reader, TEN_SECONDS) == []
