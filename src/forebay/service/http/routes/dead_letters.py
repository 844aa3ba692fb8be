"""Routes for dead letters by what they died of, and for ramps."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import dead_letters as permitted
from forebay.service.schema.dead_letters import (
    FailureGroupList,
    FailureGroupsRequest,
    GradualReviveList,
    GradualReviveRequest,
    GradualReviveView,
)

GradualRevivePath = Annotated[
    str, PathParameter(description="The name of a gradual revive.", pattern="^[0-9A-Z]{1,40}$")
]


@post("/v1/dead-letters/failure-groups", tags=["dead letters"], status_code=200)
async def failure_groups(request: HttpRequest, data: JSONBody[FailureGroupsRequest]) -> FailureGroupList:
    """Show dead letters by what they died of, the largest group first."""
    return await permitted.failure_groups(permit_of(request), data)


@post("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def start_gradual_revive(
    request: HttpRequest, data: JSONBody[GradualReviveRequest]
) -> GradualReviveView:
    """Begin to put dead letters back in batches that grow, until too many die again."""
    return await permitted.start_gradual_revive(permit_of(request), data)


@get("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def gradual_revives(request: HttpRequest) -> GradualReviveList:
    """List ramps, the newest first."""
    return await permitted.gradual_revives(permit_of(request))


@get("/v1/dead-letters/gradual-revives/{name:str}", tags=["dead letters"])
async def gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Show how far a ramp has come."""
    return await permitted.gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/pause", tags=["dead letters"], status_code=200)
async def pause_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Put no more dead letters back until the ramp is resumed."""
    return await permitted.pause_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/resume", tags=["dead letters"], status_code=200)
async def resume_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Go on with a ramp that was paused or has stopped."""
    return await permitted.resume_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/stop", tags=["dead letters"], status_code=200)
async def stop_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """End a ramp; what was put back goes on."""
    return await permitted.stop_gradual_revive(permit_of(request), name)


ROUTES = (
    failure_groups,
    start_gradual_revive,
    gradual_revives,
    gradual_revive,
    pause_gradual_revive,
    resume_gradual_revive,
    stop_gradual_revive,
)
