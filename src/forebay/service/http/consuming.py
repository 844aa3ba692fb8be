"""Routes for consumers."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from forebay.service.http.calling import (
    Asking,
    JobIdPath,
    Late,
    QueuePath,
    allowed,
    allowed_for,
    while_connected,
)
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
        return await while_connected(request, consuming.claim(data))
    except Late as late:
        await consuming.give_back(late.answer)
        raise


@post("/v1/settle", tags=["consume"], status_code=200)
async def settle(request: Asking, data: JSONBody[SettleRequest]) -> SettleAnswer:
    """Say how several jobs ended."""
    service = await allowed_for(request, "settle", *(ending.id for ending in data.endings))
    return await service.consuming.settle(data)


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
