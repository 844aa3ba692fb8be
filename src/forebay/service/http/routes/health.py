"""Health routes: liveness and readiness."""

from __future__ import annotations

from typing import Literal

from litestar import get

from forebay.service.http.request_context import HttpRequest, service_of
from forebay.service.schema.base import ResponseModel


class LivenessResponse(ResponseModel, frozen=True, kw_only=True):
    """Server answers."""

    status: Literal["ok"] = "ok"


@get("/health/live", tags=["health"])
async def live() -> LivenessResponse:
    """Report that the process runs, whatever the state of its store is."""
    return LivenessResponse()


@get("/health/ready", tags=["health"])
async def ready(request: HttpRequest) -> LivenessResponse:
    """Report whether the store answers. Servers check it once a second."""
    await service_of(request).check()
    return LivenessResponse()


ROUTES = (live, ready)
