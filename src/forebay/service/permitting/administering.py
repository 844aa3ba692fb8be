"""What operators may do to queues, and to many jobs at once."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.job import JobId, QueueName
from forebay.domain.queue import QueueState
from forebay.service.operations.service import Service
from forebay.service.permitting.permit import Permit
from forebay.service.permitting.shared_limits import check_limits
from forebay.service.schema.looking import JobList
from forebay.service.schema.producing import Accepted, Verdict
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropAnswer,
    QueueList,
    QueueShape,
    SettingsRequest,
)
from forebay.service.schema.reviving import DeadRequest
from forebay.service.schema.searching import (
    BulkAnswer,
    BulkRequest,
    FilterRequest,
    JobFilter,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)


async def queues(permit: Permit) -> QueueList:
    """List the queues with their jobs by state."""
    found = await permit.service.administering.queues()
    return QueueList(queues=[one for one in found.queues if permit.caller.may("queues", one.name)])


async def create_queue(permit: Permit, data: CreateQueueRequest) -> QueueShape:
    """Create a queue."""
    return await permit.allowed("create_queue", data.name).administering.create_queue(data, permit.actor)


async def queue(permit: Permit, name: str) -> QueueShape:
    """Show a queue with its settings and its jobs by state."""
    return await permit.allowed("queue", name).administering.queue(name)


async def configure_queue(permit: Permit, name: str, data: SettingsRequest) -> QueueShape:
    """Change settings of a queue; workers follow at once."""
    service = permit.allowed("configure_queue", name)
    return await service.administering.configure_queue(name, data, permit.actor)


async def delete_queue(permit: Permit, name: str, *, force: bool) -> DropAnswer:
    """Close a queue for good."""
    service = permit.allowed("delete_queue", name)
    return await service.administering.drop_queue(name, force=force, actor=permit.actor)


async def pause_queue(permit: Permit, name: str) -> QueueShape:
    """Give out no more jobs of a queue; it goes on taking new ones."""
    service = permit.allowed("pause_queue", name)
    return await service.administering.set_state(name, QueueState.PAUSED, permit.actor)


async def resume_queue(permit: Permit, name: str) -> QueueShape:
    """Make a paused or draining queue active again."""
    service = permit.allowed("resume_queue", name)
    return await service.administering.set_state(name, QueueState.ACTIVE, permit.actor)


async def drain_queue(permit: Permit, name: str) -> QueueShape:
    """Take no new jobs and let the others be worked off."""
    service = permit.allowed("drain_queue", name)
    return await service.administering.set_state(name, QueueState.DRAINING, permit.actor)


async def purge_queue(permit: Permit, name: str, data: FilterRequest) -> BulkAnswer:
    """Delete jobs that wait in a queue, or those that a filter names; running ones stay."""
    service = permit.allowed("purge_queue", name)
    permit.check_text(data.where.text, name)
    return await service.administering.purge_queue(name, data, permit.actor)


async def requeue(permit: Permit, name: str, data: FilterRequest) -> BulkAnswer:
    """Put dead and cancelled jobs of a queue back."""
    service = permit.allowed("requeue", name)
    permit.check_text(data.where.text, name)
    return await service.administering.requeue(name, data, permit.actor)


async def search(permit: Permit, data: SearchRequest) -> JobList:
    """List jobs that fit, newest first."""
    found = await choosing(permit, "search", data.where).administering.search(data)
    return replace(found, jobs=permit.lines(found.jobs))


async def bulk(permit: Permit, data: BulkRequest) -> BulkAnswer:
    """Cancel, revive or delete all jobs that fit, or say how many they are."""
    service = choosing(permit, "bulk", data.where)
    _check_target(permit, "bulk", data.queue)
    return await service.administering.bulk(data, permit.actor)


async def delete_job(permit: Permit, job_id: str) -> Verdict:
    """Remove a job that does not run, with its history."""
    service = await permit.allowed_for("delete_job", job_id)
    return await service.administering.delete(job_id, permit.actor)


async def revive(permit: Permit, job_id: str, data: ReviveRequest) -> Verdict:
    """Put a dead or cancelled job back."""
    service = await permit.allowed_for("revive", job_id)
    if data.dependants:  # they may be in any queue
        permit.allowed("revive")
    _check_target(permit, "revive", data.queue)
    return await service.administering.revive(job_id, data, permit.actor)


async def replay(permit: Permit, job_id: str, data: ReplayRequest) -> Accepted:
    """Enqueue a new job like an earlier one, with other arguments if you like."""
    service = await permit.allowed_for("replay", job_id)
    _check_target(permit, "replay", data.queue)
    if data.args is not None or data.kwargs is not None:
        await _check_produce(permit, job_id, data.queue)
    return await service.administering.replay(job_id, data, permit.actor)


async def _check_produce(permit: Permit, job_id: str, queue: str | None) -> None:
    """Raise Forbidden unless they may enqueue such a job themselves: with other arguments it is a new one."""
    [found] = await permit.service.desk.jobs([JobId(job_id)])
    if found is not None:  # else the operation says so
        job = replace(found, queue=QueueName(queue or found.queue))
        permit.allowed("enqueue", job.queue)
        await check_limits(permit, "enqueue", [job])


async def dead(permit: Permit, data: SearchRequest) -> JobList:
    """List dead letters, newest first."""
    found = await choosing(permit, "dead", data.where).administering.dead(data)
    return replace(found, jobs=permit.lines(found.jobs))


async def revive_dead(permit: Permit, data: DeadRequest) -> BulkAnswer:
    """Put the dead letters that fit back."""
    service = choosing(permit, "revive_dead", data.where)
    return await service.administering.revive_dead(data, permit.actor)


async def purge_dead(permit: Permit, data: DeadRequest) -> BulkAnswer:
    """Delete the dead letters that fit for good."""
    service = choosing(permit, "purge_dead", data.where)
    return await service.administering.purge_dead(data, permit.actor)


def choosing(permit: Permit, operation: str, where: JobFilter) -> Service:
    """The operations, for one about the jobs that fit."""
    service = permit.allowed(operation, *where.queues)
    permit.check_text(where.text, *where.queues)
    return service


def _check_target(permit: Permit, operation: str, queue: str | None) -> None:
    """Who puts jobs into another queue must be allowed to do the same to that one."""
    if queue is not None:
        permit.allowed(operation, queue)
