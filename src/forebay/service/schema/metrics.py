"""Shapes of metrics: the figures of queues, and time series."""

from __future__ import annotations

from datetime import datetime

from forebay.domain.histogram import Histogram
from forebay.domain.metrics import MetricEvent, TaskStats
from forebay.domain.query import ServerUsage, used_ratio
from forebay.domain.time_series import SeriesSpan
from forebay.operations.queue_stats import QueueStats
from forebay.service.schema.base import ResponseModel, seconds
from forebay.service.schema.queues import CountsView, counts_view


class DurationStatsView(ResponseModel, frozen=True, kw_only=True):
    """How long something took, in milliseconds; null where nothing did. Percentiles are right to 3.2 %."""

    count: int
    average_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None


class TaskMetrics(ResponseModel, frozen=True, kw_only=True):
    """What became of the jobs of a task. `failed` counts attempts: they were `retried`, or their jobs are
    `dead`. Of these `lost` went with their workers. `error_rate` is the share of failed attempts."""

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
    """A queue now and in the last seconds. `next_pending_age_seconds` is how long the job has waited that
    would be claimed next; `enqueued_per_second` is null while jobs were counted only once. Of a queue that
    was asked for by its name `pending_by_priority` tells how many of the next 1,000 jobs are in which band of
    priorities, and `oldest_pending_age_seconds` how long the oldest of them has waited.
    `rate_limited_requests` is how many this server has refused since it was started."""

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
    """One metric: a value for each time, null where nothing is known. `unit` is jobs, ms or share."""

    name: str
    unit: str
    values: list[float | None]


class SeriesResponse(ResponseModel, frozen=True, kw_only=True):
    """Metrics over time. `times` are the beginnings of the steps, oldest first and without gaps."""

    start: datetime
    end: datetime
    resolution_seconds: float
    times: list[datetime]
    series: list[SeriesView]


class StoreUsageView(ResponseModel, frozen=True, kw_only=True):
    """How much of what its server has the store uses; null where there is no such thing, or nobody says.
    `evicted_keys` counts what the server has thrown away since it was started."""

    memory_bytes: int | None
    memory_limit_bytes: int | None
    memory_used_ratio: float | None
    connections: int | None
    connection_limit: int | None
    connections_used_ratio: float | None
    evicted_keys: int | None


class SystemMetrics(ResponseModel, frozen=True, kw_only=True):
    """What everything takes now. `workers` are those that are alive; their memory is that of their processes,
    and their processor time is how many cores they took between their last two beats. `server` is the process
    that answers, since it was started. `queue_depths` is how many jobs wait in each queue."""

    at: datetime
    queue_depths: dict[str, int]
    workers: int
    workers_memory_bytes: int
    workers_cpu_cores: float
    schedules: int
    server_memory_bytes: int
    server_cpu_seconds: float
    store: StoreUsageView


def store_usage_view(vitals: ServerUsage) -> StoreUsageView:
    return StoreUsageView(
        memory_bytes=vitals.memory,
        memory_limit_bytes=vitals.memory_limit,
        memory_used_ratio=used_ratio(vitals.memory, vitals.memory_limit),
        connections=vitals.connections,
        connection_limit=vitals.connection_limit,
        connections_used_ratio=used_ratio(vitals.connections, vitals.connection_limit),
        evicted_keys=vitals.evicted,
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
        tasks=[_task_metrics(name, tally) for name, tally in sorted(stats.tasks.items())],
    )


def _task_metrics(name: str, tally: TaskStats) -> TaskMetrics:
    span = SeriesSpan(tally)
    return TaskMetrics(
        task=name,
        **_event_counts(span),
        error_rate=span.error_rate,
        errors=tally.errors,
        wait=_duration_stats(tally.wait),
        run=_duration_stats(tally.run),
    )


def _event_counts(span: SeriesSpan) -> dict[str, int]:
    return {what.value: span.count(what) for what in MetricEvent}


def _duration_stats(lengths: Histogram) -> DurationStatsView:
    return DurationStatsView(
        count=lengths.count,
        average_ms=lengths.average_ms,
        p50_ms=lengths.percentile_ms(50),
        p95_ms=lengths.percentile_ms(95),
        p99_ms=lengths.percentile_ms(99),
        min_ms=lengths.min_ms,
        max_ms=lengths.max_ms,
    )
