"""Promoting, rescoring and pruning: one bounded batch, and whether there is more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from forebay.clock import SystemClock
from forebay.domain.job import WorkerId
from forebay.domain.queue_counts import Counts
from forebay.maintenance.due_job_promoter import Promoter
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.maintenance.metrics_rollup import MetricsRollup
from forebay.maintenance.pruner_and_audit_chain import Pruner
from forebay.maintenance.rank_rescorer import Rescorer
from forebay.operations.maintenance_task import MaintenanceTask, run_due_tasks
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, everything, new_job

MINUTE = 60_000
DAY = 86_400_000


def all_tasks() -> list[MaintenanceTask]:
    clock = SystemClock()
    sweeping = Sweeper(sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.5)
    return [Promoter(), Rescorer(), Pruner(), MetricsRollup(clock), sweeping]


def test_every_maintenance_task_has_a_name_of_its_own_and_a_time() -> None:
    tasks = all_tasks()

    assert len({task.name for task in tasks}) == len(tasks)
    assert all(0 < task.every_ms <= 30_000 for task in tasks)


@pytest.mark.parametrize("make", [Promoter, Rescorer, Pruner, partial(MetricsRollup, SystemClock())])
def test_a_maintenance_task_with_nothing_to_do_says_so(
    store: Store, make: Callable[[], MaintenanceTask]
) -> None:
    task = make()

    assert task.is_ready
    assert not task.run(store)


def counts(reader: Reader) -> Counts:
    [counted] = reader.counts().values()
    return counted


# ------------------------------------------------------------------ promoting


@pytest.mark.shows("R-JOB-54")
def test_promoting_makes_due_jobs_pending(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job(delay_ms=MINUTE), new_job(delay_ms=2 * MINUTE)])
    clock.advance(ms=MINUTE)

    assert not Promoter().run(store)
    assert counts(reader) == Counts(pending=1, scheduled=1)


def test_promoting_cancels_what_has_expired(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job(expires_at=clock.now_ms() + MINUTE)])
    clock.advance(ms=MINUTE)

    Promoter().run(store)

    assert counts(reader) == Counts(cancelled=1)


def test_promoting_takes_a_batch_at_a_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.insert([new_job(delay_ms=MINUTE)] * 25)
    clock.advance(ms=MINUTE)
    task = Promoter(batch=10)

    assert task.run(store)
    assert counts(reader) == Counts(pending=10, scheduled=15)
    assert [task.run(store), task.run(store)] == [True, False]
    assert counts(reader) == Counts(pending=25)


# ------------------------------------------------------------------ rescoring


@pytest.mark.shows("R-PRI-20")
def test_rescoring_moves_a_job_ahead_when_its_deadline_nears(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job(task="first"), new_job(task="urgent", deadline_at=clock.now_ms() + 60 * MINUTE)])
    clock.advance(ms=30 * MINUTE)

    before = [job.task for job in reader.peek(reader.queues()[0].name)]
    run_due_tasks(store, [Rescorer()])
    after = [job.task for job in reader.peek(reader.queues()[0].name)]

    assert (before, after) == (["first", "urgent"], ["urgent", "first"])


@pytest.mark.shows("R-PRI-24")
def test_rescoring_goes_on_until_a_reordering_is_done(store: Store, reader: Reader) -> None:
    store.insert([new_job()] * 25)
    [queue] = reader.queues()
    store.save_queue(queue.name, {"mode": "fifo"})
    task = Rescorer(batch=10)

    seen = [reader.queues()[0].is_rescoring]
    while task.run(store):
        seen.append(reader.queues()[0].is_rescoring)

    assert len(seen) >= 3
    assert (seen[0], reader.queues()[0].is_rescoring) == (True, False)


# ------------------------------------------------------------------ pruning


@pytest.mark.shows("R-HIST-10")
def test_pruning_forgets_final_jobs_past_their_retention(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()] * 25)
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 25)])
    store.insert([new_job()])
    clock.advance(ms=7 * DAY)
    task = Pruner(batch=10)

    assert [task.run(store), task.run(store), task.run(store)] == [True, True, False]
    assert [job.state for job in everything(reader)] == ["pending"]
