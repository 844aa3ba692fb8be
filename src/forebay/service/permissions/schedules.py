"""Permission checks for schedules, which belong to no queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.base import ChangeResponse
from forebay.service.schema.producer_jobs import EnqueueResponse
from forebay.service.schema.schedules import (
    PreviewResponse,
    ScheduleList,
    ScheduleRequest,
    ScheduleRunList,
    ScheduleView,
)


async def schedules(permit: AuthorizedRequest) -> ScheduleList:
    """List schedules by name."""
    return await permit.authorize("schedules").schedules.schedules()


async def schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Show a schedule with its next run."""
    return await permit.authorize("schedule").schedules.schedule(name)


async def save_schedule(permit: AuthorizedRequest, name: str, data: ScheduleRequest) -> ScheduleView:
    """Create or change a schedule."""
    return await permit.authorize("save_schedule").schedules.save_schedule(name, data, permit.actor)


async def preview_schedule(
    permit: AuthorizedRequest, name: str, data: ScheduleRequest, runs: int
) -> PreviewResponse:
    """Return the next runs of such a schedule; nothing is saved."""
    return await permit.authorize("preview_schedule").schedules.preview_schedule(name, data, runs)


async def remove_schedule(permit: AuthorizedRequest, name: str) -> ChangeResponse:
    """Remove a schedule with its history; its jobs stay."""
    return await permit.authorize("remove_schedule").schedules.remove_schedule(name, permit.actor)


async def pause_schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Pause a schedule: no further runs are enqueued."""
    return await permit.authorize("pause_schedule").schedules.pause_schedule(name, permit.actor)


async def resume_schedule(permit: AuthorizedRequest, name: str) -> ScheduleView:
    """Resume a schedule from now on."""
    return await permit.authorize("resume_schedule").schedules.resume_schedule(name, permit.actor)


async def fire_schedule(permit: AuthorizedRequest, name: str) -> EnqueueResponse:
    """Enqueue the job of a schedule now."""
    return await permit.authorize("fire_schedule").schedules.fire_schedule(name, permit.actor)


async def schedule_runs(permit: AuthorizedRequest, name: str, limit: int) -> ScheduleRunList:
    """List the runs of a schedule, newest first."""
    return await permit.authorize("schedule_runs").schedules.schedule_runs(name, limit)
