"""Permission checks for queues."""

from __future__ import annotations

from forebay.domain.queue import QueueState
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import FilterRequest
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropResponse,
    QueueList,
    QueueSettingsRequest,
    QueueView,
)


async def queues(permit: AuthorizedRequest) -> QueueList:
    """List the queues with their jobs by state."""
    found = await permit.service.queues.queues()
    return QueueList(queues=[one for one in found.queues if permit.caller.may("queues", one.name)])


async def create_queue(permit: AuthorizedRequest, data: CreateQueueRequest) -> QueueView:
    """Create a queue."""
    return await permit.authorize("create_queue", data.name).queues.create_queue(data, permit.actor)


async def queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Show a queue with its settings and its jobs by state."""
    return await permit.authorize("queue", name).queues.queue(name)


async def configure_queue(permit: AuthorizedRequest, name: str, data: QueueSettingsRequest) -> QueueView:
    """Change settings of a queue; workers follow at once."""
    service = permit.authorize("configure_queue", name)
    return await service.queues.configure_queue(name, data, permit.actor)


async def delete_queue(permit: AuthorizedRequest, name: str, *, force: bool) -> DropResponse:
    """Delete a queue."""
    service = permit.authorize("delete_queue", name)
    return await service.queues.drop_queue(name, force=force, actor=permit.actor)


async def pause_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Pause a queue: no more jobs are claimed, new ones are accepted."""
    service = permit.authorize("pause_queue", name)
    return await service.queues.set_state(name, QueueState.PAUSED, permit.actor)


async def resume_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Resume a paused or draining queue."""
    service = permit.authorize("resume_queue", name)
    return await service.queues.set_state(name, QueueState.ACTIVE, permit.actor)


async def drain_queue(permit: AuthorizedRequest, name: str) -> QueueView:
    """Drain a queue: new jobs are refused, present ones are still run."""
    service = permit.authorize("drain_queue", name)
    return await service.queues.set_state(name, QueueState.DRAINING, permit.actor)


async def purge_queue(permit: AuthorizedRequest, name: str, data: FilterRequest) -> BulkResponse:
    """Delete waiting jobs of a queue, or those that a filter matches; running jobs stay."""
    service = permit.authorize("purge_queue", name)
    permit.check_text(data.where.text, name)
    return await service.queues.purge_queue(name, data, permit.actor)


async def requeue(permit: AuthorizedRequest, name: str, data: FilterRequest) -> BulkResponse:
    """Revive dead and cancelled jobs of a queue."""
    service = permit.authorize("requeue", name)
    permit.check_text(data.where.text, name)
    return await service.queues.requeue(name, data, permit.actor)
