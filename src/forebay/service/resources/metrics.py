"""Metrics for whoever looks: the figures of queues, and time series."""

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
from forebay.worker.status import cpu_seconds, resident_memory

PEEK_LIMIT: Final = 1_000


class MetricResource:
    """What has happened, in figures."""

    def __init__(self, pool: StorePool, requests: RequestStats) -> None:
        self._pool = pool
        self._requests = requests

    async def queues(self, window_seconds: float, can_see: QueueFilter) -> QueueMetricsList:
        """All queues that somebody may see."""
        window_ms = length(window_seconds) or 0

        def look(reader: Reader) -> list[QueueStats]:
            names = [queue.name for queue in reader.queues() if can_see(queue.name)]
            return queue_stats(reader, names, window_ms) if names else []

        limited = self._requests.rate_limited
        return QueueMetricsList(
            queues=[
                queue_metrics(one, rate_limited=limited[one.queue]) for one in await self._pool.read(look)
            ]
        )

    async def exposition(self, can_see: QueueFilter) -> str:
        """All metrics of the queues that somebody may see, as Prometheus reads them."""

        def look(reader: Reader) -> str:
            names = [queue.name for queue in reader.queues() if can_see(queue.name)]
            figures = queue_stats(reader, names) if names else []
            seen = {name: one for name, one in queue_totals(reader).items() if can_see(name)}
            schedules = [one for one in reader.schedules() if can_see(one.definition.job.queue)]
            workers = [one for one in reader.workers() if any(map(can_see, one.queues))]
            return exposition(figures, seen) + worker_metrics(workers, schedules, reader.now())

        return await self._pool.read(look) + request_metrics(self._requests, can_see)

    async def system(self) -> SystemMetrics:
        """What everything takes now: workers, this server, the store."""

        def look(reader: Reader) -> SystemMetrics:
            now = reader.now()
            alive = [one for one in reader.workers() if one.heartbeat_status(now) is not HeartbeatStatus.DEAD]
            return SystemMetrics(
                at=moment_of(now),
                queue_depths={name: counts.pending for name, counts in sorted(reader.counts().items())},
                workers=len(alive),
                workers_memory_bytes=sum(one.memory or 0 for one in alive),
                workers_cpu_cores=sum(one.cpu or 0.0 for one in alive),
                schedules=len(all_schedules(reader)),
                server_memory_bytes=resident_memory(),
                server_cpu_seconds=cpu_seconds(),
                store=store_usage_view(reader.server_usage()),
            )

        return await self._pool.read(look)

    async def queue(self, name: str, window_seconds: float) -> QueueMetrics:
        """One queue; raises QueueNotFound."""
        wanted, window_ms = QueueName(name), length(window_seconds) or 0

        def look(reader: Reader) -> QueueStats:
            if not reader.queues([wanted]):
                raise QueueNotFound(f"there is no queue {name}")
            [found] = queue_stats(reader, [wanted], window_ms, peeks=PEEK_LIMIT)
            return found

        limited = self._requests.rate_limited[name]
        return queue_metrics(await self._pool.read(look), rate_limited=limited, of_one=True)

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
        """Metrics over time, of a queue or of all that somebody may see, of a task or of all; the last hour
        unless a time is given."""
        for name in names:
            if name not in METRICS:
                raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(METRICS)}")
        wanted = None if queue is None else QueueName(queue)

        def look(reader: Reader) -> tuple[SeriesSteps, list[list[float | None]]]:
            until = in_ms("end", end) or reader.now()
            since = in_ms("start", start)
            steps = steps_between(until - HOUR if since is None else since, until, length(resolution_seconds))
            return steps, series(reader, names, steps, queue=wanted, task=task, includes=can_see)

        steps, found = await self._pool.read(look)
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
