"""What operators may do to queues, and to many jobs at once."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.job import JobId, QueueName
from forebay.domain.queue import QueueState
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.shared_limits import check_limits
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
    JobFilter,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)
from forebay.service.service import Service


async def queues(permit: AuthorizedRequest) -> QueueList:
    """List the queues with their jobs by state."""
    found = await permit.service.administering.queues()
    return QueueList(queues=[one for one in found.queues if permit.caller.may("queues", one.name)])


async def create_queue(permit: AuthorizedRequest, data: CreateQueueRequest) -> QueueView:
    """Create a queue."""
    return await permit.authorize("create_queue", data.name).administering.create_queue(data, permit.actor)


async def queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Show a queue with its settings and its jobs by state."""
    return await permit.authorize("queue", name).administering.queue(name)


async def configure_queue(permit: AuthorizedRequest, name: str, data: QueueSettingsRequest) -> QueueView:
    """Change settings of a queue; workers follow at once."""
    service = permit.authorize("configure_queue", name)
    return await service.administering.configure_queue(name, data, permit.actor)


async def delete_queue(permit: AuthorizedRequest, name: str, *, force: bool) -> DropResponse:
    """Close a queue for good."""
    service = permit.authorize("delete_queue", name)
    return await service.administering.drop_queue(name, force=force, actor=permit.actor)


async def pause_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Give out no more jobs of a queue; it goes on taking new ones."""
    service = permit.authorize("pause_queue", name)
    return await service.administering.set_state(name, QueueState.PAUSED, permit.actor)


async def resume_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Make a paused or draining queue active again."""
    service = permit.authorize("resume_queue", name)
    return await service.administering.set_state(name, QueueState.ACTIVE, permit.actor)


async def drain_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Take no new jobs and let the others be worked off."""
    service = permit.authorize("drain_queue", name)
    return await service.administering.set_state(name, QueueState.DRAINING, permit.actor)


async def purge_queue(permit: AuthorizedRequest, name: str, data: FilterRequest) -> BulkResponse:
    """Delete jobs that wait in a queue, or those that a filter names; running ones stay."""
    service = permit.authorize("purge_queue", name)
    permit.check_text(data.where.text, name)
    return await service.administering.purge_queue(name, data, permit.actor)


async def requeue(permit: AuthorizedRequest, name: str, data: FilterRequest) -> BulkResponse:
    """Put dead and cancelled jobs of a queue back."""
    service = permit.authorize("requeue", name)
    permit.check_text(data.where.text, name)
    return await service.administering.requeue(name, data, permit.actor)


async def search(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List jobs that fit, newest first."""
    found = await authorize_filter(permit, "search", data.where).administering.search(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def bulk(permit: AuthorizedRequest, data: BulkRequest) -> BulkResponse:
    """Cancel, revive or delete all jobs that fit, or say how many they are."""
    service = authorize_filter(permit, "bulk", data.where)
    _check_target(permit, "bulk", data.queue)
    return await service.administering.bulk(data, permit.actor)


async def delete_job(permit: AuthorizedRequest, job_id: str) -> ActionResponse:
    """Remove a job that does not run, with its history."""
    service = await permit.authorize_jobs("delete_job", job_id)
    return await service.administering.delete(job_id, permit.actor)


async def revive(permit: AuthorizedRequest, job_id: str, data: ReviveRequest) -> ActionResponse:
    """Put a dead or cancelled job back."""
    service = await permit.authorize_jobs("revive", job_id)
    if data.dependants:  # they may be in any queue
        permit.authorize("revive")
    _check_target(permit, "revive", data.queue)
    return await service.administering.revive(job_id, data, permit.actor)


async def replay(permit: AuthorizedRequest, job_id: str, data: ReplayRequest) -> EnqueueResponse:
    """Enqueue a new job like an earlier one, with other arguments if you like."""
    service = await permit.authorize_jobs("replay", job_id)
    _check_target(permit, "replay", data.queue)
    if data.args is not None or data.kwargs is not None:
        await _check_produce(permit, job_id, data.queue)
    return await service.administering.replay(job_id, data, permit.actor)


async def _check_produce(permit: AuthorizedRequest, job_id: str, queue: str | None) -> None:
    """Raise Forbidden unless they may enqueue such a job themselves: with other arguments it is a new one."""
    [found] = await permit.service.pool.jobs([JobId(job_id)])
    if found is not None:  # else the operation says so
        job = replace(found, queue=QueueName(queue or found.queue))
        permit.authorize("enqueue", job.queue)
        await check_limits(permit, "enqueue", [job])


async def dead_letters(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List dead letters, newest first."""
    found = await authorize_filter(permit, "dead_letters", data.where).administering.dead_letters(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def revive_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Put the dead letters that fit back."""
    service = authorize_filter(permit, "revive_dead", data.where)
    return await service.administering.revive_dead(data, permit.actor)


async def purge_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Delete the dead letters that fit for good."""
    service = authorize_filter(permit, "purge_dead", data.where)
    return await service.administering.purge_dead(data, permit.actor)


def authorize_filter(permit: AuthorizedRequest, operation: str, job_filter: JobFilter) -> Service:
    """The operations, for one about the jobs that fit."""
    service = permit.authorize(operation, *job_filter.queues)
    permit.check_text(job_filter.text, *job_filter.queues)
    return service


def _check_target(permit: AuthorizedRequest, operation: str, queue: str | None) -> None:
    """Who puts jobs into another queue must be allowed to do the same to that one."""
    if queue is not None:
        permit.authorize(operation, queue)
