"""What consumers may ask for."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext

from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.problems import problem_of
from forebay.service.resources.claims import group_key_of
from forebay.service.schema.claims import (
    AckRequest,
    ClaimCriteria,
    ClaimedJob,
    ClaimRequest,
    ClaimResponse,
    ExtendRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    NackRequest,
    SettleRequest,
    SettleResponse,
    SettleResult,
)
from forebay.service.schema.job_views import PeekResponse


async def claim(permit: AuthorizedRequest, data: ClaimRequest) -> ClaimResponse:
    """Take jobs to run, and a lease on each; wait for some if there are none. If the caller is cancelled,
    because nobody is there for an answer, what was claimed goes back."""
    consuming = permit.authorize("claim", *data.queues).claims
    with permit.caller.reserve_wait(group_key_of(data)) if data.wait_seconds else nullcontext():
        answer = await consuming.claim(data)
    if answer.jobs:
        try:
            await permit.caller.recheck("claim", *data.queues)
        except (ForebayError, CancelledError):
            await consuming.give_back(answer)
            raise
    return answer


async def stream(
    permit: AuthorizedRequest, data: ClaimCriteria, window: int
) -> AsyncGenerator[ClaimedJob, None]:
    """Take jobs as they come. What was not taken from here when somebody closes this goes back; what was is
    theirs until its lease ends."""
    consuming = permit.authorize("claim", *data.queues).claims
    with permit.caller.reserve_stream(group_key_of(data)):
        async with aclosing(consuming.stream(data, window)) as answers:
            async for answer in answers:
                left = list(answer.jobs)
                try:
                    await permit.caller.recheck("claim", *data.queues)
                    while left:
                        yield left[0]
                        del left[0]  # not before somebody has asked for the next one: this one was handed on
                finally:
                    await consuming.give_back(ClaimResponse(jobs=left))


async def settle(permit: AuthorizedRequest, data: SettleRequest) -> SettleResponse:
    """Say how several jobs ended."""
    refused = await permit.find_refusals("settle", *(ending.id for ending in data.outcomes))
    theirs = [ending for ending in data.outcomes if ending.id not in refused]
    answer = await permit.service.claims.settle(replace(data, outcomes=theirs))
    settled = iter(answer.settled)
    return SettleResponse(
        settled=[
            next(settled)
            if (error := refused.get(ending.id)) is None
            else SettleResult(id=ending.id, is_kept=False, problem=problem_of(error))
            for ending in data.outcomes
        ]
    )


async def ack(permit: AuthorizedRequest, job_id: str, data: AckRequest) -> SettleResult:
    """Say that a job is done."""
    service = await permit.authorize_jobs("ack", job_id)
    return await service.claims.ack(job_id, data)


async def nack(permit: AuthorizedRequest, job_id: str, data: NackRequest) -> SettleResult:
    """Say that an attempt failed."""
    service = await permit.authorize_jobs("nack", job_id)
    return await service.claims.nack(job_id, data)


async def heartbeat(permit: AuthorizedRequest, job_id: str, data: HeartbeatRequest) -> HeartbeatResponse:
    """Keep a job for longer, and say how far it is."""
    service = await permit.authorize_jobs("heartbeat", job_id)
    return await service.claims.heartbeat(job_id, data)


async def extend(permit: AuthorizedRequest, job_id: str, data: ExtendRequest) -> HeartbeatResponse:
    """Let a lease end later than it would."""
    service = await permit.authorize_jobs("extend", job_id)
    return await service.claims.extend(job_id, data)


async def peek(permit: AuthorizedRequest, queue: str, limit: int) -> PeekResponse:
    """Show the jobs that would be claimed next, and take none."""
    return await permit.authorize("peek", queue).job_reads.peek(queue, limit)
