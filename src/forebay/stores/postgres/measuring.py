"""Metrics: kept, removed and shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, Stock, packed
from forebay.stores.measuring import ROWS_AT_ONCE, page_of, stock_of
from forebay.stores.postgres.scheduling import Looks
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.rows import Row

T = TypeVar("T")


class _LooksAtMetrics(ABC):
    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def metrics(self, tier: int, since: int, before: int, *, limit: int = ROWS_AT_ONCE) -> MetricPage:
        values: dict[str, object] = {"tier": tier, "since": since, "before": before, "limit": limit}
        return page_of(self._looked("metrics", values), tier, limit)

    def last_metrics(self, tier: int) -> int | None:
        [(start,)] = self._looked("metrics_last", {"tier": tier})
        return None if start is None else int(start)


class LooksAtPostgresMetrics(_LooksAtMetrics, ABC):
    """The part of a handle to look that shows metrics."""

    @abstractmethod
    def _looking(self) -> AbstractContextManager[Looks]: ...

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        with self._looking() as look:
            return look.all(name, values)


class PostgresMetrics(_LooksAtMetrics, ABC):
    """The part of a handle to write that keeps metrics."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        return self._write(lambda tx: tx.all(name, values))

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        def record(tx: Transaction) -> None:
            if rows:
                tx.run("metrics_save", {**_keys(rows), "bodies": [packed(row) for row in rows]})
            if instead_of:
                tx.run("metrics_remove", _keys(instead_of))

        if rows or instead_of:
            self._write(record)

    def forget_metrics(self, tier: int, before: int, limit: int = ROWS_AT_ONCE) -> int:
        return len(self._looked("metrics_prune", {"tier": tier, "before": before, "limit": limit}))

    def take_stock(self) -> dict[QueueName, Stock]:
        return self._write(_stock)


def _stock(tx: Transaction) -> dict[QueueName, Stock]:
    counted: dict[tuple[str, str], int] = {}
    removed: dict[str, int] = {}
    for queue, state, jobs in tx.all("stock"):
        if state is None:
            removed[queue] = jobs
        else:
            counted[queue, state] = jobs
    return stock_of(tx.now, counted, removed)


def _keys(rows: Sequence[MetricRow]) -> dict[str, object]:
    return {
        "tiers": [row.tier for row in rows],
        "starts": [row.start for row in rows],
        "queues": [row.queue for row in rows],
        "workers": [row.worker for row in rows],
    }
