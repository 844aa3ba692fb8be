"""Metrics: kept, removed and shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, Stock
from forebay.stores.measuring import ROWS_AT_ONCE, key_of, page_of, stock_of, stored
from forebay.stores.rows import Row
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class LooksAtSqliteMetrics(ABC):
    """The part of a handle that shows metrics."""

    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def metrics(self, tier: int, since: int, before: int, *, limit: int = ROWS_AT_ONCE) -> MetricPage:
        values: dict[str, object] = {"tier": tier, "since": since, "before": before, "limit": limit}
        return page_of(self._looked("metrics", values), tier, limit)

    def last_metrics(self, tier: int) -> int | None:
        [(start,)] = self._looked("metrics_last", {"tier": tier})
        return None if start is None else int(start)


class SqliteMetrics(LooksAtSqliteMetrics, ABC):
    """The part of a handle to write that keeps metrics."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        return self._write(lambda tx: tx.all(name, values), moves=False)

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        def record(tx: Transaction) -> None:
            for row in rows:
                tx.run("metric_save", stored(row))
            for row in instead_of:
                tx.run("metric_remove", key_of(row))

        if rows or instead_of:
            self._write(record, moves=False)

    def forget_metrics(self, tier: int, before: int, limit: int = ROWS_AT_ONCE) -> int:
        values = {"tier": tier, "before": before, "limit": limit}
        return self._write(lambda tx: tx.run("metrics_prune", values).rowcount, moves=False)

    def take_stock(self) -> dict[QueueName, Stock]:
        return self._write(_stock, moves=False)


def _stock(tx: Transaction) -> dict[QueueName, Stock]:
    counted = {(queue, state): jobs for queue, state, jobs in tx.all("counts", {})}
    return stock_of(tx.now, counted, dict(tx.all("removed", {})))
