"""Routes for operators: queues, searches, many jobs at once."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from forebay.service.http.request_context import HttpRequest, JobIdPath, QueuePath, permit_of
from forebay.service.permissions import queues as permitted
from forebay.service.schema.dead_letters import DeadLetterRequest
from forebay.service.schema.job_views import JobList
from forebay.service.schema.jobs import ActionResponse, EnqueueResponse
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropResponse,
    QueueList,
    QueueSettingsRequest,
    QueueView,
)
from forebay.service.schema.search import (
    BulkRequest,
    BulkResponse,
    FilterRequest,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)

ForceQuery = Annotated[
    bool, QueryParameter(description="Though it has jobs: they go to the dead letters.")
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
    """Close a queue for good."""
    return await permitted.delete_queue(permit_of(request), queue, force=force)


@post("/v1/queues/{queue:str}/pause", tags=["queues"], status_code=200)
async def pause_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Give out no more jobs of a queue; it goes on taking new ones."""
    return await permitted.pause_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/resume", tags=["queues"], status_code=200)
async def resume_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Make a paused or draining queue active again."""
    return await permitted.resume_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/drain", tags=["queues"], status_code=200)
async def drain_queue(request: HttpRequest, queue: QueuePath) -> QueueView:
    """Take no new jobs and let the others be worked off."""
    return await permitted.drain_queue(permit_of(request), queue)


@post("/v1/queues/{queue:str}/purge", tags=["queues"], status_code=200)
async def purge_queue(request: HttpRequest, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkResponse:
    """Delete jobs that wait in a queue, or those that a filter names; running ones stay."""
    return await permitted.purge_queue(permit_of(request), queue, data)


@post("/v1/queues/{queue:str}/requeue", tags=["queues"], status_code=200)
async def requeue(request: HttpRequest, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkResponse:
    """Put dead and cancelled jobs of a queue back."""
    return await permitted.requeue(permit_of(request), queue, data)


@post("/v1/jobs/search", tags=["jobs"], status_code=200)
async def search(request: HttpRequest, data: JSONBody[SearchRequest]) -> JobList:
    """List jobs that fit, newest first."""
    return await permitted.search(permit_of(request), data)


@post("/v1/jobs/bulk", tags=["jobs"], status_code=200)
async def bulk(request: HttpRequest, data: JSONBody[BulkRequest]) -> BulkResponse:
    """Cancel, revive or delete all jobs that fit, or say how many they are."""
    return await permitted.bulk(permit_of(request), data)


@delete("/v1/jobs/{job_id:str}", tags=["jobs"], status_code=200)
async def delete_job(request: HttpRequest, job_id: JobIdPath) -> ActionResponse:
    """Remove a job that does not run, with its history."""
    return await permitted.delete_job(permit_of(request), job_id)


@post("/v1/jobs/{job_id:str}/revive", tags=["jobs"], status_code=200)
async def revive(request: HttpRequest, job_id: JobIdPath, data: JSONBody[ReviveRequest]) -> ActionResponse:
    """Put a dead or cancelled job back."""
    return await permitted.revive(permit_of(request), job_id, data)


@post("/v1/jobs/{job_id:str}/replay", tags=["jobs"])
async def replay(request: HttpRequest, job_id: JobIdPath, data: JSONBody[ReplayRequest]) -> EnqueueResponse:
    """Enqueue a new job like an earlier one, with other arguments if you like."""
    return await permitted.replay(permit_of(request), job_id, data)


@post("/v1/dead-letters/search", tags=["dead letters"], status_code=200)
async def dead_letters(request: HttpRequest, data: JSONBody[SearchRequest]) -> JobList:
    """List dead letters, newest first."""
    return await permitted.dead_letters(permit_of(request), data)


@post("/v1/dead-letters/revive", tags=["dead letters"], status_code=200)
async def revive_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Put the dead letters that fit back."""
    return await permitted.revive_dead(permit_of(request), data)


@post("/v1/dead-letters/purge", tags=["dead letters"], status_code=200)
async def purge_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Delete the dead letters that fit for good."""
    return await permitted.purge_dead(permit_of(request), data)


ROUTES = (
    *(queues, create_queue, queue, configure_queue, delete_queue, pause_queue, resume_queue, drain_queue),
    *(purge_queue, requeue, search, bulk, delete_job, revive, replay, dead_letters, revive_dead, purge_dead),
)
