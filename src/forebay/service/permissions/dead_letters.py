"""Permission checks for dead letters, failure groups and gradual revives.

A gradual revive belongs to the queues that its conditions name, or to all queues.
"""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.dependencies import redact_parent
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.jobs import authorize_filter
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
from forebay.service.service import Service


async def failure_groups(permit: AuthorizedRequest, data: FailureGroupsRequest) -> FailureGroupList:
    """Show dead letters by what they died of, the largest group first."""
    found = await authorize_filter(permit, "failure_groups", data.where).dead_letters.failure_groups(data)
    if permit.caller.may("job"):
        return found
    # A job may have ended because of one of a hidden queue.
    nameless = [replace(one, example_reason=redact_parent(one.example_reason)) for one in found.groups]
    return replace(found, groups=nameless)


async def start_gradual_revive(permit: AuthorizedRequest, data: GradualReviveRequest) -> GradualReviveView:
    """Begin to put dead letters back in batches that grow, until too many die again."""
    return await authorize_filter(
        permit, "start_gradual_revive", data.where
    ).dead_letters.start_gradual_revive(data, permit.actor)


async def gradual_revives(permit: AuthorizedRequest) -> GradualReviveList:
    """List ramps, the newest first."""
    found = await permit.service.dead_letters.gradual_revives()
    return GradualReviveList(gradual_revives=[one for one in found.gradual_revives if _may_see(permit, one)])


def _may_see(permit: AuthorizedRequest, view: GradualReviveView) -> bool:
    return all(permit.caller.may("gradual_revives", queue) for queue in view.queues or (None,))


async def gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Show how far a ramp has come."""
    found = await permit.service.dead_letters.gradual_revive(name)
    permit.authorize("gradual_revives", *found.queues)
    return found


async def pause_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Put no more dead letters back until the ramp is resumed."""
    return await (
        await _authorize_change(permit, "pause_gradual_revive", name)
    ).dead_letters.pause_gradual_revive(name, permit.actor)


async def resume_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Go on with a ramp that was paused or has stopped."""
    return await (
        await _authorize_change(permit, "resume_gradual_revive", name)
    ).dead_letters.resume_gradual_revive(name, permit.actor)


async def stop_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """End a ramp; what was put back goes on."""
    return await (
        await _authorize_change(permit, "stop_gradual_revive", name)
    ).dead_letters.stop_gradual_revive(name, permit.actor)


async def _authorize_change(permit: AuthorizedRequest, operation: str, name: str) -> Service:
    """The operations, for one about a ramp; its queues stay what they were at its start."""
    found = await permit.service.dead_letters.gradual_revive(name)
    return permit.authorize(operation, *found.queues)


async def dead_letters(permit: AuthorizedRequest, data: SearchRequest) -> JobList:
    """List dead letters, newest first."""
    found = await authorize_filter(permit, "dead_letters", data.where).dead_letters.dead_letters(data)
    return replace(found, jobs=permit.redact_items(found.jobs))


async def revive_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Put the dead letters that fit back."""
    service = authorize_filter(permit, "revive_dead", data.where)
    return await service.dead_letters.revive_dead(data, permit.actor)


async def purge_dead(permit: AuthorizedRequest, data: DeadLetterRequest) -> BulkResponse:
    """Delete the dead letters that fit for good."""
    service = authorize_filter(permit, "purge_dead", data.where)
    return await service.dead_letters.purge_dead(data, permit.actor)
