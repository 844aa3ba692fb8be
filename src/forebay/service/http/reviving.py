"""Routes for dead letters by what they died of, and for ramps."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from forebay.service.http.calling import Asking, permit_of
from forebay.service.permitting import reviving as permitted
from forebay.service.schema.reviving import GroupList, GroupsRequest, RampList, RampRequest, RampShape

RampPath = Annotated[str, PathParameter(description="The name of a ramp.", pattern="^[0-9A-Z]{1,40}$")]


@post("/v1/dead/groups", tags=["dead letters"], status_code=200)
async def failure_groups(request: Asking, data: JSONBody[GroupsRequest]) -> GroupList:
    """Show dead letters by what they died of, the largest group first."""
    return await permitted.failure_groups(permit_of(request), data)


@post("/v1/dead/ramps", tags=["dead letters"])
async def start_ramp(request: Asking, data: JSONBody[RampRequest]) -> RampShape:
    """Begin to put dead letters back in batches that grow, until too many die again."""
    return await permitted.start_ramp(permit_of(request), data)


@get("/v1/dead/ramps", tags=["dead letters"])
async def ramps(request: Asking) -> RampList:
    """List ramps, the newest first."""
    return await permitted.ramps(permit_of(request))


@get("/v1/dead/ramps/{name:str}", tags=["dead letters"])
async def ramp(request: Asking, name: RampPath) -> RampShape:
    """Show how far a ramp has come."""
    return await permitted.ramp(permit_of(request), name)


@post("/v1/dead/ramps/{name:str}/pause", tags=["dead letters"], status_code=200)
async def pause_ramp(request: Asking, name: RampPath) -> RampShape:
    """Put no more dead letters back until the ramp is resumed."""
    return await permitted.pause_ramp(permit_of(request), name)


@post("/v1/dead/ramps/{name:str}/resume", tags=["dead letters"], status_code=200)
async def resume_ramp(request: Asking, name: RampPath) -> RampShape:
    """Go on with a ramp that was paused or has stopped."""
    return await permitted.resume_ramp(permit_of(request), name)


@post("/v1/dead/ramps/{name:str}/stop", tags=["dead letters"], status_code=200)
async def stop_ramp(request: Asking, name: RampPath) -> RampShape:
    """End a ramp; what was put back goes on."""
    return await permitted.stop_ramp(permit_of(request), name)


ROUTES = (failure_groups, start_ramp, ramps, ramp, pause_ramp, resume_ramp, stop_ramp)
