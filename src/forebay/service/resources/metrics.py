"""Metrics of queues, workers, requests and the store, with time series."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from forebay.app.schedules import all_schedules
from forebay.domain.job import QueueName
from forebay.domain.metrics import HOUR
from forebay.domain.time_series import METRICS, SeriesSteps, steps_between
from forebay.domain.worker import HeartbeatStatus
from forebay.errors import ConfigError, QueueNotFound
from forebay.operations.queue_stats import QueueFilter, QueueStats, queue_stats, queue_totals, series
from forebay.service.runtime.prometheus import exposition, request_metrics, worker_metrics
from forebay.service.runtime.request_stats import RequestStats
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import in_ms, length, moment_of
from forebay.service.schema.metrics import (
    QueueMetrics,
    QueueMetricsList,
    SeriesResponse,
    SeriesView,
    SystemMetrics,
    queue_metrics,
    store_usage_view,
)
from forebay.stores.contract.reader import Reader
from forebay.worker.process_usage import cpu_seconds, resident_memory

PEEK_LIMIT: Final = 1_000


class MetricResource:
    """Metrics of the store and of this server."""

    def __init__(self, pool: StorePool, requests: RequestStats) -> None:
        self._pool = pool
        self._requests = requests

    async def queues(self, window_seconds: float, can_see: QueueFilter) -> QueueMetricsList:
        """Return the metrics of all visible queues."""
        window_ms = length(window_seconds) or 0

        def load(reader: Reader) -> list[QueueStats]:
            names = [queue.name for queue in reader.queues() if can_see(queue.name)]
            return queue_stats(reader, names, window_ms) if names else []

        limited = self._requests.rate_limited
        return QueueMetricsList(
            queues=[
                queue_metrics(stats, rate_limited=limited[stats.queue])
                for stats in await self._pool.read(load)
            ]
        )

    async def exposition(self, can_see: QueueFilter) -> str:
        """Return all metrics of the visible queues in the format of Prometheus."""

        def load(reader: Reader) -> str:
            names = [queue.name for queue in reader.queues() if can_see(queue.name)]
            stats = queue_stats(reader, names) if names else []
            totals = {name: total for name, total in queue_totals(reader).items() if can_see(name)}
            schedules = [
                schedule for schedule in reader.schedules() if can_see(schedule.definition.job.queue)
            ]
            workers = [worker for worker in reader.workers() if any(map(can_see, worker.queues))]
            return exposition(stats, totals) + worker_metrics(workers, schedules, reader.now())

        return await self._pool.read(load) + request_metrics(self._requests, can_see)

    async def system(self) -> SystemMetrics:
        """Return the resource usage of workers, this server and the store."""

        def load(reader: Reader) -> SystemMetrics:
            now = reader.now()
            alive = [
                worker
                for worker in reader.workers()
                if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD
            ]
            return SystemMetrics(
                at=moment_of(now),
                queue_depths={name: counts.pending for name, counts in sorted(reader.counts().items())},
                workers=len(alive),
                workers_memory_bytes=sum(worker.memory or 0 for worker in alive),
                workers_cpu_cores=sum(worker.cpu or 0.0 for worker in alive),
                schedules=len(all_schedules(reader)),
                server_memory_bytes=resident_memory(),
                server_cpu_seconds=cpu_seconds(),
                store=store_usage_view(reader.server_usage()),
            )

        return await self._pool.read(load)

    async def queue(self, name: str, window_seconds: float) -> QueueMetrics:
        """Return the metrics of one queue; raises QueueNotFound."""
        queue_name, window_ms = QueueName(name), length(window_seconds) or 0

        def load(reader: Reader) -> QueueStats:
            if not reader.queues([queue_name]):
                raise QueueNotFound(f"there is no queue {name}")
            [stats] = queue_stats(reader, [queue_name], window_ms, peeks=PEEK_LIMIT)
            return stats

        limited = self._requests.rate_limited[name]
        return queue_metrics(await self._pool.read(load), rate_limited=limited, of_one=True)

    async def series(
        self,
        names: Sequence[str],
        can_see: QueueFilter,
        *,
        queue: str | None = None,
        task: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        resolution_seconds: float | None = None,
    ) -> SeriesResponse:
        """Return metrics over time: of one queue or all visible ones, of one task or all. Without times it is
        the last hour."""
        for name in names:
            if name not in METRICS:
                raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(METRICS)}")
        queue_name = None if queue is None else QueueName(queue)

        def load(reader: Reader) -> tuple[SeriesSteps, list[list[float | None]]]:
            until = in_ms("end", end) or reader.now()
            since = in_ms("start", start)
            steps = steps_between(until - HOUR if since is None else since, until, length(resolution_seconds))
            return steps, series(reader, names, steps, queue=queue_name, task=task, includes=can_see)

        steps, found = await self._pool.read(load)
        return SeriesResponse(
            start=moment_of(steps.start),
            end=moment_of(steps.end),
            resolution_seconds=steps.length / 1_000,
            times=[moment_of(at) for at in steps.starts],
            series=[
                SeriesView(name=name, unit=METRICS[name].unit, values=values)
                for name, values in zip(names, found, strict=True)
            ],
        )
