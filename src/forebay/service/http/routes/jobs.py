"""Routes for jobs: enqueue, show, wait, change, search and bulk actions."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, patch, post
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from msgspec.structs import replace

from forebay.errors import InvalidJob
from forebay.service.http.client_disconnect import run_while_connected
from forebay.service.http.request_context import HttpRequest, JobIdPath, permit_of
from forebay.service.permissions import jobs as permitted
from forebay.service.schema.base import LONGEST_WAIT_SECONDS
from forebay.service.schema.job_admin import BulkRequest, BulkResponse, ReplayRequest, ReviveRequest
from forebay.service.schema.job_filter import SearchRequest
from forebay.service.schema.job_views import GraphView, JobList, JobView
from forebay.service.schema.producer_jobs import (
    ActionResponse,
    CancelRequest,
    EnqueueBatchResponse,
    EnqueueManyRequest,
    EnqueueRequest,
    EnqueueResponse,
    ResultResponse,
    UpdateJobRequest,
)

KeyHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="The same key on the same queue within 24 hours returns the first response again; with "
        "another task or other arguments it is 409 `duplicate`.",
    ),
]
GraphQuery = Annotated[int, QueryParameter(ge=1, le=500, description="At most this number of jobs.")]
PositionQuery = Annotated[bool, QueryParameter(description="Return the position of the job in its queue.")]
WaitQuery = Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait.")]


@post("/v1/jobs", tags=["produce"])
async def enqueue(
    request: HttpRequest,
    data: JSONBody[EnqueueRequest],
    idempotency_key: KeyHeader = None,
    position: PositionQuery = False,
) -> EnqueueResponse:
    """Enqueue a job."""
    if idempotency_key is not None:
        if data.idempotency_key not in (None, idempotency_key):
            raise InvalidJob("the header and the body name different keys", field="idempotency_key")
        data = replace(data, idempotency_key=idempotency_key)
    return await permitted.enqueue(permit_of(request), data, with_position=position)


@post("/v1/jobs/batch", tags=["produce"])
async def enqueue_many(request: HttpRequest, data: JSONBody[EnqueueManyRequest]) -> EnqueueBatchResponse:
    """Enqueue several jobs, in one or several queues."""
    return await permitted.enqueue_many(permit_of(request), data)


@get("/v1/jobs/{job_id:str}", tags=["produce"])
async def job(request: HttpRequest, job_id: JobIdPath) -> JobView:
    """Show a job with its attempts, its dependencies and its dependants."""
    return await permitted.job(permit_of(request), job_id)


@get("/v1/jobs/{job_id:str}/wait", tags=["produce"])
async def wait(
    request: HttpRequest, job_id: JobIdPath, timeout_seconds: WaitQuery = LONGEST_WAIT_SECONDS
) -> JobView:
    """Show a job when it has ended, or its state when the time is up."""
    return await run_while_connected(
        request.receive, permitted.wait(permit_of(request), job_id, timeout_seconds)
    )


@get("/v1/jobs/{job_id:str}/result", tags=["produce"])
async def result(request: HttpRequest, job_id: JobIdPath) -> ResultResponse:
    """Return the result of a completed job."""
    return await permitted.result(permit_of(request), job_id)


@get("/v1/jobs/{job_id:str}/graph", tags=["jobs"])
async def graph(request: HttpRequest, job_id: JobIdPath, limit: GraphQuery = 200) -> GraphView:
    """Show the jobs that are connected with one by dependencies."""
    return await permitted.graph(permit_of(request), job_id, limit)


@post("/v1/jobs/{job_id:str}/cancel", tags=["produce"], status_code=200)
async def cancel(request: HttpRequest, job_id: JobIdPath, data: JSONBody[CancelRequest]) -> ActionResponse:
    """Cancel a waiting job; ask a running one to stop."""
    return await permitted.cancel(permit_of(request), job_id, data)


@patch("/v1/jobs/{job_id:str}", tags=["produce"])
async def update_job(
    request: HttpRequest, job_id: JobIdPath, data: JSONBody[UpdateJobRequest]
) -> ActionResponse:
    """Change the priority, time, metadata or queue of a waiting job."""
    return await permitted.update_job(permit_of(request), job_id, data)


@post("/v1/jobs/search", tags=["jobs"], status_code=200)
async def search(request: HttpRequest, data: JSONBody[SearchRequest]) -> JobList:
    """List matching jobs, newest first."""
    return await permitted.search(permit_of(request), data)


@post("/v1/jobs/bulk", tags=["jobs"], status_code=200)
async def bulk(request: HttpRequest, data: JSONBody[BulkRequest]) -> BulkResponse:
    """Cancel, revive or delete all matching jobs, or count them."""
    return await permitted.bulk(permit_of(request), data)


@delete("/v1/jobs/{job_id:str}", tags=["jobs"], status_code=200)
async def delete_job(request: HttpRequest, job_id: JobIdPath) -> ActionResponse:
    """Delete a job that is not running, with its history."""
    return await permitted.delete_job(permit_of(request), job_id)


@post("/v1/jobs/{job_id:str}/revive", tags=["jobs"], status_code=200)
async def revive(request: HttpRequest, job_id: JobIdPath, data: JSONBody[ReviveRequest]) -> ActionResponse:
    """Revive a dead or cancelled job."""
    return await permitted.revive(permit_of(request), job_id, data)


@post("/v1/jobs/{job_id:str}/replay", tags=["jobs"])
async def replay(request: HttpRequest, job_id: JobIdPath, data: JSONBody[ReplayRequest]) -> EnqueueResponse:
    """Enqueue a copy of an earlier job, optionally with other arguments."""
    return await permitted.replay(permit_of(request), job_id, data)


ROUTES = (
    *(enqueue, enqueue_many, job, wait, result, graph, cancel, update_job),
    *(search, bulk, delete_job, revive, replay),
)
