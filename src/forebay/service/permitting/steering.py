"""What operators may do to schedules, workers and limits. None of these belongs to a queue."""

from __future__ import annotations

from forebay.service.permitting.permit import Permit
from forebay.service.schema.producing import Accepted
from forebay.service.schema.steering import (
    Answered,
    CommandList,
    CommandRequest,
    FiringList,
    LimitList,
    LimitRequest,
    LimitShape,
    PreviewAnswer,
    ScheduleList,
    ScheduleRequest,
    ScheduleShape,
    WorkerList,
)


async def schedules(permit: Permit) -> ScheduleList:
    """List schedules by name."""
    return await permit.allowed("schedules").steering.schedules()


async def schedule(permit: Permit, name: str) -> ScheduleShape:
    """Show a schedule with its next run."""
    return await permit.allowed("schedule").steering.schedule(name)


async def save_schedule(permit: Permit, name: str, data: ScheduleRequest) -> ScheduleShape:
    """Make a schedule, or change what it does and when."""
    return await permit.allowed("save_schedule").steering.save_schedule(name, data, permit.actor)


async def preview_schedule(permit: Permit, name: str, data: ScheduleRequest, runs: int) -> PreviewAnswer:
    """Say when such a schedule would run next; nothing is saved."""
    return await permit.allowed("preview_schedule").steering.preview_schedule(name, data, runs)


async def remove_schedule(permit: Permit, name: str) -> Answered:
    """Forget a schedule with its history; its jobs stay."""
    return await permit.allowed("remove_schedule").steering.remove_schedule(name, permit.actor)


async def pause_schedule(permit: Permit, name: str) -> ScheduleShape:
    """Enqueue no more of its jobs."""
    return await permit.allowed("pause_schedule").steering.pause_schedule(name, permit.actor)


async def resume_schedule(permit: Permit, name: str) -> ScheduleShape:
    """Let it go on from now."""
    return await permit.allowed("resume_schedule").steering.resume_schedule(name, permit.actor)


async def fire_schedule(permit: Permit, name: str) -> Accepted:
    """Enqueue its job now."""
    return await permit.allowed("fire_schedule").steering.fire_schedule(name, permit.actor)


async def firings(permit: Permit, name: str, limit: int) -> FiringList:
    """List what became of its runs, newest first."""
    return await permit.allowed("firings").steering.firings(name, limit)


async def workers(permit: Permit, *, active_only: bool) -> WorkerList:
    """List workers with their state."""
    return await permit.allowed("workers").steering.workers(active_only=active_only)


async def command(permit: Permit, data: CommandRequest) -> CommandList:
    """Ask workers to pause, resume, stop, or say what their threads do."""
    return await permit.allowed("command").steering.command(data, permit.actor)


async def commands(permit: Permit, ids: list[str]) -> CommandList:
    """Show what came of commands."""
    return await permit.allowed("commands").steering.commands(ids)


async def limits(permit: Permit) -> LimitList:
    """List limits by scope."""
    return await permit.allowed("limits").steering.limits()


async def set_limit(permit: Permit, data: LimitRequest) -> LimitShape:
    """Set the limit of a scope."""
    return await permit.allowed("set_limit").steering.set_limit(data, permit.actor)


async def remove_limit(permit: Permit, scope: str) -> Answered:
    """Remove the limit of a scope."""
    return await permit.allowed("remove_limit").steering.remove_limit(scope, permit.actor)
