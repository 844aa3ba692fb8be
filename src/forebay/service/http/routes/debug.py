"""Debug routes, which a server has only with `--debug`."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from forebay.service.http.client_disconnect import run_while_connected
from forebay.service.http.request_context import HttpRequest, JobIdPath, QueuePath, permit_of
from forebay.service.permissions import debug as permitted
from forebay.service.schema.base import LONGEST_WAIT_SECONDS
from forebay.service.schema.debug import (
    InspectResponse,
    QueueContentsResponse,
    SignalRequest,
    SignalResponse,
    SweepResponse,
    TraceResponse,
    WorkerStateResponse,
)

WorkerPath = Annotated[
    str,
    PathParameter(
        description="The id of a worker.", min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$"
    ),
]
RunningQuery = Annotated[bool, QueryParameter(description="Also running jobs.")]
RetryingQuery = Annotated[bool, QueryParameter(description="Also jobs that will be retried.")]
LimitQuery = Annotated[int, QueryParameter(ge=1, le=1_000, description="At most this number of each.")]
WaitQuery = Annotated[
    float, QueryParameter(ge=0, le=LONGEST_WAIT_SECONDS, description="Time for the worker to respond.")
]


@get("/v1/debug/queues/{queue:str}/contents", tags=["debug"])
async def contents(
    request: HttpRequest,
    queue: QueuePath,
    include_running: RunningQuery = True,
    include_retrying: RetryingQuery = False,
    limit: LimitQuery = 50,
) -> QueueContentsResponse:
    """Show the jobs of a queue with their arguments, or the reason why these cannot be read."""
    return await permitted.contents(
        permit_of(request),
        queue,
        with_running=include_running,
        with_retrying=include_retrying,
        limit=limit,
    )


@get("/v1/debug/jobs/{job_id:str}/trace", tags=["debug"])
async def trace(request: HttpRequest, job_id: JobIdPath) -> TraceResponse:
    """Show a job, its result and its timeline, oldest entry first."""
    return await permitted.trace(permit_of(request), job_id)


@post("/v1/debug/jobs/{job_id:str}/inspect", tags=["debug"], status_code=200)
async def inspect(request: HttpRequest, job_id: JobIdPath) -> InspectResponse:
    """Show a stored job with its diagnosis; nothing is changed."""
    return await permitted.inspect(permit_of(request), job_id)


@post("/v1/debug/sweep", tags=["debug"], status_code=202)
async def sweep(request: HttpRequest) -> SweepResponse:
    """Start to settle attempts whose lease has expired or whose worker is dead, without waiting for the end.

    The server does so every second by itself. This request acts at once, also right after a step of the
    store's clock, and then takes jobs from live workers.
    """
    return await permitted.sweep(permit_of(request))


@get("/v1/debug/workers/{worker:str}/state", tags=["debug"])
async def worker_state(
    request: HttpRequest, worker: WorkerPath, wait_seconds: WaitQuery = 5
) -> WorkerStateResponse:
    """Show a worker, and ask it for its thread stacks."""
    return await run_while_connected(
        request.receive, permitted.worker_state(permit_of(request), worker, wait_seconds)
    )


@post("/v1/debug/workers/{worker:str}/signal", tags=["debug"], status_code=200)
async def signal(request: HttpRequest, worker: WorkerPath, data: JSONBody[SignalRequest]) -> SignalResponse:
    """Ask a worker to pause, resume or stop; `status` only shows it."""
    return await permitted.signal(permit_of(request), worker, data)


ROUTES = (contents, trace, inspect, sweep, worker_state, signal)
