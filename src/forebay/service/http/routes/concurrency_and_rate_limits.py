"""Routes for limits."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import concurrency_and_rate_limits as permitted
from forebay.service.schema.base import ChangeResponse
from forebay.service.schema.concurrency_and_rate_limits import LimitList, LimitRequest, LimitView

ScopePath = Annotated[str, PathParameter(description="The scope of a limit.", min_length=1, max_length=200)]


@get("/v1/limits", tags=["limits"])
async def limits(request: HttpRequest) -> LimitList:
    """List limits with their usage, by scope."""
    return await permitted.limits(permit_of(request))


@put("/v1/limits", tags=["limits"])
async def set_limit(request: HttpRequest, data: JSONBody[LimitRequest]) -> LimitView:
    """Set the limit of a scope."""
    return await permitted.set_limit(permit_of(request), data)


@delete("/v1/limits/{limit_scope:str}", tags=["limits"], status_code=200)
async def remove_limit(request: HttpRequest, limit_scope: ScopePath) -> ChangeResponse:
    """Remove the limit of a scope."""
    return await permitted.remove_limit(permit_of(request), limit_scope)


ROUTES = (limits, set_limit, remove_limit)
