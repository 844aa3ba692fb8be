"""Routes for dead letters: search, revive, purge, failure groups and gradual revives."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import dead_letters as permitted
from forebay.service.schema.dead_letters import (
    DeadLetterRequest,
    FailureGroupList,
    FailureGroupsRequest,
    GradualReviveList,
    GradualReviveRequest,
    GradualReviveView,
)
from forebay.service.schema.job_views import JobList
from forebay.service.schema.search import (
    BulkResponse,
    SearchRequest,
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


@post("/v1/dead-letters/search", tags=["dead letters"], status_code=200)
async def dead_letters(request: HttpRequest, data: JSONBody[SearchRequest]) -> JobList:
    """List dead letters, newest first."""
    return await permitted.dead_letters(permit_of(request), data)


@post("/v1/dead-letters/revive", tags=["dead letters"], status_code=200)
async def revive_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Put the dead letters that fit back."""
    return await permitted.revive_dead(permit_of(request), data)


@post("/v1/dead-letters/purge", tags=["dead letters"], status_code=200)
async def purge_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Delete the dead letters that fit for good."""
    return await permitted.purge_dead(permit_of(request), data)


ROUTES = (
    *(dead_letters, revive_dead, purge_dead, failure_groups, start_gradual_revive, gradual_revives),
    *(gradual_revive, pause_gradual_revive, resume_gradual_revive, stop_gradual_revive),
)
