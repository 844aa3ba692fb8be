"""Routes for operators: queues, searches, many jobs at once."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from forebay.domain.job import QueueName
from forebay.domain.queue import QueueState
from forebay.service.http.calling import (
    Asking,
    JobIdPath,
    QueuePath,
    actor_of,
    allowed,
    allowed_for,
    caller_of,
    open_service,
)
from forebay.service.schema.looking import JobList
from forebay.service.schema.producing import Accepted, Verdict
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropAnswer,
    QueueList,
    QueueShape,
    SettingsRequest,
)
from forebay.service.schema.searching import (
    BulkAnswer,
    BulkRequest,
    FilterRequest,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)

ForceQuery = Annotated[bool, QueryParameter(description="Though it has jobs: they go to the dead letters.")]


@get("/v1/queues", tags=["queues"])
async def queues(request: Asking) -> QueueList:
    """List the queues with their jobs by state."""
    caller, found = caller_of(request), await open_service(request).administering.queues()
    return QueueList(queues=[one for one in found.queues if caller.may("queues", one.name)])


@post("/v1/queues", tags=["queues"])
async def create_queue(request: Asking, data: JSONBody[CreateQueueRequest]) -> QueueShape:
    """Create a queue."""
    return await allowed(request, "create_queue", data.name).administering.create_queue(
        data, actor_of(request)
    )


@get("/v1/queues/{queue:str}", tags=["queues"])
async def queue(request: Asking, queue: QueuePath) -> QueueShape:
    """Show a queue with its settings and its jobs by state."""
    return await allowed(request, "queue", queue).administering.queue(queue)


@patch("/v1/queues/{queue:str}", tags=["queues"])
async def configure_queue(request: Asking, queue: QueuePath, data: JSONBody[SettingsRequest]) -> QueueShape:
    """Change settings of a queue; workers follow at once."""
    return await allowed(request, "configure_queue", queue).administering.configure_queue(
        queue, data, actor_of(request)
    )


@delete("/v1/queues/{queue:str}", tags=["queues"], status_code=200)
async def delete_queue(request: Asking, queue: QueuePath, force: ForceQuery = False) -> DropAnswer:
    """Close a queue for good."""
    return await allowed(request, "delete_queue", queue).administering.drop_queue(
        queue, force=force, actor=actor_of(request)
    )


@post("/v1/queues/{queue:str}/pause", tags=["queues"], status_code=200)
async def pause_queue(request: Asking, queue: QueuePath) -> QueueShape:
    """Give out no more jobs of a queue; it goes on taking new ones."""
    return await _set(request, "pause_queue", queue, QueueState.PAUSED)


@post("/v1/queues/{queue:str}/resume", tags=["queues"], status_code=200)
async def resume_queue(request: Asking, queue: QueuePath) -> QueueShape:
    """Make a paused or draining queue active again."""
    return await _set(request, "resume_queue", queue, QueueState.ACTIVE)


@post("/v1/queues/{queue:str}/drain", tags=["queues"], status_code=200)
async def drain_queue(request: Asking, queue: QueuePath) -> QueueShape:
    """Take no new jobs and let the others be worked off."""
    return await _set(request, "drain_queue", queue, QueueState.DRAINING)


async def _set(request: Asking, operation: str, queue: str, state: QueueState) -> QueueShape:
    return await allowed(request, operation, queue).administering.set_state(
        QueueName(queue), state, actor_of(request)
    )


@post("/v1/queues/{queue:str}/purge", tags=["queues"], status_code=200)
async def purge_queue(request: Asking, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkAnswer:
    """Delete jobs that wait in a queue, or those that a filter names; running ones stay."""
    return await allowed(request, "purge_queue", queue).administering.purge_queue(
        queue, data, actor_of(request)
    )


@post("/v1/queues/{queue:str}/requeue", tags=["queues"], status_code=200)
async def requeue(request: Asking, queue: QueuePath, data: JSONBody[FilterRequest]) -> BulkAnswer:
    """Put dead and cancelled jobs of a queue back."""
    return await allowed(request, "requeue", queue).administering.requeue(queue, data, actor_of(request))


@post("/v1/jobs/search", tags=["jobs"], status_code=200)
async def search(request: Asking, data: JSONBody[SearchRequest]) -> JobList:
    """List jobs that fit, newest first."""
    return await allowed(request, "search", *data.where.queues).administering.search(data)


@post("/v1/jobs/bulk", tags=["jobs"], status_code=200)
async def bulk(request: Asking, data: JSONBody[BulkRequest]) -> BulkAnswer:
    """Cancel, revive or delete all jobs that fit, or say how many they are."""
    service = allowed(request, "bulk", *data.where.queues)
    _check_target(request, "bulk", data.queue)
    return await service.administering.bulk(data, actor_of(request))


@delete("/v1/jobs/{job_id:str}", tags=["jobs"], status_code=200)
async def delete_job(request: Asking, job_id: JobIdPath) -> Verdict:
    """Remove a job that does not run, with its history."""
    service = await allowed_for(request, "delete_job", job_id)
    return await service.administering.delete(job_id, actor_of(request))


@post("/v1/jobs/{job_id:str}/revive", tags=["jobs"], status_code=200)
async def revive(request: Asking, job_id: JobIdPath, data: JSONBody[ReviveRequest]) -> Verdict:
    """Put a dead or cancelled job back."""
    service = await allowed_for(request, "revive", job_id)
    if data.dependants:  # they may be in any queue
        allowed(request, "revive")
    _check_target(request, "revive", data.queue)
    return await service.administering.revive(job_id, data, actor_of(request))


@post("/v1/jobs/{job_id:str}/replay", tags=["jobs"])
async def replay(request: Asking, job_id: JobIdPath, data: JSONBody[ReplayRequest]) -> Accepted:
    """Enqueue a new job like an earlier one, with other arguments if you like."""
    service = await allowed_for(request, "replay", job_id)
    _check_target(request, "replay", data.queue)
    return await service.administering.replay(job_id, data, actor_of(request))


@post("/v1/dead/search", tags=["dead letters"], status_code=200)
async def dead(request: Asking, data: JSONBody[SearchRequest]) -> JobList:
    """List dead letters, newest first."""
    return await allowed(request, "dead", *data.where.queues).administering.dead(data)


@post("/v1/dead/revive", tags=["dead letters"], status_code=200)
async def revive_dead(request: Asking, data: JSONBody[FilterRequest]) -> BulkAnswer:
    """Put the dead letters that fit back."""
    return await allowed(request, "revive_dead", *data.where.queues).administering.revive_dead(
        data, actor_of(request)
    )


@post("/v1/dead/purge", tags=["dead letters"], status_code=200)
async def purge_dead(request: Asking, data: JSONBody[FilterRequest]) -> BulkAnswer:
    """Delete the dead letters that fit for good."""
    return await allowed(request, "purge_dead", *data.where.queues).administering.purge_dead(
        data, actor_of(request)
    )


def _check_target(request: Asking, operation: str, queue: str | None) -> None:
    """Who puts jobs into another queue must be allowed to do the same to that one."""
    if queue is not None:
        allowed(request, operation, queue)


ROUTES = (
    *(queues, create_queue, queue, configure_queue, delete_queue, pause_queue, resume_queue, drain_queue),
    *(purge_queue, requeue, search, bulk, delete_job, revive, replay, dead, revive_dead, purge_dead),
)
