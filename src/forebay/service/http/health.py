"""Routes for whoever watches over the server."""

from __future__ import annotations

from typing import Literal

from litestar import get

from forebay.service.http.calling import Asking, open_service
from forebay.service.schema.shared import Shape


class Alive(Shape, frozen=True, kw_only=True):
    """The server answers."""

    status: Literal["ok"] = "ok"


@get("/health/live", tags=["health"])
async def live() -> Alive:
    """Say that the process runs, whatever its store does."""
    return Alive()


@get("/health/ready", tags=["health"])
async def ready(request: Asking) -> Alive:
    """Say whether the store answers, so that requests can be served. Servers look once a second."""
    await open_service(request).check()
    return Alive()


ROUTES = (live, ready)
