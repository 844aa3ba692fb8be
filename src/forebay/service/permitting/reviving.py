"""What operators may do to dead letters by what they died of, and to ramps.

A ramp belongs to the queues that its conditions name, or to all of them.
"""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.workflow import without_parent
from forebay.service.operations.service import Service
from forebay.service.permitting.administering import choosing
from forebay.service.permitting.permit import Permit
from forebay.service.schema.reviving import GroupList, GroupsRequest, RampList, RampRequest, RampShape


async def failure_groups(permit: Permit, data: GroupsRequest) -> GroupList:
    """Show dead letters by what they died of, the largest group first."""
    found = await choosing(permit, "failure_groups", data.where).reviving.groups(data)
    if permit.caller.may("job"):
        return found
    # A job may have ended because of one of a hidden queue.
    nameless = [replace(one, example_reason=without_parent(one.example_reason)) for one in found.groups]
    return replace(found, groups=nameless)


async def start_ramp(permit: Permit, data: RampRequest) -> RampShape:
    """Begin to put dead letters back in batches that grow, until too many die again."""
    return await choosing(permit, "start_ramp", data.where).reviving.start(data, permit.actor)


async def ramps(permit: Permit) -> RampList:
    """List ramps, the newest first."""
    found = await permit.service.reviving.ramps()
    return RampList(ramps=[one for one in found.ramps if _may(permit, one)])


def _may(permit: Permit, ramp: RampShape) -> bool:
    return all(permit.caller.may("ramps", queue) for queue in ramp.queues or (None,))


async def ramp(permit: Permit, name: str) -> RampShape:
    """Show how far a ramp has come."""
    found = await permit.service.reviving.ramp(name)
    permit.allowed("ramps", *found.queues)
    return found


async def pause_ramp(permit: Permit, name: str) -> RampShape:
    """Put no more dead letters back until the ramp is resumed."""
    return await (await _steering(permit, "pause_ramp", name)).reviving.pause(name, permit.actor)


async def resume_ramp(permit: Permit, name: str) -> RampShape:
    """Go on with a ramp that was paused or has stopped."""
    return await (await _steering(permit, "resume_ramp", name)).reviving.resume(name, permit.actor)


async def stop_ramp(permit: Permit, name: str) -> RampShape:
    """End a ramp; what was put back goes on."""
    return await (await _steering(permit, "stop_ramp", name)).reviving.stop(name, permit.actor)


async def _steering(permit: Permit, operation: str, name: str) -> Service:
    """The operations, for one about a ramp; its queues stay what they were at its start."""
    found = await permit.service.reviving.ramp(name)
    return permit.allowed(operation, *found.queues)
