"""Metrics as rows of the SQL engines, and reading all rows page by page."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot, pack_row, unpack_row
from forebay.domain.queue_counts import Counts
from forebay.stores.contract.metrics import MAX_ROWS, MetricReader
from forebay.stores.shared.rows import Row

logger: logging.Logger = logging.getLogger(__name__)


def iter_rows(
    handle: MetricReader, resolution_ms: int, since: int, before: int, limit: int = MAX_ROWS
) -> Iterator[MetricRow]:
    """Yield all rows of a resolution in this time span, page by page."""
    next_start: int | None = since
    while next_start is not None:
        page = handle.metrics(resolution_ms, next_start, before, limit=limit)
        yield from page.rows
        next_start = page.next_start


def page_of(rows: Sequence[Row], resolution_ms: int, limit: int) -> MetricPage:
    """Return a page from stored rows, by start, queue and worker. A row that cannot be read must neither
    hide the others nor stop their merging."""
    readable = []
    for start, queue, worker, body in rows:
        try:
            readable.append(unpack_row(resolution_ms, start, queue, worker, body))
        except msgspec.MsgspecError as exc:
            logger.warning("metrics of %s by %r from %d on cannot be read: %s", queue, worker, start, exc)
    return MetricPage(readable, rows[-1][0] + resolution_ms if len(rows) >= limit else None)


def snapshots_of(
    now: int, job_counts: Mapping[tuple[str, str], int], removed: Mapping[str, int]
) -> dict[QueueName, QueueSnapshot]:
    """Return the snapshots of all queues, from jobs by queue and state and from the numbers of removed
    jobs."""
    queues = sorted({queue for queue, _ in job_counts} | removed.keys())
    snapshots = {}
    for name in queues:
        counts = Counts(**{state.value: job_counts.get((name, state.value), 0) for state in JobState})
        accepted = counts.total + removed.get(name, 0)
        snapshots[QueueName(name)] = QueueSnapshot(now, counts, accepted, counts.pending)
    return snapshots


def key_of(row: MetricRow) -> dict[str, object]:
    """Return the key of a row as parameters of statements."""
    return {
        "resolution_ms": row.resolution_ms,
        "starts_at": row.starts_at,
        "queue": row.queue,
        "worker": row.worker,
    }


def row_params(row: MetricRow) -> dict[str, object]:
    """Return a row as parameters of statements."""
    return {**key_of(row), "body": pack_row(row)}
