"""Metrics of queues and of the whole system, and time series."""

from __future__ import annotations

from datetime import datetime

from forebay.domain.histogram import Histogram
from forebay.domain.metrics import MetricEvent, TaskStats
from forebay.domain.store_health import ServerUsage, used_ratio
from forebay.domain.time_series import SeriesSpan
from forebay.operations.queue_stats import QueueStats
from forebay.service.schema.base import ResponseModel, seconds
from forebay.service.schema.queues import CountsView, counts_view


class DurationStatsView(ResponseModel, frozen=True, kw_only=True):
    """Distribution of durations in milliseconds; null without any. Percentiles are within 3.2 %."""

    count: int
    average_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None


class TaskMetrics(ResponseModel, frozen=True, kw_only=True):
    """Metrics of a task. `failed` counts attempts: they were `retried`, or their jobs are `dead`. `lost`
    counts failed attempts whose worker died. `error_rate` is the ratio of failed attempts."""

    task: str
    claimed: int
    completed: int
    failed: int
    lost: int
    retried: int
    dead: int
    cancelled: int
    snoozed: int
    error_rate: float | None
    errors: dict[str, int]
    wait: DurationStatsView
    run: DurationStatsView


class QueueMetrics(ResponseModel, frozen=True, kw_only=True):
    """Metrics of a queue: its present counts, and events of the last `window_seconds`.
    `next_pending_age_seconds` is how long the next job to be claimed has waited. `enqueued_per_second` is
    null until jobs were counted twice.

    A request for one queue also returns `pending_by_priority`, how many of the next 1,000 jobs are in each
    band of priorities, and `oldest_pending_age_seconds`, how long the oldest of them has waited.
    `rate_limited_requests` counts refusals of this server since its start.
    """

    queue: str
    window_seconds: float
    counts: CountsView
    claimed: int
    completed: int
    failed: int
    lost: int
    retried: int
    dead: int
    cancelled: int
    snoozed: int
    error_rate: float | None
    errors: dict[str, int]
    wait: DurationStatsView
    run: DurationStatsView
    enqueued_per_second: float | None
    throughput_per_second: float
    next_pending_age_seconds: float | None
    consumers_active: int
    pending_by_priority: dict[str, int]
    oldest_pending_age_seconds: float | None
    rate_limited_requests: int
    tasks: list[TaskMetrics]


class QueueMetricsList(ResponseModel, frozen=True, kw_only=True):
    """Queues by name."""

    queues: list[QueueMetrics]


class SeriesView(ResponseModel, frozen=True, kw_only=True):
    """One metric: a value for each time, null where none is known. `unit` is jobs, ms or ratio."""

    name: str
    unit: str
    values: list[float | None]


class SeriesResponse(ResponseModel, frozen=True, kw_only=True):
    """Metrics over time. `times` are the starts of the steps, oldest first and without gaps."""

    start: datetime
    end: datetime
    resolution_seconds: float
    times: list[datetime]
    series: list[SeriesView]


class StoreUsageView(ResponseModel, frozen=True, kw_only=True):
    """Usage of the store's server; null where there is no such value, or it is not known. `evicted_keys`
    counts evictions since the start of the server."""

    memory_bytes: int | None
    memory_limit_bytes: int | None
    memory_used_ratio: float | None
    connections: int | None
    connection_limit: int | None
    connections_used_ratio: float | None
    evicted_keys: int | None


class SystemMetrics(ResponseModel, frozen=True, kw_only=True):
    """Present resource usage. `workers` counts live ones; `workers_memory_bytes` sums the memory of their
    processes, and `workers_cpu_cores` the cores that they used between their last two heartbeats. `server`
    fields are about the process that answers, since its start. `queue_depths` is the number of pending jobs
    in each queue."""

    at: datetime
    queue_depths: dict[str, int]
    workers: int
    workers_memory_bytes: int
    workers_cpu_cores: float
    schedules: int
    server_memory_bytes: int
    server_cpu_seconds: float
    store: StoreUsageView


def store_usage_view(usage: ServerUsage) -> StoreUsageView:
    return StoreUsageView(
        memory_bytes=usage.memory,
        memory_limit_bytes=usage.memory_limit,
        memory_used_ratio=used_ratio(usage.memory, usage.memory_limit),
        connections=usage.connections,
        connection_limit=usage.connection_limit,
        connections_used_ratio=used_ratio(usage.connections, usage.connection_limit),
        evicted_keys=usage.evicted,
    )


def queue_metrics(stats: QueueStats, *, rate_limited: int = 0, of_one: bool = False) -> QueueMetrics:
    return QueueMetrics(
        queue=stats.queue,
        window_seconds=stats.window_ms / 1_000,
        counts=counts_view(stats.counts),
        **_event_counts(stats.span),
        error_rate=stats.span.error_rate,
        errors=stats.span.stats.errors,
        wait=_duration_stats(stats.wait),
        run=_duration_stats(stats.run),
        enqueued_per_second=stats.per_second(stats.span.enqueued),
        throughput_per_second=stats.throughput,
        next_pending_age_seconds=seconds(stats.waits_ms),
        consumers_active=stats.consumers,
        pending_by_priority=stats.bands if of_one else {},
        oldest_pending_age_seconds=seconds(stats.oldest_ms) if of_one else None,
        rate_limited_requests=rate_limited,
        tasks=[_task_metrics(name, task_stats) for name, task_stats in sorted(stats.tasks.items())],
    )


def _task_metrics(name: str, stats: TaskStats) -> TaskMetrics:
    span = SeriesSpan(stats)
    return TaskMetrics(
        task=name,
        **_event_counts(span),
        error_rate=span.error_rate,
        errors=stats.errors,
        wait=_duration_stats(stats.wait),
        run=_duration_stats(stats.run),
    )


def _event_counts(span: SeriesSpan) -> dict[str, int]:
    return {event.value: span.count(event) for event in MetricEvent}


def _duration_stats(histogram: Histogram) -> DurationStatsView:
    return DurationStatsView(
        count=histogram.count,
        average_ms=histogram.average_ms,
        p50_ms=histogram.percentile_ms(50),
        p95_ms=histogram.percentile_ms(95),
        p99_ms=histogram.percentile_ms(99),
        min_ms=histogram.min_ms,
        max_ms=histogram.max_ms,
    )
