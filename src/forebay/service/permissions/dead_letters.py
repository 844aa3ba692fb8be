"""Permission checks for dead letters and failure groups."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.dependencies import redact_parent
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.jobs import authorize_filter
from forebay.service.schema.dead_letters import DeadLetterRequest, FailureGroupList, FailureGroupsRequest
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import SearchRequest
from forebay.service.schema.job_views import JobList


async def failure_groups(permit: AuthorizedRequest, data: FailureGroupsRequest) -> FailureGroupList:
    """Group dead letters by error, largest group first."""
    found = await authorize_filter(permit, "failure_groups", data.where).dead_letters.failure_groups(data)
    if permit.caller.may("job"):
        return found
    # A reason may name a job of a hidden queue.
    redacted = [replace(group, example_reason=redact_parent(group.example_reason)) for group in found.groups]
    return replace(found, groups=redacted)


async def dead_letters(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List matching dead letters, newest first."""
    found = await authorize_filter(permit, "dead_letters", data.where).dead_letters.dead_letters(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def revive_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Revive matching dead letters."""
    service = authorize_filter(permit, "revive_dead", data.where)
    return await service.dead_letters.revive_dead(data, permit.actor)


async def purge_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Delete matching dead letters."""
    service = authorize_filter(permit, "purge_dead", data.where)
    return await service.dead_letters.purge_dead(data, permit.actor)
