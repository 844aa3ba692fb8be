"""Metrics: record, merge, prune and list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot, pack_row
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.postgres.transaction import QueryRunner, Transaction
from forebay.stores.shared.metric_rows import page_of, snapshots_of
from forebay.stores.shared.rows import Row

T = TypeVar("T")


class _MetricQueries(ABC):
    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        values: dict[str, object] = {
            "resolution_ms": resolution_ms,
            "since": since,
            "before": before,
            "limit": limit,
        }
        return page_of(self._query("metrics", values), resolution_ms, limit)

    def last_metrics(self, resolution_ms: int) -> int | None:
        [(start,)] = self._query("metrics_last", {"resolution_ms": resolution_ms})
        return None if start is None else int(start)


class PostgresMetricReader(_MetricQueries, ABC):
    """Metric part of a read handle."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def _query(self, name: str, values: dict[str, object]) -> list[Row]:
        with self._open_snapshot() as snapshot:
            return snapshot.all(name, values)


class PostgresMetricStore(_MetricQueries, ABC):
    """Metric part of a write handle."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def _query(self, name: str, values: dict[str, object]) -> list[Row]:
        return self._write(lambda tx: tx.all(name, values))

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        def record(tx: Transaction) -> None:
            if rows:
                tx.run("metrics_save", {**_keys(rows), "bodies": [pack_row(row) for row in rows]})
            if instead_of:
                tx.run("metrics_remove", _keys(instead_of))

        if rows or instead_of:
            self._write(record)

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        return len(
            self._query("metrics_prune", {"resolution_ms": resolution_ms, "before": before, "limit": limit})
        )

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        return self._write(_snapshot_queues)


def _snapshot_queues(tx: Transaction) -> dict[QueueName, QueueSnapshot]:
    counted: dict[tuple[str, str], int] = {}
    removed: dict[str, int] = {}
    for queue, state, jobs in tx.all("queue_snapshots"):
        if state is None:
            removed[queue] = jobs
        else:
            counted[queue, state] = jobs
    return snapshots_of(tx.now, counted, removed)


def _keys(rows: Sequence[MetricRow]) -> dict[str, object]:
    return {
        "resolution_ms": [row.resolution_ms for row in rows],
        "starts_at": [row.starts_at for row in rows],
        "queues": [row.queue for row in rows],
        "workers": [row.worker for row in rows],
    }
