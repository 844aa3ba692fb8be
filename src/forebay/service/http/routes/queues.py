"""Routes for queues."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from forebay.service.http.request_context import HttpRequest, QueuePath, permit_of
from forebay.service.permissions import queues as permitted
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import FilterRequest
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropResponse,
    QueueList,
    QueueSettingsRequest,
    QueueView,
)

ForceQuery = Annotated[
    bool, QueryParameter(description="Although it has jobs, which go to the dead letters.")
]


@get("/v1/queues", tags=["queues"])
async def queues(request: HttpRequest) -> QueueList:
    """List the queues with their jobs by state."""
    return await permitted.queues(permit_of(request))


@post("/v1/queues", tags=["queues"])
async def create_queue(request: HttpRequest, data: JSONBody[CreateQueueRequest]) -> QueueView:
    """Create a queue."""
    return await permitted.create_queue(permit_of(request), data)


@get("/v1/queues/{queue:str}", tags=["queues"])
async def queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Show a queue with its settings and its jobs by state."""
    return await permitted.queue(permit_of(request), queue)


@patch("/v1/queues/{queue:str}", tags=["queues"])
async def configure_queue(
    request: HttpRequest, queue: QueuePath, data: JSONBody[QueueSettingsRequest]
) -> QueueView:
    """Change settings of a queue; workers follow at once."""
    return await permitted.configure_queue(permit_of(request), queue, data)


@delete("/v1/queues/{queue:str}", tags=["queues"], status_code=200)
async def delete_queue(request: HttpRequest, queue: QueuePath, force: ForceQuery = False) -> DropResponse:
    """Delete a queue."""
    return await permitted.delete_queue(permit_of(request), queue, force=force)


@post("/v1/queues/{queue:str}/pause", tags=["queues"], status_code=200)
async def pause_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Pause a queue: no more jobs are claimed, new ones are accepted."""
    return await permitted.pause_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/resume", tags=["queues"], status_code=200)
async def resume_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Resume a paused or draining queue."""
    return await permitted.resume_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/drain", tags=["queues"], status_code=200)
async def drain_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Drain a queue: new jobs are refused, present ones are still run."""
    return await permitted.drain_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/purge", tags=["queues"], status_code=200)
async def purge_queue(request: HttpRequest, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkResponse:
    """Delete waiting jobs of a queue, or those that a filter matches; running jobs stay."""
    return await permitted.purge_queue(permit_of(request), queue, data)


@post("/v1/queues/{queue:str}/requeue", tags=["queues"], status_code=200)
async def requeue(request: HttpRequest, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkResponse:
    """Revive dead and cancelled jobs of a queue."""
    return await permitted.requeue(permit_of(request), queue, data)


ROUTES = (
    *(queues, create_queue, queue, configure_queue, delete_queue, pause_queue, resume_queue, drain_queue),
    *(purge_queue, requeue),
)
