"""Metrics of the Redis engine."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot, pack_row
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.redis.connection import Connection
from forebay.stores.shared.metric_rows import page_of, snapshots_of


class RedisMetricReader:
    """Read side of metrics."""

    _connection: Connection

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        params = {"resolution_ms": resolution_ms, "since": since, "before": before, "limit": limit}
        starts, values = self._connection.run("metrics", params)
        rows = sorted(
            (int(start), *_split_field(field), body)
            for start, stored in zip(starts, values, strict=True)
            for field, body in zip(stored[::2], stored[1::2], strict=True)
        )
        return page_of(rows, resolution_ms, limit)

    def last_metrics(self, resolution_ms: int) -> int | None:
        starts = f"{self._connection.address.tag}:metric_starts:{resolution_ms}"
        newest = self._connection.execute("ZRANGE", starts, 0, 0, "REV")
        return int(newest[0]) if newest else None


class RedisMetricStore(RedisMetricReader):
    """Write side of metrics."""

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        if rows or instead_of:
            params = {"rows": [_key(row) for row in rows], "removed": [_key(row) for row in instead_of]}
            self._connection.run("record_metrics", params, *map(pack_row, rows))

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        params = {"resolution_ms": resolution_ms, "before": before, "limit": limit}
        return int(self._connection.run("prune_metrics", params))

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        now, counts, removed = self._connection.run("snapshot_queues", {})
        counted = {
            _split_field(field): int(jobs) for field, jobs in zip(counts[::2], counts[1::2], strict=True)
        }
        gone = zip(removed[::2], removed[1::2], strict=True)
        return snapshots_of(now, counted, {queue.decode(): int(jobs) for queue, jobs in gone})


def _key(row: MetricRow) -> tuple[int, int, str, str]:
    return row.resolution_ms, row.starts_at, row.queue, row.worker


def _split_field(field: bytes) -> tuple[str, str]:
    """Split a field into the queue, and the worker or state. Names of queues have no space."""
    queue, _, other = field.decode().partition(" ")
    return queue, other
