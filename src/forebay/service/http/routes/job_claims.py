"""Routes for claims, settlements and leases."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from forebay.service.http.client_disconnect import DisconnectedWithResult, run_while_connected
from forebay.service.http.request_context import HttpRequest, JobIdPath, QueuePath, permit_of
from forebay.service.permissions import job_claims as permitted
from forebay.service.schema.job_claims import (
    AckRequest,
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

LimitQuery = Annotated[int, QueryParameter(ge=1, le=1_000, description="At most this number.")]


@post("/v1/claim", tags=["consume"], status_code=200)
async def claim(request: HttpRequest, data: JSONBody[ClaimRequest]) -> ClaimResponse:
    """Claim jobs, with a lease on each; wait for some if there are none."""
    permit = permit_of(request)
    try:
        return await run_while_connected(request.receive, permitted.claim(permit, data))
    except DisconnectedWithResult as exc:
        await permit.service.claims.give_back(exc.answer)
        raise


@post("/v1/settle", tags=["consume"], status_code=200)
async def settle(request: HttpRequest, data: JSONBody[SettleRequest]) -> SettleResponse:
    """Report the outcomes of several jobs; each is answered separately."""
    return await permitted.settle(permit_of(request), data)


@post("/v1/jobs/{job_id:str}/ack", tags=["consume"], status_code=200)
async def ack(request: HttpRequest, job_id: JobIdPath, data: JSONBody[AckRequest]) -> SettleResult:
    """Report that a job has completed."""
    return await permitted.ack(permit_of(request), job_id, data)


@post("/v1/jobs/{job_id:str}/nack", tags=["consume"], status_code=200)
async def nack(request: HttpRequest, job_id: JobIdPath, data: JSONBody[NackRequest]) -> SettleResult:
    """Report that an attempt has failed."""
    return await permitted.nack(permit_of(request), job_id, data)


@post("/v1/jobs/{job_id:str}/heartbeat", tags=["consume"], status_code=200)
async def heartbeat(
    request: HttpRequest, job_id: JobIdPath, data: JSONBody[HeartbeatRequest]
) -> HeartbeatResponse:
    """Renew a lease, and report progress."""
    return await permitted.heartbeat(permit_of(request), job_id, data)


@post("/v1/jobs/{job_id:str}/extend", tags=["consume"], status_code=200)
async def extend(request: HttpRequest, job_id: JobIdPath, data: JSONBody[ExtendRequest]) -> HeartbeatResponse:
    """Extend a lease."""
    return await permitted.extend(permit_of(request), job_id, data)


@get("/v1/queues/{queue:str}/peek", tags=["consume"])
async def peek(request: HttpRequest, queue: QueuePath, limit: LimitQuery = 10) -> PeekResponse:
    """Show the next jobs to be claimed, without claiming them."""
    return await permitted.peek(permit_of(request), queue, limit)


ROUTES = (claim, settle, ack, nack, heartbeat, extend, peek)
