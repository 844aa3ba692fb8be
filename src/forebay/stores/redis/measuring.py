"""Metrics: kept, removed and shown."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, Stock, packed
from forebay.stores.measuring import ROWS_AT_ONCE, page_of, stock_of
from forebay.stores.redis.connection import Connection


class LooksAtRedisMetrics:
    """The part of a handle that shows metrics."""

    _connection: Connection

    def metrics(self, tier: int, since: int, before: int, *, limit: int = ROWS_AT_ONCE) -> MetricPage:
        ask = {"tier": tier, "since": since, "before": before, "limit": limit}
        starts, found = self._connection.run("metrics", ask)
        rows = sorted(
            (int(start), *_named(field), body)
            for start, stored in zip(starts, found, strict=True)
            for field, body in zip(stored[::2], stored[1::2], strict=True)
        )
        return page_of(rows, tier, limit)

    def last_metrics(self, tier: int) -> int | None:
        starts = f"{self._connection.address.tag}:metric_starts:{tier}"
        found = self._connection.ask("ZRANGE", starts, 0, 0, "REV")
        return int(found[0]) if found else None


class RedisMetrics(LooksAtRedisMetrics):
    """The part of a handle to write that keeps metrics."""

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        if rows or instead_of:
            ask = {"rows": [_key(row) for row in rows], "gone": [_key(row) for row in instead_of]}
            self._connection.run("record_metrics", ask, *map(packed, rows))

    def forget_metrics(self, tier: int, before: int, limit: int = ROWS_AT_ONCE) -> int:
        ask = {"tier": tier, "before": before, "limit": limit}
        return int(self._connection.run("forget_metrics", ask))

    def take_stock(self) -> dict[QueueName, Stock]:
        now, counts, removed = self._connection.run("take_stock", {})
        counted = {_named(field): int(jobs) for field, jobs in zip(counts[::2], counts[1::2], strict=True)}
        gone = zip(removed[::2], removed[1::2], strict=True)
        return stock_of(now, counted, {queue.decode(): int(jobs) for queue, jobs in gone})


def _key(row: MetricRow) -> tuple[int, int, str, str]:
    return row.tier, row.start, row.queue, row.worker


def _named(field: bytes) -> tuple[str, str]:
    """The queue that a field is about, and the worker or the state; a queue's name has no space."""
    queue, _, other = field.decode().partition(" ")
    return queue, other
