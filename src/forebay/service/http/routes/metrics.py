"""Routes for metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from litestar import get, head
from litestar.params import QueryParameter

from forebay.domain.job import DAY_MS
from forebay.domain.job_validation import MAX_TASK_NAME
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS
from forebay.service.http.request_context import HttpRequest, QueuePath, permit_of
from forebay.service.permissions import metrics as permitted
from forebay.service.runtime.prometheus import CONTENT_TYPE
from forebay.service.schema.metrics import QueueMetrics, QueueMetricsList, SeriesResponse, SystemMetrics

WindowQuery = Annotated[
    float,
    QueryParameter(ge=10, le=MAX_WINDOW_MS / 1_000, description="Length of the window, in seconds."),
]
MetricsQuery = Annotated[
    str,
    QueryParameter(
        description="Comma-separated names of metrics.",
        pattern="^[a-z0-9_]{1,40}(,[a-z0-9_]{1,40}){0,19}$",
    ),
]
QueueQuery = Annotated[
    str | None, QueryParameter(description="Of this queue only.", pattern="^[A-Za-z0-9_.-]{1,50}$")
]
TaskQuery = Annotated[
    str | None, QueryParameter(description="Of this task only.", min_length=1, max_length=MAX_TASK_NAME)
]
StartQuery = Annotated[
    datetime | None, QueryParameter(description="Start of the time range, with a time zone.")
]
EndQuery = Annotated[datetime | None, QueryParameter(description="End of the time range, with a time zone.")]
ResolutionQuery = Annotated[
    float | None,
    QueryParameter(
        ge=10, le=DAY_MS / 1_000 * 30, description="Length of a step in seconds: a multiple of 10."
    ),
]
_WINDOW = DEFAULT_WINDOW_MS / 1_000


@get("/v1/metrics/queues", tags=["metrics"])
async def all_metrics(request: HttpRequest, window_seconds: WindowQuery = _WINDOW) -> QueueMetricsList:
    """Show recent metrics of all queues."""
    return await permitted.all_metrics(permit_of(request), window_seconds)


@get("/v1/metrics/queues/{queue:str}", tags=["metrics"])
async def queue_metrics(
    request: HttpRequest, queue: QueuePath, window_seconds: WindowQuery = _WINDOW
) -> QueueMetrics:
    """Show recent metrics of a queue."""
    return await permitted.queue_metrics(permit_of(request), queue, window_seconds)


@get("/v1/metrics/series", tags=["metrics"])
async def metric_series(
    request: HttpRequest,
    metrics: MetricsQuery,
    queue: QueueQuery = None,
    task: TaskQuery = None,
    start: StartQuery = None,
    end: EndQuery = None,
    resolution_seconds: ResolutionQuery = None,
) -> SeriesResponse:
    """Show metrics over time."""
    return await permitted.metric_series(
        permit_of(request),
        metrics.split(","),
        queue=queue,
        task=task,
        start=start,
        end=end,
        resolution_seconds=resolution_seconds,
    )


@get("/v1/metrics/system", tags=["metrics"])
async def system_metrics(request: HttpRequest) -> SystemMetrics:
    """Show the resource usage of workers, this server and the store."""
    return await permitted.system_metrics(permit_of(request))


@get("/metrics", tags=["metrics"], media_type=CONTENT_TYPE)
async def exposition(request: HttpRequest) -> str:
    """Return all metrics in the format of Prometheus."""
    return await permitted.exposition(permit_of(request))


@head("/metrics", include_in_schema=False, media_type=CONTENT_TYPE)
async def exposition_head(request: HttpRequest) -> None:
    """Answer HEAD as GET would, without the text."""
    await permitted.exposition(permit_of(request))


ROUTES = (exposition, exposition_head, all_metrics, queue_metrics, metric_series, system_metrics)
