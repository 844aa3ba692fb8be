"""Routes for whoever watches over the server."""

from __future__ import annotations

from typing import Literal

from litestar import get

from forebay.service.http.request_context import HttpRequest, service_of
from forebay.service.schema.base import ResponseModel


class LivenessResponse(ResponseModel, frozen=True, kw_only=True):
    """The server answers."""

    status: Literal["ok"] = "ok"


@get("/health/live", tags=["health"])
async def live() -> LivenessResponse:
    """Say that the process runs, whatever its store does."""
    return LivenessResponse()


@get("/health/ready", tags=["health"])
async def ready(request: HttpRequest) -> LivenessResponse:
    """Say whether the store answers, so that requests can be served. Servers look once a second."""
    await service_of(request).check()
    return LivenessResponse()


ROUTES = (live, ready)
