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
from forebay.service.permissions.limit_use_of_new_jobs import LimitedJob, check_limits
from forebay.service.resources.job_reads import QueueFilter
from forebay.service.schema.job_admin import BulkRequest, BulkResponse, ReplayRequest, ReviveRequest
from forebay.service.schema.job_filter import JobFilter, SearchRequest
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
from forebay.service.service import Service


async def enqueue(
    permit: AuthorizedRequest, data: EnqueueRequest, *, with_position: bool = False
) -> EnqueueResponse:
    """Enqueue a job."""
    service = permit.authorize("enqueue", data.queue)
    await check_references(permit, "enqueue", [data], _jobs_by_parent([data]))
    return await service.jobs.enqueue(
        _with_client(permit, data), with_position=with_position, may_raise=_may_raise(permit)
    )


async def enqueue_many(permit: AuthorizedRequest, data: EnqueueManyRequest) -> EnqueueBatchResponse:
    """Enqueue several jobs, in one or several queues."""
    service = permit.authorize("enqueue_many", *{job.queue for job in data.jobs})
    await check_references(permit, "enqueue_many", data.jobs, _jobs_by_parent(data.jobs))
    jobs = [_with_client(permit, job) for job in data.jobs]
    return await service.jobs.enqueue_many(replace(data, jobs=jobs), may_raise=_may_raise(permit))


async def job(permit: AuthorizedRequest, job_id: str) -> JobView:
    """Show a job with its attempts, its dependencies and its dependants."""
    service = await permit.authorize_jobs("job", job_id)
    return await service.job_reads.job(job_id, _visible_queues(permit))


async def wait(permit: AuthorizedRequest, job_id: str, timeout_seconds: float) -> JobView:
    """Show a job when it has ended, or its state when the time is up."""
    service = await permit.authorize_jobs("wait", job_id)
    with permit.caller.reserve_wait() if timeout_seconds else nullcontext():
        found = await service.jobs.wait(job_id, timeout_seconds, _visible_queues(permit))
    await permit.caller.recheck()
    return found


async def watch(permit: AuthorizedRequest, job_id: str) -> AsyncGenerator[JobView, None]:
    """Show a job now and after each change, until it has ended."""
    service = await permit.authorize_jobs("wait", job_id)
    with permit.caller.reserve_stream():
        async with aclosing(service.jobs.watch(job_id, _visible_queues(permit))) as found:
            async for view in found:
                await permit.caller.recheck()
                yield view


async def result(permit: AuthorizedRequest, job_id: str) -> ResultResponse:
    """Return the result of a completed job, masked for a caller that may only view."""
    service = await permit.authorize_jobs("result", job_id)
    return await service.jobs.result(job_id, permit.caller.may_read)


async def graph(permit: AuthorizedRequest, job_id: str, limit: int) -> GraphView:
    """Show the jobs that are connected with one by dependencies."""
    service = await permit.authorize_jobs("graph", job_id)
    found = await service.job_reads.graph(job_id, limit, _visible_queues(permit))
    return replace(found, jobs=permit.redact_items(found.jobs))


async def cancel(permit: AuthorizedRequest, job_id: str, data: CancelRequest) -> ActionResponse:
    """Cancel a waiting job; ask a running one to stop."""
    service = await permit.authorize_jobs("cancel", job_id)
    if data.dependants:  # dependants may be in any queue
        permit.authorize("cancel")
    return await service.jobs.cancel(job_id, data, permit.actor)


async def update_job(permit: AuthorizedRequest, job_id: str, data: UpdateJobRequest) -> ActionResponse:
    """Change the priority, time, metadata or queue of a waiting job."""
    service = await permit.authorize_jobs("update_job", job_id)
    if data.queue is not None:  # the target queue needs the same permission
        permit.authorize("update_job", data.queue)
    return await service.jobs.update_job(job_id, data, permit.actor)


def _with_client(permit: AuthorizedRequest, data: EnqueueRequest) -> EnqueueRequest:
    """Set the client to the key of the caller, so that it cannot use up the rate of another client."""
    return data if permit.caller.key is None else replace(data, client=permit.caller.name)


class NewJobFields(LimitedJob, Protocol):
    """Fields of a new job that the checks of references read."""

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
    """Check that a new job references nothing beyond the caller's queues. `by_parent` maps the id of a stored
    parent to the new job.

    Jobs of a sequence wait for each other in all queues, so joining one takes a key for all queues. A parent
    in a hidden queue is reported as missing. Ids are shared by all queues and a taken one is refused: a
    guessed id reveals that much and no more.
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
    """Return the check of queues whose jobs may inherit priority from a new dependant; None for all
    queues."""
    caller = permit.caller
    return None if caller.may("update_job") else partial(caller.may, "update_job")


def _visible_queues(permit: AuthorizedRequest) -> QueueFilter | None:
    """Return the check of queues whose jobs the caller may know; None for all queues."""
    caller = permit.caller
    return None if caller.may("job") else caller.may_see


async def search(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List matching jobs, newest first."""
    found = await authorize_filter(permit, "search", data.where).job_reads.search(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def bulk(permit: AuthorizedRequest, data: BulkRequest) -> BulkResponse:
    """Cancel, revive or delete all matching jobs, or count them."""
    service = authorize_filter(permit, "bulk", data.where)
    _check_target(permit, "bulk", data.queue)
    return await service.job_admin.bulk(data, permit.actor)


async def delete_job(permit: AuthorizedRequest, job_id: str) -> ActionResponse:
    """Delete a job that is not running, with its history."""
    service = await permit.authorize_jobs("delete_job", job_id)
    return await service.job_admin.delete(job_id, permit.actor)


async def revive(permit: AuthorizedRequest, job_id: str, data: ReviveRequest) -> ActionResponse:
    """Revive a dead or cancelled job."""
    service = await permit.authorize_jobs("revive", job_id)
    if data.dependants:  # dependants may be in any queue
        permit.authorize("revive")
    _check_target(permit, "revive", data.queue)
    return await service.job_admin.revive(job_id, data, permit.actor)


async def replay(permit: AuthorizedRequest, job_id: str, data: ReplayRequest) -> EnqueueResponse:
    """Enqueue a copy of an earlier job, optionally with other arguments."""
    service = await permit.authorize_jobs("replay", job_id)
    _check_target(permit, "replay", data.queue)
    if data.args is not None or data.kwargs is not None:
        await _check_produce(permit, job_id, data.queue)
    return await service.job_admin.replay(job_id, data, permit.actor)


async def _check_produce(permit: AuthorizedRequest, job_id: str, queue: str | None) -> None:
    """Raise Forbidden unless the caller may enqueue such a job: with other arguments a replay is a new
    job."""
    [found] = await permit.service.pool.jobs([JobId(job_id)])
    if found is not None:  # else the operation reports it
        job = replace(found, queue=QueueName(queue or found.queue))
        permit.authorize("enqueue", job.queue)
        await check_limits(permit, "enqueue", [job])


def authorize_filter(permit: AuthorizedRequest, operation: str, job_filter: JobFilter) -> Service:
    """Return the service for an operation on the jobs that match a filter."""
    service = permit.authorize(operation, *job_filter.queues)
    permit.check_text(job_filter.text, *job_filter.queues)
    return service


def _check_target(permit: AuthorizedRequest, operation: str, queue: str | None) -> None:
    """Check the permission for the queue that jobs are put into."""
    if queue is not None:
        permit.authorize(operation, queue)
