"""Permission checks for claims and settlements."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext

from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.problem_details import problem_of
from forebay.service.resources.job_claims import group_key_of
from forebay.service.schema.job_claims import (
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
    """Claim jobs, with a lease on each; wait for some if there are none. If the caller is cancelled because
    its client has disconnected, claimed jobs are handed back."""
    claims = permit.authorize("claim", *data.queues).claims
    with permit.caller.reserve_wait(group_key_of(data)) if data.wait_seconds else nullcontext():
        answer = await claims.claim(data)
    if answer.jobs:
        try:
            await permit.caller.recheck("claim", *data.queues)
        except (ForebayError, CancelledError):
            await claims.give_back(answer)
            raise
    return answer


async def stream(
    permit: AuthorizedRequest, data: ClaimCriteria, window: int
) -> AsyncGenerator[ClaimedJob, None]:
    """Claim jobs as they come. When the stream is closed, jobs that it has not yielded yet are handed back;
    the others keep their leases."""
    claims = permit.authorize("claim", *data.queues).claims
    with permit.caller.reserve_stream(group_key_of(data)):
        async with aclosing(claims.stream(data, window)) as answers:
            async for answer in answers:
                left = list(answer.jobs)
                try:
                    await permit.caller.recheck("claim", *data.queues)
                    while left:
                        yield left[0]
                        del left[0]  # after the yield: only then was the job delivered
                finally:
                    await claims.give_back(ClaimResponse(jobs=left))


async def settle(permit: AuthorizedRequest, data: SettleRequest) -> SettleResponse:
    """Report the outcomes of several jobs; each is answered separately."""
    refused = await permit.find_refusals("settle", *(outcome.id for outcome in data.outcomes))
    if not refused:
        return await permit.service.claims.settle(data)
    allowed = [outcome for outcome in data.outcomes if outcome.id not in refused]
    answer = await permit.service.claims.settle(replace(data, outcomes=allowed))
    settled = iter(answer.settled)
    return SettleResponse(
        settled=[
            next(settled)
            if (error := refused.get(outcome.id)) is None
            else SettleResult(id=outcome.id, is_kept=False, problem=problem_of(error))
            for outcome in data.outcomes
        ]
    )


async def ack(permit: AuthorizedRequest, job_id: str, data: AckRequest) -> SettleResult:
    """Report that a job has completed."""
    service = await permit.authorize_jobs("ack", job_id)
    return await service.claims.ack(job_id, data)


async def nack(permit: AuthorizedRequest, job_id: str, data: NackRequest) -> SettleResult:
    """Report that an attempt has failed."""
    service = await permit.authorize_jobs("nack", job_id)
    return await service.claims.nack(job_id, data)


async def heartbeat(permit: AuthorizedRequest, job_id: str, data: HeartbeatRequest) -> HeartbeatResponse:
    """Renew a lease, and report progress."""
    service = await permit.authorize_jobs("heartbeat", job_id)
    return await service.claims.heartbeat(job_id, data)


async def extend(permit: AuthorizedRequest, job_id: str, data: ExtendRequest) -> HeartbeatResponse:
    """Extend a lease."""
    service = await permit.authorize_jobs("extend", job_id)
    return await service.claims.extend(job_id, data)


async def peek(permit: AuthorizedRequest, queue: str, limit: int) -> PeekResponse:
    """Show the next jobs to be claimed, without claiming them."""
    return await permit.authorize("peek", queue).job_reads.peek(queue, limit)
