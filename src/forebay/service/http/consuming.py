"""Routes for consumers."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.service.http.calling import (
    Asking,
    JobIdPath,
    Late,
    QueuePath,
    allowed,
    allowed_for,
    caller_of,
    open_service,
    refusals,
    while_connected,
)
from forebay.service.operations.telling import problem_of
from forebay.service.schema.consuming import (
    AckRequest,
    ClaimAnswer,
    ClaimRequest,
    ExtendRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    NackRequest,
    SettleAnswer,
    Settled,
    SettleRequest,
)
from forebay.service.schema.looking import PeekAnswer

LimitQuery = Annotated[int, QueryParameter(ge=1, le=1_000, description="At most so many.")]


@post("/v1/claim", tags=["consume"], status_code=200)
async def claim(request: Asking, data: JSONBody[ClaimRequest]) -> ClaimAnswer:
    """Take jobs to run, and a lease on each; wait for some if there are none."""
    consuming = allowed(request, "claim", *data.queues).consuming
    try:
        answer = await while_connected(request, consuming.claim(data))
    except Late as late:
        await consuming.give_back(late.answer)
        raise
    if answer.jobs:
        try:
            await caller_of(request).check_still("claim", *data.queues)
        except ForebayError:
            await consuming.give_back(answer)
            raise
    return answer


@post("/v1/settle", tags=["consume"], status_code=200)
async def settle(request: Asking, data: JSONBody[SettleRequest]) -> SettleAnswer:
    """Say how several jobs ended."""
    refused = await refusals(request, "settle", *(ending.id for ending in data.endings))
    theirs = [ending for ending in data.endings if ending.id not in refused]
    answer = await open_service(request).consuming.settle(replace(data, endings=theirs))
    settled = iter(answer.settled)
    return SettleAnswer(
        settled=[
            next(settled)
            if (error := refused.get(ending.id)) is None
            else Settled(id=ending.id, is_kept=False, problem=problem_of(error))
            for ending in data.endings
        ]
    )


@post("/v1/jobs/{job_id:str}/ack", tags=["consume"], status_code=200)
async def ack(request: Asking, job_id: JobIdPath, data: JSONBody[AckRequest]) -> Settled:
    """Say that a job is done."""
    service = await allowed_for(request, "ack", job_id)
    return await service.consuming.ack(job_id, data)


@post("/v1/jobs/{job_id:str}/nack", tags=["consume"], status_code=200)
async def nack(request: Asking, job_id: JobIdPath, data: JSONBody[NackRequest]) -> Settled:
    """Say that an attempt failed."""
    service = await allowed_for(request, "nack", job_id)
    return await service.consuming.nack(job_id, data)


@post("/v1/jobs/{job_id:str}/heartbeat", tags=["consume"], status_code=200)
async def heartbeat(request: Asking, job_id: JobIdPath, data: JSONBody[HeartbeatRequest]) -> HeartbeatAnswer:
    """Keep a job for longer, and say how far it is."""
    service = await allowed_for(request, "heartbeat", job_id)
    return await service.consuming.heartbeat(job_id, data)


@post("/v1/jobs/{job_id:str}/extend", tags=["consume"], status_code=200)
async def extend(request: Asking, job_id: JobIdPath, data: JSONBody[ExtendRequest]) -> HeartbeatAnswer:
    """Let a lease end later than it would."""
    service = await allowed_for(request, "extend", job_id)
    return await service.consuming.extend(job_id, data)


@get("/v1/queues/{queue:str}/peek", tags=["consume"])
async def peek(request: Asking, queue: QueuePath, limit: LimitQuery = 10) -> PeekAnswer:
    """Show the jobs that would be claimed next, and take none."""
    return await allowed(request, "peek", queue).looking.peek(queue, limit)


ROUTES = (claim, settle, ack, nack, heartbeat, extend, peek)
