"""How queues do: what has happened lately and over time, put together from what the store keeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from forebay.domain.histogram import Histogram
from forebay.domain.job import DAY_MS, JobSummary, QueueName
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
from forebay.domain.query import Counts
from forebay.domain.time_series import (
    SeriesSpan,
    SeriesSteps,
    metric_values,
    series_spans,
    span_between,
)
from forebay.domain.worker import HeartbeatStatus
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader
from forebay.stores.shared.metrics import iter_rows

DEFAULT_WINDOW_MS: Final = 5 * MINUTE
MAX_WINDOW_MS: Final = 90 * DAY_MS
QueueFilter = Callable[[QueueName], bool]


class QueueStats(NamedTuple):
    """What a queue has and what it has done in so many milliseconds."""

    queue: QueueName
    window_ms: int
    counts: Counts
    span: SeriesSpan
    tasks: dict[str, TaskStats]
    waits_ms: int | None  # how long the job has waited that is the next; None if none does
    consumers: int
    now: int
    next: Sequence[JobSummary] = ()  # those that come next, as many as were looked at

    def per_second(self, jobs: int | None) -> float | None:
        return None if jobs is None else jobs * 1_000 / self.window_ms

    @property
    def throughput(self) -> float:
        """Completed jobs a second."""
        return self.span.count(MetricEvent.COMPLETED) * 1_000 / self.window_ms

    @property
    def bands(self) -> dict[str, int]:
        """How many of those that come next are in each band of priorities."""
        return count_by_band(job.priority for job in self.next)

    @property
    def oldest_ms(self) -> int | None:
        """How long the oldest of them has waited."""
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
    """The figures of these queues, or of all; by name. Those of the last seconds are not there yet: workers
    write every ten seconds. So many of the jobs that come next are looked at."""
    if not TEN_SECONDS <= window_ms <= MAX_WINDOW_MS:
        raise ConfigError("a window is from 10 seconds to 90 days long")
    now = reader.now()
    counts = reader.counts(queues)
    tier = TEN_SECONDS if window_ms <= HOUR else MINUTE if window_ms <= DAY_MS else HOUR
    start = start_of(now - window_ms, tier)
    by_queue: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in iter_rows(reader, tier, start - tier, now + tier):
        by_queue[row.queue].append(row)
    consumers = _count_consumers(reader, now)
    return [
        _build_queue_stats(
            reader, name, counts[name], by_queue[name], consumers[name], (now, start, window_ms, peeks)
        )
        for name in sorted(counts)
    ]


def _count_consumers(reader: Reader, now: int) -> Counter[QueueName]:
    """How many consumers of each queue are active: workers that are alive, and others by their metrics."""
    found = active_consumers(iter_rows(reader, TEN_SECONDS, now - 2 * ACTIVE_MS, now + TEN_SECONDS), now)
    for one in reader.workers():
        if one.heartbeat_status(now) is not HeartbeatStatus.DEAD:
            found.update(one.queues)
    return found


def _build_queue_stats(
    reader: Reader,
    name: QueueName,
    counts: Counts,
    rows: Sequence[MetricRow],
    consumers: int,
    times: tuple[int, int, int, int],
) -> QueueStats:
    now, start, window_ms, peeks = times
    first = reader.peek(name, peeks) if counts.pending else []
    return QueueStats(
        queue=name,
        window_ms=window_ms,
        counts=counts,
        span=span_between(rows, start),
        tasks=merge_tasks(row.tasks for row in rows if row.starts_at >= start),
        waits_ms=max(0, now - first[0].run_at) if first else None,
        consumers=consumers,
        now=now,
        next=first,
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
    """The values of each of these metrics in each step: of a queue, or of all that `includes` allows. None
    where
    it was forgotten."""
    rows = [
        row
        for row in iter_rows(reader, steps.tier, steps.since, steps.end)
        if (queue is None or row.queue == queue) and (includes is None or includes(row.queue))
    ]
    found = series_spans(rows, steps, task)
    kept_since = reader.now() - RETENTION_MS[steps.tier]
    return [
        [None if start < kept_since else one for start, one in zip(steps.starts, known, strict=True)]
        for known in (metric_values(found, name) for name in names)
    ]


class QueueTotals(NamedTuple):
    """All that was ever counted of a queue; `accepted` is None until somebody has counted its jobs."""

    stats: TaskStats
    accepted: int | None

    def count(self, event: str) -> int:
        return self.stats.counts.get(event, 0)


def queue_totals(reader: Reader) -> dict[QueueName, QueueTotals]:
    """All that was ever counted, by queue. The rows of days make it up, so it only grows, until the first of
    them are forgotten after three years."""
    rows: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in iter_rows(reader, DAY_MS, 0, reader.now() + DAY_MS):
        rows[row.queue].append(row)
    return {queue: _sum_totals(of_queue) for queue, of_queue in sorted(rows.items())}


def _sum_totals(rows: Sequence[MetricRow]) -> QueueTotals:
    stocks = [row.snapshot for row in rows if row.snapshot is not None]
    accepted = max((stock.accepted for stock in stocks), default=None)
    return QueueTotals(merge_stats([tally for row in rows for tally in row.tasks.values()]), accepted)
