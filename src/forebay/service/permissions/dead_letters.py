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
from forebay.service.schema.job_admin import BulkResponse, SearchRequest
from forebay.service.schema.job_views import JobList
from forebay.service.service import Service


async def failure_groups(permit: AuthorizedRequest, data: FailureGroupsRequest) -> FailureGroupList:
    """Group dead letters by error, largest group first."""
    found = await authorize_filter(permit, "failure_groups", data.where).dead_letters.failure_groups(data)
    if permit.caller.may("job"):
        return found
    # A reason may name a job of a hidden queue.
    redacted = [replace(group, example_reason=redact_parent(group.example_reason)) for group in found.groups]
    return replace(found, groups=redacted)


async def start_gradual_revive(permit: AuthorizedRequest, data: GradualReviveRequest) -> GradualReviveView:
    """Start to revive dead letters in growing batches, until too many fail again."""
    return await authorize_filter(
        permit, "start_gradual_revive", data.where
    ).dead_letters.start_gradual_revive(data, permit.actor)


async def gradual_revives(permit: AuthorizedRequest) -> GradualReviveList:
    """List gradual revives, newest first."""
    found = await permit.service.dead_letters.gradual_revives()
    return GradualReviveList(gradual_revives=[one for one in found.gradual_revives if _may_see(permit, one)])


def _may_see(permit: AuthorizedRequest, view: GradualReviveView) -> bool:
    return all(permit.caller.may("gradual_revives", queue) for queue in view.queues or (None,))


async def gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Show the progress of a gradual revive."""
    found = await permit.service.dead_letters.gradual_revive(name)
    permit.authorize("gradual_revives", *found.queues)
    return found


async def pause_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Pause a gradual revive: no further batch starts until it is resumed."""
    return await (
        await _authorize_change(permit, "pause_gradual_revive", name)
    ).dead_letters.pause_gradual_revive(name, permit.actor)


async def resume_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Resume a gradual revive that was paused or has stopped."""
    return await (
        await _authorize_change(permit, "resume_gradual_revive", name)
    ).dead_letters.resume_gradual_revive(name, permit.actor)


async def stop_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """End a gradual revive; revived jobs stay in their queues."""
    return await (
        await _authorize_change(permit, "stop_gradual_revive", name)
    ).dead_letters.stop_gradual_revive(name, permit.actor)


async def _authorize_change(permit: AuthorizedRequest, operation: str, name: str) -> Service:
    """Return the service for an operation on a gradual revive; its queues never change after its start."""
    found = await permit.service.dead_letters.gradual_revive(name)
    return permit.authorize(operation, *found.queues)


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
