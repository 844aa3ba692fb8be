"""Measuring: jobs are counted, rows are rolled up and put together, and what is old goes."""

from __future__ import annotations

import logging

import pytest

from forebay.domain.histogram import histogram_of
from forebay.domain.job import DAY_MS, DEFAULT_QUEUE
from forebay.domain.metrics import (
    HOUR,
    KEPT_MS,
    MINUTE,
    SAMPLE,
    TEN_SECONDS,
    TOGETHER,
    MetricRow,
    Tally,
    start_of,
)
from forebay.errors import StoreUnavailable
from forebay.scheduler.measuring import OVER_MS, Measuring
from forebay.stores.measuring import every_row
from forebay.stores.protocol import Reader, Store
from forebay.testing.clock import ManualClock
from tests.app.watching import Watched
from tests.stores.support import new_job


def row(at: int, worker: str = "w", jobs: int = 1, tier: int = TEN_SECONDS) -> MetricRow:
    lengths = histogram_of([1_000] * jobs)
    return MetricRow(
        tier=tier,
        start=start_of(at, tier),
        queue=DEFAULT_QUEUE,
        worker=worker,
        tasks={"t": Tally({"completed": jobs}, {}, lengths, lengths)},
    )


def rows(reader: Reader, tier: int) -> list[MetricRow]:
    return list(every_row(reader, tier, 0, 2**52))


def completed(reader: Reader, tier: int) -> list[int]:
    return [one.tasks["t"].counts["completed"] for one in rows(reader, tier) if one.tasks]


@pytest.mark.shows("R-MET-34", "R-MET-43", "R-HIST-22", "R-TEST-40", "R-BUG-26")
def test_what_workers_have_seen_is_rolled_up_to_minutes_hours_and_days(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job() for _ in range(3)])
    clock.advance(ms=5 * MINUTE)  # into the hour, so that all of it lies in one
    now = clock.now_ms()
    store.record_metrics([row(now - MINUTE, jobs=2), row(now), row(now, "v", jobs=4)])

    for _ in range(2):  # the second time nothing changes
        assert not Measuring().run(store)

    assert completed(reader, MINUTE) == [2, 5]
    assert completed(reader, HOUR) == completed(reader, DAY_MS) == [7]
    [day] = rows(reader, DAY_MS)
    assert day.stock is not None
    assert (day.stock.accepted, day.stock.most_pending) == (3, 3)


def test_a_row_that_comes_late_changes_what_was_rolled_up(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    measuring = Measuring()
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

    assert not Measuring().run(store)

    assert completed(reader, MINUTE) == [1, 1, 1]
    assert completed(reader, HOUR) == [1, 1, 1]


def test_a_long_past_is_rolled_up_in_several_runs(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    store.record_metrics([row(now - place * HOUR) for place in range(25)])
    measuring = Measuring()

    runs = 1
    while measuring.run(store):
        runs += 1

    assert runs == 3
    assert completed(reader, MINUTE) == [1] * 25


@pytest.mark.shows("R-MET-35")
def test_rows_of_all_workers_become_one_when_nobody_writes_them_any_more(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    measuring = Measuring()
    now = clock.now_ms()
    store.record_metrics([row(now, "u"), row(now, "v", jobs=2)])
    measuring.run(store)
    assert {one.worker for one in rows(reader, TEN_SECONDS)} == {"u", "v", SAMPLE}

    clock.advance(ms=OVER_MS + MINUTE)
    for _ in range(2):
        Measuring().run(store)

    whole, _ = rows(reader, TEN_SECONDS)
    assert (whole.worker, whole.tasks["t"].counts) == (TOGETHER, {"completed": 3})
    assert whole.stock is not None
    assert completed(reader, MINUTE) == [3]


@pytest.mark.shows("R-MET-37", "R-MET-38", "R-MET-39", "R-EDGE-84")
def test_each_tier_is_kept_for_its_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job()])
    now = clock.now_ms()
    old = [row(now - kept - tier, jobs=9, tier=tier) for tier, kept in KEPT_MS.items()]
    young = [row(now - kept + tier, jobs=1, tier=tier) for tier, kept in KEPT_MS.items()]
    store.record_metrics([*old, *young])

    Measuring().run(store)

    kept = [one for tier in KEPT_MS for one in rows(reader, tier) if one.worker == "w"]
    assert kept == young


@pytest.mark.shows("R-MET-41")
def test_a_store_that_takes_no_figures_costs_a_turn_and_no_more(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.insert([new_job()])

    def is_full(name: str, _: object) -> None:
        if name == "record_metrics":
            raise StoreUnavailable("it is full")

    with caplog.at_level(logging.WARNING):
        assert not Measuring().run(Watched(store, is_full).seam)

    assert "metrics are left to the next turn: it is full" in caplog.text


def test_without_any_job_there_is_nothing_to_count(store: Store, reader: Reader) -> None:
    assert not Measuring().run(store)

    assert rows(reader, TEN_SECONDS) == []
