"""Routes for gradual revives of dead letters."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import gradual_revives as permitted
from forebay.service.schema.gradual_revives import GradualReviveList, GradualReviveRequest, GradualReviveView

GradualRevivePath = Annotated[
    str, PathParameter(description="The name of a gradual revive.", pattern="^[0-9A-Z]{1,40}$")
]


@post("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def start_gradual_revive(
    request: HttpRequest, data: JSONBody[GradualReviveRequest]
) -> GradualReviveView:
    """Start to revive dead letters in growing batches, until too many fail again."""
    return await permitted.start_gradual_revive(permit_of(request), data)


@get("/v1/dead-letters/gradual-revives", tags=["dead letters"])
async def gradual_revives(request: HttpRequest) -> GradualReviveList:
    """List gradual revives, newest first."""
    return await permitted.gradual_revives(permit_of(request))


@get("/v1/dead-letters/gradual-revives/{name:str}", tags=["dead letters"])
async def gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Show the progress of a gradual revive."""
    return await permitted.gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/pause", tags=["dead letters"], status_code=200)
async def pause_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Pause a gradual revive: no further batch starts until it is resumed."""
    return await permitted.pause_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/resume", tags=["dead letters"], status_code=200)
async def resume_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """Resume a gradual revive that was paused or has stopped."""
    return await permitted.resume_gradual_revive(permit_of(request), name)


@post("/v1/dead-letters/gradual-revives/{name:str}/stop", tags=["dead letters"], status_code=200)
async def stop_gradual_revive(request: HttpRequest, name: GradualRevivePath) -> GradualReviveView:
    """End a gradual revive; revived jobs stay in their queues."""
    return await permitted.stop_gradual_revive(permit_of(request), name)


ROUTES = (
    *(start_gradual_revive, gradual_revives, gradual_revive),
    *(pause_gradual_revive, resume_gradual_revive, stop_gradual_revive),
)
