"""Permission checks for workers and commands, which belong to no queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.workers_and_commands import CommandList, CommandRequest, WorkerList


async def workers(permit: AuthorizedRequest, *, active_only: bool) -> WorkerList:
    """List workers with their state."""
    return await permit.authorize("workers").workers.workers(active_only=active_only)


async def command(permit: AuthorizedRequest, data: CommandRequest) -> CommandList:
    """Send a command to workers: pause, resume, stop, drain, halt, or return their thread stacks."""
    return await permit.authorize("command").workers.command(data, permit.actor)


async def commands(permit: AuthorizedRequest, ids: list[str]) -> CommandList:
    """Show commands with the responses of their workers."""
    return await permit.authorize("commands").workers.commands(ids)
