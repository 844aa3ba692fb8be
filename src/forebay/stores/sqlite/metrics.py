"""Metrics: save, remove, read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.shared.metric_rows import key_of, page_of, row_params, snapshots_of
from forebay.stores.shared.rows import Row
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteMetricReader(ABC):
    """Mixin of store and reader: read side of metrics."""

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


class SqliteMetricStore(SqliteMetricReader, ABC):
    """Mixin of the store: write side of metrics."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def _query(self, name: str, values: dict[str, object]) -> list[Row]:
        return self._write(lambda tx: tx.all(name, values), moves=False)

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        def record(tx: Transaction) -> None:
            for row in rows:
                tx.run("metric_save", row_params(row))
            for row in instead_of:
                tx.run("metric_remove", key_of(row))

        if rows or instead_of:
            self._write(record, moves=False)

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        values = {"resolution_ms": resolution_ms, "before": before, "limit": limit}
        return self._write(lambda tx: tx.run("metrics_prune", values).rowcount, moves=False)

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        return self._write(_snapshot_queues, moves=False)


def _snapshot_queues(tx: Transaction) -> dict[QueueName, QueueSnapshot]:
    counted = {(queue, state): jobs for queue, state, jobs in tx.all("counts", {})}
    return snapshots_of(tx.now, counted, dict(tx.all("removed_counts", {})))
