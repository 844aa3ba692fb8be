"""Routes for dead letters: search, revive, purge and failure groups."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import dead_letters as permitted
from forebay.service.schema.dead_letters import DeadLetterRequest, FailureGroupList, FailureGroupsRequest
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import SearchRequest
from forebay.service.schema.job_views import JobList


@post("/v1/dead-letters/failure-groups", tags=["dead letters"], status_code=200)
async def failure_groups(request: HttpRequest, data: JSONBody[FailureGroupsRequest]) -> FailureGroupList:
    """Group dead letters by error, largest group first."""
    return await permitted.failure_groups(permit_of(request), data)


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


ROUTES = (dead_letters, revive_dead, purge_dead, failure_groups)
