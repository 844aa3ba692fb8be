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
from forebay.service.schema.job_admin import BulkResponse, SearchRequest
from forebay.service.schema.job_views import JobList

GradualRevivePath = Annotated[
    str, PathParameter(description="The name of a gradual revive.", pattern="^[0-9A-Z]{1,40}$")
]


@post("/v1/dead-letters/failure-groups", tags=["dead letters"], status_code=200)
async def failure_groups(request: HttpRequest, data: JSONBody[FailureGroupsRequest]) -> FailureGroupList:
    """Group dead letters by error, largest group first."""
    return await permitted.failure_groups(permit_of(request), data)


@post("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def start_gradual_revive(
    request: HttpRequest, data: JSONBody[GradualReviveRequest]
) -> GradualReviveView:
    """Start to revive dead letters in growing batches, until too many fail again."""
    return await permitted.start_gradual_revive(permit_of(request), data)


@get("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def gradual_revives(request: HttpRequest) -> GradualReviveList:
    """List gradual revives, newest first."""
    return await permitted.gradual_revives(permit_of(request))


@get("/v1/dead-letters/gradual-revives/{name:str}", tags=["dead letters"])
async def gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Show the progress of a gradual revive."""
    return await permitted.gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/pause", tags=["dead letters"], status_code=200)
async def pause_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Pause a gradual revive: no further batch starts until it is resumed."""
    return await permitted.pause_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/resume", tags=["dead letters"], status_code=200)
async def resume_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Resume a gradual revive that was paused or has stopped."""
    return await permitted.resume_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/stop", tags=["dead letters"], status_code=200)
async def stop_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """End a gradual revive; revived jobs stay in their queues."""
    return await permitted.stop_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/search", tags=["dead letters"], status_code=200)
async def dead_letters(request: HttpRequest, data: JSONBody[SearchRequest]) -> JobList:
    """List matching dead letters, newest first."""
    return await permitted.dead_letters(permit_of(request), data)


@post("/v1/dead-letters/revive", tags=["dead letters"], status_code=200)
async def revive_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Revive matching dead letters."""
    return await permitted.revive_dead(permit_of(request), data)


@post("/v1/dead-letters/purge", tags=["dead letters"], status_code=200)
async def purge_dead(request: HttpRequest, data: JSONBody[DeadLetterRequest]) -> BulkResponse:
    """Delete matching dead letters."""
    return await permitted.purge_dead(permit_of(request), data)


ROUTES = (
    *(dead_letters, revive_dead, purge_dead, failure_groups, start_gradual_revive, gradual_revives),
    *(gradual_revive, pause_gradual_revive, resume_gradual_revive, stop_gradual_revive),
)
