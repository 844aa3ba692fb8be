"""Metrics: save, remove, read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot
from forebay.stores.memory.state import State
from forebay.stores.shared.metric_rows import snapshots_of


def record_rows(state: State, rows: Sequence[MetricRow], instead_of: Sequence[MetricRow]) -> None:
    for row in rows:
        state.write(state.metrics.rows, _row_key(row), row)
    for row in instead_of:
        state.write(state.metrics.rows, _row_key(row), None)


def load_page(state: State, resolution_ms: int, since: int, before: int, limit: int) -> MetricPage:
    keys = sorted(key for key in state.metrics.rows if key[0] == resolution_ms and since <= key[1] < before)
    rows: list[MetricRow] = []
    for _, keys_of_start in groupby(keys, key=lambda key: key[1]):
        if len(rows) >= limit:
            break
        rows += [state.metrics.rows[key] for key in keys_of_start]
    return MetricPage(rows, rows[-1].starts_at + resolution_ms if len(rows) >= limit else None)


def load_last_start(state: State, resolution_ms: int) -> int | None:
    return max(
        (start for resolution, start, _, _ in state.metrics.rows if resolution == resolution_ms), default=None
    )


def prune_rows(state: State, resolution_ms: int, before: int, limit: int) -> int:
    old = load_page(state, resolution_ms, 0, before, limit).rows
    record_rows(state, (), old)
    return len(old)


def snapshot_queues(state: State) -> dict[QueueName, QueueSnapshot]:
    counted: dict[tuple[str, str], int] = {
        (name, each.value): state.count(name, each) for name in state.queues for each in JobState
    }
    return snapshots_of(state.now, counted, state.metrics.removed_counts)


def _row_key(row: MetricRow) -> tuple[int, int, str, str]:
    return row.resolution_ms, row.starts_at, row.queue, row.worker
