"""Permission checks for jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from forebay.domain.dependencies import missing_parent
from forebay.domain.job import JobId, QueueName
from forebay.errors import Forbidden
from forebay.operations.priority_inheritance import MayRaise
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.shared_limits import LimitedJob, check_limits
from forebay.service.resources.job_reads import QueueFilter
from forebay.service.schema.job_views import GraphView, JobList, JobView
from forebay.service.schema.jobs import (
    ActionResponse,
    CancelRequest,
    EnqueueBatchResponse,
    EnqueueManyRequest,
    EnqueueRequest,
    EnqueueResponse,
    ResultResponse,
    UpdateJobRequest,
)
from forebay.service.schema.search import (
    BulkRequest,
    BulkResponse,
    JobFilter,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)
from forebay.service.service import Service


async def enqueue(
    permit: AuthorizedRequest, data: EnqueueRequest, *, with_position: bool = False
) -> EnqueueResponse:
    """Ask for a job."""
    service = permit.authorize("enqueue", data.queue)
    await check_references(permit, "enqueue", [data], _jobs_by_parent([data]))
    return await service.jobs.enqueue(
        _with_client(permit, data), with_position=with_position, may_raise=_may_raise(permit)
    )


async def enqueue_many(permit: AuthorizedRequest, data: EnqueueManyRequest) -> EnqueueBatchResponse:
    """Ask for several jobs, in one or several queues."""
    service = permit.authorize("enqueue_many", *{job.queue for job in data.jobs})
    await check_references(permit, "enqueue_many", data.jobs, _jobs_by_parent(data.jobs))
    jobs = [_with_client(permit, job) for job in data.jobs]
    return await service.jobs.enqueue_many(replace(data, jobs=jobs), may_raise=_may_raise(permit))


async def job(permit: AuthorizedRequest, job_id: str) -> JobView:
    """Show a job with its attempts and with what depends on it."""
    service = await permit.authorize_jobs("job", job_id)
    return await service.job_reads.job(job_id, _visible_queues(permit))


async def wait(permit: AuthorizedRequest, job_id: str, timeout_seconds: float) -> JobView:
    """Show a job when it has ended, or as it is when the time is up."""
    service = await permit.authorize_jobs("wait", job_id)
    with permit.caller.reserve_wait() if timeout_seconds else nullcontext():
        found = await service.jobs.wait(job_id, timeout_seconds, _visible_queues(permit))
    await permit.caller.recheck()
    return found


async def watch(permit: AuthorizedRequest, job_id: str) -> AsyncGenerator[JobView, None]:
    """Show a job now, and again whenever something has happened to it, until it has ended."""
    service = await permit.authorize_jobs("wait", job_id)
    with permit.caller.reserve_stream():
        async with aclosing(service.jobs.watch(job_id, _visible_queues(permit))) as found:
            async for one in found:
                await permit.caller.recheck()
                yield one


async def result(permit: AuthorizedRequest, job_id: str) -> ResultResponse:
    """Give what a completed job has returned, masked for a caller that only looks."""
    service = await permit.authorize_jobs("result", job_id)
    return await service.jobs.result(job_id, permit.caller.may_read)


async def graph(permit: AuthorizedRequest, job_id: str, limit: int) -> GraphView:
    """Show the jobs around one that wait for each other."""
    service = await permit.authorize_jobs("graph", job_id)
    found = await service.job_reads.graph(job_id, limit, _visible_queues(permit))
    return replace(found, jobs=permit.redact_items(found.jobs))


async def cancel(permit: AuthorizedRequest, job_id: str, data: CancelRequest) -> ActionResponse:
    """Cancel a job that waits; ask one that runs to stop."""
    service = await permit.authorize_jobs("cancel", job_id)
    if data.dependants:  # they may be in any queue
        permit.authorize("cancel")
    return await service.jobs.cancel(job_id, data, permit.actor)


async def update_job(permit: AuthorizedRequest, job_id: str, data: UpdateJobRequest) -> ActionResponse:
    """Change the priority, the time, the metadata or the queue of a job that waits."""
    service = await permit.authorize_jobs("update_job", job_id)
    if data.queue is not None:  # who puts a job there must be allowed to do the same to that one
        permit.authorize("update_job", data.queue)
    return await service.jobs.update_job(job_id, data, permit.actor)


def _with_client(permit: AuthorizedRequest, data: EnqueueRequest) -> EnqueueRequest:
    """Who has shown a key is that client: nobody spends what a queue takes of another one."""
    return data if permit.caller.key is None else replace(data, client=permit.caller.name)


class NewJobFields(LimitedJob, Protocol):
    """What is to be known of a new job, whoever has asked for it."""

    @property
    def sequence(self) -> str | None: ...

    @property
    def allow_missing(self) -> bool: ...


def _jobs_by_parent(jobs: Sequence[EnqueueRequest]) -> dict[JobId, EnqueueRequest]:
    return {JobId(one.id): job for job in jobs for one in job.depends_on if one.id is not None}


async def check_references(
    permit: AuthorizedRequest,
    operation: str,
    jobs: Sequence[NewJobFields],
    by_parent: Mapping[JobId, NewJobFields],
) -> None:
    """A key that is not for all queues reaches into no other one by what a new job names; `by_parent` has
    those
    that wait for a stored job, by its id.

    Jobs of a sequence wait for each other wherever they are, so it takes a key for all queues to join one. A
    parent in a queue that the key may not see is answered as if there were none. Ids are of one kind for all
    queues, and one that is taken is refused: whoever guesses an id learns that much and no more.
    """
    caller = permit.caller
    await check_limits(permit, operation, jobs)
    if caller.may(operation):
        return
    if any(job.sequence is not None for job in jobs):
        raise Forbidden(f"{caller.name} may not use a sequence: that needs the role produce for all queues")
    parents = await permit.service.pool.jobs(list(by_parent), with_payload=False) if by_parent else ()
    for parent in parents:
        if parent is not None and not caller.may_see(parent.queue):
            job = by_parent[parent.id]
            raise missing_parent(job.task, parent.id, job.allow_missing)


def _may_raise(permit: AuthorizedRequest) -> MayRaise | None:
    """In which queues a new job may change the priority of those it waits for; None for all."""
    caller = permit.caller
    return None if caller.may("update_job") else partial(caller.may, "update_job")


def _visible_queues(permit: AuthorizedRequest) -> QueueFilter | None:
    """Of which queues somebody may know jobs; None for all."""
    caller = permit.caller
    return None if caller.may("job") else caller.may_see


async def search(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List jobs that fit, newest first."""
    found = await authorize_filter(permit, "search", data.where).job_admin.search(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def bulk(permit: AuthorizedRequest, data: BulkRequest) -> BulkResponse:
    """Cancel, revive or delete all jobs that fit, or say how many they are."""
    service = authorize_filter(permit, "bulk", data.where)
    _check_target(permit, "bulk", data.queue)
    return await service.job_admin.bulk(data, permit.actor)


async def delete_job(permit: AuthorizedRequest, job_id: str) -> ActionResponse:
    """Remove a job that does not run, with its history."""
    service = await permit.authorize_jobs("delete_job", job_id)
    return await service.job_admin.delete(job_id, permit.actor)


async def revive(permit: AuthorizedRequest, job_id: str, data: ReviveRequest) -> ActionResponse:
    """Put a dead or cancelled job back."""
    service = await permit.authorize_jobs("revive", job_id)
    if data.dependants:  # they may be in any queue
        permit.authorize("revive")
    _check_target(permit, "revive", data.queue)
    return await service.job_admin.revive(job_id, data, permit.actor)


async def replay(permit: AuthorizedRequest, job_id: str, data: ReplayRequest) -> EnqueueResponse:
    """Enqueue a new job like an earlier one, with other arguments if you like."""
    service = await permit.authorize_jobs("replay", job_id)
    _check_target(permit, "replay", data.queue)
    if data.args is not None or data.kwargs is not None:
        await _check_produce(permit, job_id, data.queue)
    return await service.job_admin.replay(job_id, data, permit.actor)


async def _check_produce(permit: AuthorizedRequest, job_id: str, queue: str | None) -> None:
    """Raise Forbidden unless they may enqueue such a job themselves: with other arguments it is a new one."""
    [found] = await permit.service.pool.jobs([JobId(job_id)])
    if found is not None:  # else the operation says so
        job = replace(found, queue=QueueName(queue or found.queue))
        permit.authorize("enqueue", job.queue)
        await check_limits(permit, "enqueue", [job])


def authorize_filter(permit: AuthorizedRequest, operation: str, job_filter: JobFilter) -> Service:
    """The operations, for one about the jobs that fit."""
    service = permit.authorize(operation, *job_filter.queues)
    permit.check_text(job_filter.text, *job_filter.queues)
    return service


def _check_target(permit: AuthorizedRequest, operation: str, queue: str | None) -> None:
    """Who puts jobs into another queue must be allowed to do the same to that one."""
    if queue is not None:
        permit.authorize(operation, queue)
