"""Permission checks for metrics: a caller gets those of the queues that it may see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.metrics import QueueMetrics, QueueMetricsList, SeriesResponse, SystemMetrics


async def queue_metrics(permit: AuthorizedRequest, queue: str, window_seconds: float) -> QueueMetrics:
    """Show recent metrics of a queue."""
    return await permit.authorize("queue_metrics", queue).metrics.queue(queue, window_seconds)


async def all_metrics(permit: AuthorizedRequest, window_seconds: float) -> QueueMetricsList:
    """Show recent metrics of all queues."""
    may = permit.caller.may
    return await permit.service.metrics.queues(window_seconds, lambda name: may("queue_metrics", name))


async def system_metrics(permit: AuthorizedRequest) -> SystemMetrics:
    """Show the resource usage of workers, this server and the store."""
    return await permit.authorize("system_metrics").metrics.system()


async def exposition(permit: AuthorizedRequest) -> str:
    """Return all metrics in the format of Prometheus."""
    may = permit.caller.may
    return await permit.service.metrics.exposition(lambda name: may("exposition", name))


async def metric_series(
    permit: AuthorizedRequest,
    metrics: Sequence[str],
    *,
    queue: str | None = None,
    task: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    resolution_seconds: float | None = None,
) -> SeriesResponse:
    """Show metrics over time."""
    may = permit.caller.may
    service = permit.service if queue is None else permit.authorize("metric_series", queue)
    return await service.metrics.series(
        metrics,
        lambda name: may("metric_series", name),
        queue=queue,
        task=task,
        start=start,
        end=end,
        resolution_seconds=resolution_seconds,
    )
