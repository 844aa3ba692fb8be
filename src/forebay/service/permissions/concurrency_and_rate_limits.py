"""Permission checks for limits, which belong to no queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.base import ChangeResponse
from forebay.service.schema.concurrency_and_rate_limits import LimitList, LimitRequest, LimitView


async def limits(permit: AuthorizedRequest) -> LimitList:
    """List limits with their usage, by scope."""
    return await permit.authorize("limits").limits.limits()


async def set_limit(permit: AuthorizedRequest, data: LimitRequest) -> LimitView:
    """Set the limit of a scope."""
    return await permit.authorize("set_limit").limits.set_limit(data, permit.actor)


async def remove_limit(permit: AuthorizedRequest, scope: str) -> ChangeResponse:
    """Remove the limit of a scope."""
    return await permit.authorize("remove_limit").limits.remove_limit(scope, permit.actor)
