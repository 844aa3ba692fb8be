"""Queue statistics: counts, throughput, waits and time series from the metrics of a store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from forebay.domain.histogram import Histogram
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_views import JobSummary
from forebay.domain.metrics import (
    ACTIVE_MS,
    HOUR,
    MINUTE,
    RETENTION_MS,
    TEN_SECONDS,
    MetricEvent,
    MetricRow,
    TaskStats,
    active_consumers,
    merge_stats,
    merge_tasks,
    start_of,
)
from forebay.domain.priority_bands import count_by_band
from forebay.domain.queue_counts import Counts
from forebay.domain.time_series import SeriesSpan, SeriesSteps, metric_values, series_spans, span_between
from forebay.domain.worker import HeartbeatStatus
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader
from forebay.stores.shared.metric_rows import iter_rows

DEFAULT_WINDOW_MS: Final = 5 * MINUTE
MAX_WINDOW_MS: Final = 90 * DAY_MS
QueueFilter = Callable[[QueueName], bool]


class QueueStats(NamedTuple):
    """Counts and metrics of a queue over a window."""

    queue: QueueName
    window_ms: int
    counts: Counts
    span: SeriesSpan
    tasks: dict[str, TaskStats]
    waits_ms: int | None  # wait of the first pending job so far; None if none is pending
    consumers: int
    now: int
    next: Sequence[JobSummary] = ()  # the next jobs, as many as `peeks`

    def per_second(self, jobs: int | None) -> float | None:
        return None if jobs is None else jobs * 1_000 / self.window_ms

    @property
    def throughput(self) -> float:
        """Completed jobs per second."""
        return self.span.count(MetricEvent.COMPLETED) * 1_000 / self.window_ms

    @property
    def bands(self) -> dict[str, int]:
        """Number of the next jobs in each priority band."""
        return count_by_band(job.priority for job in self.next)

    @property
    def oldest_ms(self) -> int | None:
        """Wait of the oldest of the next jobs."""
        return max((max(0, self.now - job.run_at) for job in self.next), default=None)

    @property
    def wait(self) -> Histogram:
        return self.span.stats.wait

    @property
    def run(self) -> Histogram:
        return self.span.stats.run


def queue_stats(
    reader: Reader,
    queues: Sequence[QueueName] = (),
    window_ms: int = DEFAULT_WINDOW_MS,
    *,
    peeks: int = 1,
) -> list[QueueStats]:
    """Return the statistics of these queues, or of all, by name. With the next `peeks` jobs of each queue.

    The last seconds are missing: workers write their metrics every ten seconds.
    """
    if not TEN_SECONDS <= window_ms <= MAX_WINDOW_MS:
        raise ConfigError("a window is from 10 seconds to 90 days long")
    now = reader.now()
    counts = reader.counts(queues)
    resolution = TEN_SECONDS if window_ms <= HOUR else MINUTE if window_ms <= DAY_MS else HOUR
    start = start_of(now - window_ms, resolution)
    by_queue: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in iter_rows(reader, resolution, start - resolution, now + resolution):
        by_queue[row.queue].append(row)
    consumers = _count_consumers(reader, now)
    return [
        _build_queue_stats(
            reader, name, counts[name], by_queue[name], consumers[name], (now, start, window_ms, peeks)
        )
        for name in sorted(counts)
    ]


def _count_consumers(reader: Reader, now: int) -> Counter[QueueName]:
    """Return the number of active consumers by queue: live workers, and other consumers by their metrics."""
    counts = active_consumers(iter_rows(reader, TEN_SECONDS, now - 2 * ACTIVE_MS, now + TEN_SECONDS), now)
    for worker in reader.workers():
        if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD:
            counts.update(worker.queues)
    return counts


def _build_queue_stats(
    reader: Reader,
    name: QueueName,
    counts: Counts,
    rows: Sequence[MetricRow],
    consumers: int,
    times: tuple[int, int, int, int],
) -> QueueStats:
    now, start, window_ms, peeks = times
    next_jobs = reader.peek(name, peeks) if counts.pending else []
    return QueueStats(
        queue=name,
        window_ms=window_ms,
        counts=counts,
        span=span_between(rows, start),
        tasks=merge_tasks(row.tasks for row in rows if row.starts_at >= start),
        waits_ms=max(0, now - next_jobs[0].run_at) if next_jobs else None,
        consumers=consumers,
        now=now,
        next=next_jobs,
    )


def series(
    reader: Reader,
    names: Sequence[str],
    steps: SeriesSteps,
    *,
    queue: QueueName | None = None,
    task: str | None = None,
    includes: QueueFilter | None = None,
) -> list[list[float | None]]:
    """Return the values of each of these metrics in each step, of a queue or of all that `includes` allows.

    A value is None where the metrics were pruned.
    """
    rows = [
        row
        for row in iter_rows(reader, steps.tier, steps.since, steps.end)
        if (queue is None or row.queue == queue) and (includes is None or includes(row.queue))
    ]
    spans = series_spans(rows, steps, task)
    retained_since = reader.now() - RETENTION_MS[steps.tier]
    return [
        [None if start < retained_since else value for start, value in zip(steps.starts, values, strict=True)]
        for values in (metric_values(spans, name) for name in names)
    ]


class QueueTotals(NamedTuple):
    """All-time totals of a queue; `accepted` is None until its jobs were first counted."""

    stats: TaskStats
    accepted: int | None

    def count(self, event: str) -> int:
        return self.stats.counts.get(event, 0)


def queue_totals(reader: Reader) -> dict[QueueName, QueueTotals]:
    """Return all-time totals by queue. They are sums of the daily rows, so they only grow, until the first
    rows are pruned after three years."""
    rows: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in iter_rows(reader, DAY_MS, 0, reader.now() + DAY_MS):
        rows[row.queue].append(row)
    return {queue: _sum_totals(of_queue) for queue, of_queue in sorted(rows.items())}


def _sum_totals(rows: Sequence[MetricRow]) -> QueueTotals:
    snapshots = [row.snapshot for row in rows if row.snapshot is not None]
    accepted = max((snapshot.accepted for snapshot in snapshots), default=None)
    return QueueTotals(merge_stats([stats for row in rows for stats in row.tasks.values()]), accepted)
