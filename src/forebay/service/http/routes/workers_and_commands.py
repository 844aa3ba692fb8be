"""Routes for workers and their commands."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import workers_and_commands as permitted
from forebay.service.schema.workers_and_commands import CommandList, CommandRequest, WorkerList

ActiveQuery = Annotated[bool, QueryParameter(description="Leave out dead workers.")]
IdsQuery = Annotated[
    list[str], QueryParameter(description="The id of a command; may be repeated.", min_items=1, max_items=100)
]


@get("/v1/workers", tags=["workers"])
async def workers(request: HttpRequest, active_only: ActiveQuery = True) -> WorkerList:
    """List workers with their state."""
    return await permitted.workers(permit_of(request), active_only=active_only)


@post("/v1/workers/commands", tags=["workers"], status_code=200)
async def command(request: HttpRequest, data: JSONBody[CommandRequest]) -> CommandList:
    """Send a command to workers: pause, resume, stop, drain, halt, or return their thread stacks."""
    return await permitted.command(permit_of(request), data)


@get("/v1/workers/commands", tags=["workers"])
async def commands(request: HttpRequest, ids: IdsQuery) -> CommandList:
    """Show commands with the responses of their workers."""
    return await permitted.commands(permit_of(request), ids)


ROUTES = (workers, command, commands)
