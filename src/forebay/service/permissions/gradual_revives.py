"""Permission checks for gradual revives.

A gradual revive belongs to the queues that its conditions name, or to all queues.
"""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.jobs import authorize_filter
from forebay.service.schema.gradual_revives import GradualReviveList, GradualReviveRequest, GradualReviveView
from forebay.service.service import Service


async def start_gradual_revive(permit: AuthorizedRequest, data: GradualReviveRequest) -> GradualReviveView:
    """Start to revive dead letters in growing batches, until too many fail again."""
    return await authorize_filter(
        permit, "start_gradual_revive", data.where
    ).gradual_revives.start_gradual_revive(data, permit.actor)


async def gradual_revives(permit: AuthorizedRequest) -> GradualReviveList:
    """List gradual revives, newest first."""
    found = await permit.service.gradual_revives.gradual_revives()
    return GradualReviveList(gradual_revives=[one for one in found.gradual_revives if _may_see(permit, one)])


def _may_see(permit: AuthorizedRequest, view: GradualReviveView) -> bool:
    return all(permit.caller.may("gradual_revives", queue) for queue in view.queues or (None,))


async def gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Show the progress of a gradual revive."""
    found = await permit.service.gradual_revives.gradual_revive(name)
    permit.authorize("gradual_revives", *found.queues)
    return found


async def pause_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Pause a gradual revive: no further batch starts until it is resumed."""
    return await (
        await _authorize_change(permit, "pause_gradual_revive", name)
    ).gradual_revives.pause_gradual_revive(name, permit.actor)


async def resume_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """Resume a gradual revive that was paused or has stopped."""
    return await (
        await _authorize_change(permit, "resume_gradual_revive", name)
    ).gradual_revives.resume_gradual_revive(name, permit.actor)


async def stop_gradual_revive(permit: AuthorizedRequest, name: str) -> GradualReviveView:
    """End a gradual revive; revived jobs stay in their queues."""
    return await (
        await _authorize_change(permit, "stop_gradual_revive", name)
    ).gradual_revives.stop_gradual_revive(name, permit.actor)


async def _authorize_change(permit: AuthorizedRequest, operation: str, name: str) -> Service:
    """Return the service for an operation on a gradual revive; its queues never change after its start."""
    found = await permit.service.gradual_revives.gradual_revive(name)
    return permit.authorize(operation, *found.queues)
