"""Metrics: rows are kept under their keys, read in pages, put together and forgotten; jobs are counted."""

from __future__ import annotations

import pytest

from forebay.domain.histogram import histogram_of
from forebay.domain.job import QueueName
from forebay.domain.metrics import (
    ALL_WORKERS,
    MINUTE,
    TEN_SECONDS,
    MetricRow,
    QueueSnapshot,
    TaskStats,
    roll_up,
)
from forebay.domain.queue_counts import Counts
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.shared.metric_rows import iter_rows
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import T0
from tests.stores.support import WORKER, claim, complete, new_job

START = T0 - T0 % MINUTE


def row(place: int = 0, worker: str = "w", queue: str = "mail", jobs: int = 1) -> MetricRow:
    lengths = histogram_of([1_000] * jobs)
    return MetricRow(
        resolution_ms=TEN_SECONDS,
        starts_at=START + place * TEN_SECONDS,
        queue=QueueName(queue),
        worker=worker,
        tasks={"send": TaskStats({"completed": jobs}, {"Büm": 1}, lengths, lengths)},
    )


def rows_in(reader: Reader | Store) -> list[MetricRow]:
    return list(iter_rows(reader, TEN_SECONDS, 0, START + MINUTE))


@pytest.mark.shows("R-MET-35")
def test_a_row_that_is_written_again_takes_the_place_of_the_first(store: Store, reader: Reader) -> None:
    store.record_metrics([row(), row(queue="a"), row(worker="v"), row(1)])

    store.record_metrics([row(jobs=5), row(1)])

    kept = [row(queue="a"), row(worker="v"), row(jobs=5), row(1)]
    assert rows_in(reader) == kept
    assert rows_in(store) == kept


def test_nothing_to_record_writes_nothing(store: Store, reader: Reader) -> None:
    store.record_metrics([])

    assert rows_in(reader) == []
    assert reader.last_metrics(TEN_SECONDS) is None


def test_rows_are_read_by_tier_and_time_in_pages_of_whole_starts(store: Store, reader: Reader) -> None:
    minute = roll_up([row()], MINUTE)
    store.record_metrics([row(place, worker) for place in range(4) for worker in "uvw"] + minute)

    page = reader.metrics(TEN_SECONDS, START + TEN_SECONDS, START + 3 * TEN_SECONDS, limit=2)
    rest = reader.metrics(TEN_SECONDS, page.next_start or 0, START + 3 * TEN_SECONDS, limit=4)

    assert page.rows == [row(1, "u"), row(1, "v"), row(1, "w")]
    assert rest == ([row(2, "u"), row(2, "v"), row(2, "w")], None)
    assert list(reader.metrics(MINUTE, 0, START + 1).rows) == minute
    assert (reader.last_metrics(TEN_SECONDS), store.last_metrics(MINUTE)) == (START + 30_000, START)


def test_rows_that_were_put_together_give_way_to_the_whole(store: Store, reader: Reader) -> None:
    store.record_metrics([row(worker="u"), row(worker="v"), row(1, "u")])
    parts = [row(worker="u"), row(worker="v")]

    for _ in range(2):
        store.record_metrics(roll_up(parts, TEN_SECONDS), instead_of=parts)

    whole, other = rows_in(reader)
    assert (whole.worker, whole.tasks["send"].counts) == (ALL_WORKERS, {"completed": 2})
    assert other == row(1, "u")


@pytest.mark.shows("R-STORE-42")
def test_old_rows_are_forgotten_a_few_at_a_time(store: Store, reader: Reader) -> None:
    store.record_metrics([row(place, worker) for place in range(4) for worker in "uv"])
    before = START + 3 * TEN_SECONDS

    assert store.prune_metrics(TEN_SECONDS, before, limit=3) == 4
    assert store.prune_metrics(TEN_SECONDS, before) == 2
    assert store.prune_metrics(TEN_SECONDS, before) == 0
    assert store.prune_metrics(MINUTE, before) == 0

    assert rows_in(reader) == [row(3, "u"), row(3, "v")]


def test_rows_that_were_all_removed_leave_nothing_to_find(store: Store, reader: Reader) -> None:
    store.record_metrics([row()])

    store.record_metrics([], instead_of=[row()])

    assert reader.last_metrics(TEN_SECONDS) is None


def test_a_snapshot_says_how_many_jobs_are_here_and_how_many_have_ever_come(
    store: Store, clock: ManualClock
) -> None:
    mail = QueueName("mail")
    receipts = store.insert([new_job(queue=mail) for _ in range(4)])
    store.insert([new_job(queue=mail, delay_ms=60_000), new_job()])
    first = store.snapshot_queues()
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 2, queue=mail)])
    ids = [receipt.id for receipt in receipts if receipt.id is not None]
    store.delete([ids[3]])
    clock.advance(ms=8 * 86_400_000)
    store.prune()

    last = store.snapshot_queues()

    assert first[mail] == QueueSnapshot(T0, Counts(pending=4, scheduled=1), 5, 4)
    assert last[mail].counts.total < 5
    assert (last[mail].accepted, last[QueueName("default")].accepted) == (5, 1)


def test_a_job_that_is_revived_into_another_queue_has_come_to_both(store: Store) -> None:
    mail, other = QueueName("mail"), QueueName("other")
    ids = [receipt.id for receipt in store.insert([new_job(queue=mail)] * 3) if receipt.id is not None]
    store.cancel(ids[:2])

    store.revive(ids[:1], queue=other)
    store.revive(ids[1:2])
    snapshot = store.snapshot_queues()

    assert (snapshot[mail].accepted, snapshot[mail].counts) == (3, Counts(pending=2))
    assert (snapshot[other].accepted, snapshot[other].counts) == (1, Counts(pending=1))
