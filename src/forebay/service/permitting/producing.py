"""What producers may ask for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from forebay.app.graphs import MayRaise
from forebay.domain.job import JobId
from forebay.domain.workflow import missing_parent
from forebay.errors import Forbidden
from forebay.service.operations.looking import Sees
from forebay.service.permitting.permit import Permit
from forebay.service.permitting.shared_limits import LimitedJob, check_limits
from forebay.service.schema.looking import GraphShape, JobShape
from forebay.service.schema.producing import (
    Accepted,
    AmendRequest,
    CancelRequest,
    EnqueueManyAnswer,
    EnqueueManyRequest,
    EnqueueRequest,
    ResultAnswer,
    Verdict,
)


async def enqueue(permit: Permit, data: EnqueueRequest, *, with_position: bool = False) -> Accepted:
    """Ask for a job."""
    service = permit.allowed("enqueue", data.queue)
    await check_reach(permit, "enqueue", [data], _naming([data]))
    return await service.producing.enqueue(
        _of_caller(permit, data), with_position=with_position, may_raise=_may_raise(permit)
    )


async def enqueue_many(permit: Permit, data: EnqueueManyRequest) -> EnqueueManyAnswer:
    """Ask for several jobs, in one or several queues."""
    service = permit.allowed("enqueue_many", *{job.queue for job in data.jobs})
    await check_reach(permit, "enqueue_many", data.jobs, _naming(data.jobs))
    jobs = [_of_caller(permit, job) for job in data.jobs]
    return await service.producing.enqueue_many(replace(data, jobs=jobs), may_raise=_may_raise(permit))


async def job(permit: Permit, job_id: str) -> JobShape:
    """Show a job with its attempts and with what depends on it."""
    service = await permit.allowed_for("job", job_id)
    return await service.looking.job(job_id, _sees(permit))


async def wait(permit: Permit, job_id: str, timeout_seconds: float) -> JobShape:
    """Show a job when it has ended, or as it is when the time is up."""
    service = await permit.allowed_for("wait", job_id)
    with permit.caller.waiting() if timeout_seconds else nullcontext():
        found = await service.producing.wait(job_id, timeout_seconds, _sees(permit))
    await permit.caller.check_still()
    return found


async def watch(permit: Permit, job_id: str) -> AsyncGenerator[JobShape, None]:
    """Show a job now, and again whenever something has happened to it, until it has ended."""
    service = await permit.allowed_for("wait", job_id)
    with permit.caller.streaming():
        async with aclosing(service.producing.watch(job_id, _sees(permit))) as found:
            async for one in found:
                await permit.caller.check_still()
                yield one


async def result(permit: Permit, job_id: str) -> ResultAnswer:
    """Give what a completed job has returned, masked for a caller that only looks."""
    service = await permit.allowed_for("result", job_id)
    return await service.producing.result(job_id, permit.caller.may_read)


async def graph(permit: Permit, job_id: str, limit: int) -> GraphShape:
    """Show the jobs around one that wait for each other."""
    service = await permit.allowed_for("graph", job_id)
    found = await service.looking.graph(job_id, limit, _sees(permit))
    return replace(found, jobs=permit.lines(found.jobs))


async def cancel(permit: Permit, job_id: str, data: CancelRequest) -> Verdict:
    """Cancel a job that waits; ask one that runs to stop."""
    service = await permit.allowed_for("cancel", job_id)
    if data.dependants:  # they may be in any queue
        permit.allowed("cancel")
    return await service.producing.cancel(job_id, data, permit.actor)


async def amend(permit: Permit, job_id: str, data: AmendRequest) -> Verdict:
    """Change the priority, the time, the metadata or the queue of a job that waits."""
    service = await permit.allowed_for("amend", job_id)
    if data.queue is not None:  # who puts a job there must be allowed to do the same to that one
        permit.allowed("amend", data.queue)
    return await service.producing.amend(job_id, data, permit.actor)


def _of_caller(permit: Permit, data: EnqueueRequest) -> EnqueueRequest:
    """Who has shown a key is that client: nobody spends what a queue takes of another one."""
    return data if permit.caller.key is None else replace(data, client=permit.caller.name)


class Asks(LimitedJob, Protocol):
    """What is to be known of a new job, whoever has asked for it."""

    @property
    def sequence(self) -> str | None: ...

    @property
    def allow_missing(self) -> bool: ...


def _naming(jobs: Sequence[EnqueueRequest]) -> dict[JobId, EnqueueRequest]:
    return {JobId(one.id): job for job in jobs for one in job.depends_on if one.id is not None}


async def check_reach(
    permit: Permit, operation: str, jobs: Sequence[Asks], naming: Mapping[JobId, Asks]
) -> None:
    """A key that is not for all queues reaches into no other one by what a new job names; `naming` has those
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
    parents = await permit.service.desk.jobs(list(naming), with_payload=False) if naming else ()
    for parent in parents:
        if parent is not None and not caller.may_see(parent.queue):
            job = naming[parent.id]
            raise missing_parent(job.task, parent.id, job.allow_missing)


def _may_raise(permit: Permit) -> MayRaise | None:
    """In which queues a new job may change the priority of those it waits for; None for all."""
    caller = permit.caller
    return None if caller.may("amend") else partial(caller.may, "amend")


def _sees(permit: Permit) -> Sees | None:
    """Of which queues somebody may know jobs; None for all."""
    caller = permit.caller
    return None if caller.may("job") else caller.may_see
