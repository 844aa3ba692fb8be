"""What operators may do to schedules, workers and limits. None of these belongs to a queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.jobs import EnqueueResponse
from forebay.service.schema.schedules import (
    ChangeResponse,
    CommandList,
    CommandRequest,
    LimitList,
    LimitRequest,
    LimitView,
    PreviewResponse,
    ScheduleList,
    ScheduleRequest,
    ScheduleRunList,
    ScheduleView,
    WorkerList,
)


async def schedules(permit: AuthorizedRequest) -> ScheduleList:
    """List schedules by name."""
    return await permit.authorize("schedules").steering.schedules()


async def schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Show a schedule with its next run."""
    return await permit.authorize("schedule").steering.schedule(name)


async def save_schedule(permit: AuthorizedRequest, name: str, data: ScheduleRequest) -> ScheduleView:
    """Make a schedule, or change what it does and when."""
    return await permit.authorize("save_schedule").steering.save_schedule(name, data, permit.actor)


async def preview_schedule(
    permit: AuthorizedRequest, name: str, data: ScheduleRequest, runs: int
) -> PreviewResponse:
    """Say when such a schedule would run next; nothing is saved."""
    return await permit.authorize("preview_schedule").steering.preview_schedule(name, data, runs)


async def remove_schedule(permit: AuthorizedRequest, name: str) -> ChangeResponse:
    """Forget a schedule with its history; its jobs stay."""
    return await permit.authorize("remove_schedule").steering.remove_schedule(name, permit.actor)


async def pause_schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Enqueue no more of its jobs."""
    return await permit.authorize("pause_schedule").steering.pause_schedule(name, permit.actor)


async def resume_schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Let it go on from now."""
    return await permit.authorize("resume_schedule").steering.resume_schedule(name, permit.actor)


async def fire_schedule(permit: AuthorizedRequest, name: str) -> EnqueueResponse:
    """Enqueue its job now."""
    return await permit.authorize("fire_schedule").steering.fire_schedule(name, permit.actor)


async def schedule_runs(permit: AuthorizedRequest, name: str, limit: int) -> ScheduleRunList:
    """List what became of its runs, newest first."""
    return await permit.authorize("schedule_runs").steering.schedule_runs(name, limit)


async def workers(permit: AuthorizedRequest, *, active_only: bool) -> WorkerList:
    """List workers with their state."""
    return await permit.authorize("workers").steering.workers(active_only=active_only)


async def command(permit: AuthorizedRequest, data: CommandRequest) -> CommandList:
    """Ask workers to pause, resume, stop, or say what their threads do."""
    return await permit.authorize("command").steering.command(data, permit.actor)


async def commands(permit: AuthorizedRequest, ids: list[str]) -> CommandList:
    """Show what came of commands."""
    return await permit.authorize("commands").steering.commands(ids)


async def limits(permit: AuthorizedRequest) -> LimitList:
    """List limits by scope."""
    return await permit.authorize("limits").steering.limits()


async def set_limit(permit: AuthorizedRequest, data: LimitRequest) -> LimitView:
    """Set the limit of a scope."""
    return await permit.authorize("set_limit").steering.set_limit(data, permit.actor)


async def remove_limit(permit: AuthorizedRequest, scope: str) -> ChangeResponse:
    """Remove the limit of a scope."""
    return await permit.authorize("remove_limit").steering.remove_limit(scope, permit.actor)
