"""A worker's metrics: counted with its turns, written when ten seconds are over, never worth a job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from types import FrameType

import pytest

from forebay import Forebay
from forebay.domain.job import DEFAULT_QUEUE
from forebay.domain.metrics import TEN_SECONDS, MetricRow, TaskStats, merge_stats, start_of
from forebay.domain.outcome import AttemptError, Failed
from forebay.errors import StoreRefused, StoreUnavailable
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.shared.metric_rows import iter_rows
from forebay.telemetry.observers import SettledAttempt
from tests.app.watched_store import Watched
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER
from tests.worker.rig import Rig

BOOM = AttemptError(type="Boom", message="it broke")


def rows(reader: Reader) -> list[MetricRow]:
    return list(iter_rows(reader, TEN_SECONDS, 0, 2**52))


@pytest.mark.shows("R-MET-33")
def test_what_a_worker_has_done_is_written_once_the_ten_seconds_are_over(rig: Rig) -> None:
    rig.insert(3)
    coordinator = rig.coordinator(threads=3)
    coordinator.tick()
    [first, *others] = rig.threads.begin()
    rig.clock.advance(ms=20)
    rig.threads.finish(first, Failed(BOOM))
    for one in others:
        rig.threads.finish(one)
    coordinator.tick()
    assert rows(rig.reader) == []

    rig.clock.advance(ms=TEN_SECONDS)
    coordinator.tick()
    coordinator.tick()

    [row] = rows(rig.reader)
    assert row.worker == WORKER
    [task_stats] = row.tasks.values()
    assert task_stats.counts == {"claimed": 3, "completed": 2, "failed": 1, "retried": 1}
    assert task_stats.errors == {"Boom": 1}
    assert (task_stats.run.min_ms, task_stats.run.max_ms) == (20.0, 20.0)


@pytest.mark.shows("R-NFR-28")
def test_metrics_cost_one_call_of_the_store_in_ten_seconds_however_many_jobs_there_are(rig: Rig) -> None:
    rig.insert(30)
    watched = Watched(rig.store)
    coordinator = rig.coordinator(threads=3, store=watched.contract)
    for _ in range(10):
        coordinator.tick()
        for one in rig.threads.begin():
            rig.threads.finish(one)
    coordinator.tick()
    assert set(watched.calls) == {"settle_and_claim"}

    rig.clock.advance(ms=TEN_SECONDS)
    coordinator.tick()
    coordinator.tick()

    assert watched.calls.count("record_metrics") == 1


@pytest.mark.shows("R-NFR-28")
def test_metrics_add_less_than_a_tenth_to_the_calls_that_a_job_costs(rig: Rig) -> None:
    """Calls of functions, in Python and in C, and not time: those are the same on any machine."""
    calls_of(rig, is_measuring=True)  # whatever is made once

    without, with_metrics = (calls_of(rig, is_measuring=is_on) for is_on in (False, True))

    assert with_metrics > without
    assert with_metrics < 1.1 * without


def calls_of(rig: Rig, *, is_measuring: bool) -> int:
    """How many calls it takes to store five hundred jobs, to claim and to settle them."""
    coordinator = rig.coordinator(threads=50, is_measuring=is_measuring)
    called = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    for _ in range(10):
        sys.setprofile(count)
        rig.insert(50)
        coordinator.tick()
        sys.setprofile(None)
        rig.finish_all()
    sys.setprofile(count)
    coordinator.tick()
    coordinator.flush_metrics()
    sys.setprofile(None)
    return called


@pytest.mark.parametrize("metrics", [True, False])
def test_a_worker_keeps_metrics_unless_it_is_told_otherwise(metrics: bool) -> None:
    with Forebay("memory://") as app:

        @app.task(name="nothing")
        def nothing() -> None:
            pass

        with app.run_worker(metrics=metrics):
            nothing.enqueue().wait(timeout=60)

        with closing(app.engine.reader()) as reader:
            assert any(row.tasks for row in rows(reader)) is metrics


def test_what_another_worker_has_taken_over_is_not_counted(rig: Rig) -> None:
    rig.insert(1)
    coordinator = rig.coordinator(threads=1)
    coordinator.tick()
    [one] = rig.threads.begin()
    rig.store.sweep(OTHER_WORKER, dead=[WORKER])
    rig.threads.finish(one)

    coordinator.tick()
    coordinator.flush_metrics()

    [row] = rows(rig.reader)
    assert [task_stats.counts for task_stats in row.tasks.values()] == [{"claimed": 1}]


def test_attempts_that_are_lost_are_counted_by_who_takes_their_jobs_over(rig: Rig) -> None:
    def record_ends(ends: Sequence[SettledAttempt]) -> None:
        coordinator.on_swept(ends)

    sweeping = Sweeper(sweeper=SWEEPER, clock=rig.clock, roll=lambda: 0.5, on_settled=record_ends)
    coordinator = rig.coordinator(threads=1, tasks=[sweeping])
    rig.insert(1)
    rig.store.settle_and_claim(OTHER_WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1)

    for _ in range(2):
        rig.clock.advance(ms=60_000)
        coordinator.tick()
    coordinator.flush_metrics()

    counts = [task_stats.counts for row in rows(rig.reader) for task_stats in row.tasks.values()]
    assert {"lost": 1, "failed": 1, "retried": 1}.items() <= merge_stats(
        [TaskStats(one) for one in counts]
    ).counts.items()


@pytest.mark.shows("R-MET-33", "R-MET-41")
def test_a_store_that_takes_no_metrics_is_asked_again_for_a_while(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = True

    def trouble(name: str, _: object) -> None:
        if name == "record_metrics" and is_full:
            raise StoreUnavailable("it is full")

    rig.insert(1)
    watched = Watched(rig.store, trouble)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    coordinator.tick()
    rig.threads.begin()
    rig.clock.advance(ms=TEN_SECONDS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            coordinator.tick()
    assert watched.calls.count("record_metrics") == 1
    assert "metrics are not written now: it is full" in caplog.text

    is_full = False
    rig.clock.advance(ms=TEN_SECONDS)
    coordinator.tick()

    assert [row.worker for row in rows(rig.reader)] == [WORKER]


def test_metrics_that_were_not_taken_in_time_are_given_up(rig: Rig) -> None:
    is_full = True

    def trouble(name: str, _: object) -> None:
        if name == "record_metrics" and is_full:
            raise StoreUnavailable("it is full")

    rig.insert(1)
    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, trouble).contract)
    coordinator.tick()
    rig.threads.begin()
    rig.clock.advance(ms=TEN_SECONDS)
    coordinator.tick()
    is_full = False
    rig.clock.advance(ms=10 * TEN_SECONDS)

    coordinator.tick()

    assert rows(rig.reader) == []


def test_metrics_of_a_worker_that_did_not_come_to_look_in_time_count_when_it_comes(rig: Rig) -> None:
    rig.insert(1)
    coordinator = rig.coordinator(threads=1)
    coordinator.tick()
    rig.threads.begin()
    rig.clock.advance(ms=11 * TEN_SECONDS)

    coordinator.tick()
    coordinator.flush_metrics()

    [row] = rows(rig.reader)
    assert row.starts_at == start_of(rig.clock.now_ms(), TEN_SECONDS)
    assert [task_stats.counts for task_stats in row.tasks.values()] == [{"claimed": 1}]


@pytest.mark.shows("R-MET-33", "R-MET-41")
@pytest.mark.parametrize("fault", [StoreRefused("it will not"), OverflowError("too large")], ids=repr)
def test_metrics_that_cannot_be_written_at_all_neither_stop_a_worker_nor_hold_it_up(
    rig: Rig, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def trouble(name: str, _: object) -> None:
        if name == "record_metrics":
            raise fault

    rig.insert(1)
    watched = Watched(rig.store, trouble)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    coordinator.tick()
    [one] = rig.threads.begin()
    rig.clock.advance(ms=TEN_SECONDS)

    coordinator.tick()
    rig.threads.finish(one)
    coordinator.tick()
    coordinator.flush_metrics()

    assert watched.calls.count("record_metrics") == 2  # when ten seconds were over, and at the end
    assert f"metrics are not written now: {fault}" in caplog.text
    assert rig.reader.counts()[DEFAULT_QUEUE].completed == 1


def test_a_store_that_is_away_is_not_asked_to_take_the_last_metrics(rig: Rig) -> None:
    is_away = False

    def trouble(_: str, __: object) -> None:
        if is_away:
            raise StoreUnavailable("it is away")

    rig.insert(1)
    watched = Watched(rig.store, trouble)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    coordinator.tick()
    [one] = rig.threads.begin()
    is_away = True
    rig.threads.finish(one)
    coordinator.tick()

    coordinator.flush_metrics()

    assert "record_metrics" not in watched.calls


def test_what_was_claimed_by_a_call_whose_answer_was_lost_is_counted(rig: Rig) -> None:
    is_away = True

    def trouble(_: str, __: object) -> None:
        if is_away:
            raise StoreUnavailable("its answer is lost")

    rig.insert(1)
    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, trouble, too_late=True).contract)
    coordinator.tick()
    is_away = False

    coordinator.tick()
    coordinator.flush_metrics()

    [row] = rows(rig.reader)
    assert [task_stats.counts for task_stats in row.tasks.values()] == [{"claimed": 1}]
