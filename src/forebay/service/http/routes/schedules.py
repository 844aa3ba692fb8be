"""Routes for schedules."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import schedules as permitted
from forebay.service.schema.base import ChangeResponse
from forebay.service.schema.producer_jobs import EnqueueResponse
from forebay.service.schema.schedules import (
    PreviewResponse,
    ScheduleList,
    ScheduleRequest,
    ScheduleRunList,
    ScheduleView,
)

NamePath = Annotated[
    str, PathParameter(description="A name.", min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$")
]
RunsQuery = Annotated[int, QueryParameter(ge=1, le=100, description="Number of runs.")]
LimitQuery = Annotated[int, QueryParameter(ge=1, le=100, description="At most this number.")]


@get("/v1/schedules", tags=["schedules"])
async def schedules(request: HttpRequest) -> ScheduleList:
    """List schedules by name."""
    return await permitted.schedules(permit_of(request))


@get("/v1/schedules/{name:str}", tags=["schedules"])
async def schedule(request: HttpRequest, name: NamePath) -> ScheduleView:
    """Show a schedule with its next run."""
    return await permitted.schedule(permit_of(request), name)


@put("/v1/schedules/{name:str}", tags=["schedules"])
async def save_schedule(
    request: HttpRequest, name: NamePath, data: JSONBody[ScheduleRequest]
) -> ScheduleView:
    """Create or change a schedule."""
    return await permitted.save_schedule(permit_of(request), name, data)


@delete("/v1/schedules/{name:str}", tags=["schedules"], status_code=200)
async def remove_schedule(request: HttpRequest, name: NamePath) -> ChangeResponse:
    """Remove a schedule with its history; its jobs stay."""
    return await permitted.remove_schedule(permit_of(request), name)


@post("/v1/schedules/{name:str}/pause", tags=["schedules"], status_code=200)
async def pause_schedule(request: HttpRequest, name: NamePath) -> ScheduleView:
    """Pause a schedule: no further runs are enqueued."""
    return await permitted.pause_schedule(permit_of(request), name)


@post("/v1/schedules/{name:str}/resume", tags=["schedules"], status_code=200)
async def resume_schedule(request: HttpRequest, name: NamePath) -> ScheduleView:
    """Resume a schedule from now on."""
    return await permitted.resume_schedule(permit_of(request), name)


@post("/v1/schedules/{name:str}/fire", tags=["schedules"], status_code=200)
async def fire_schedule(request: HttpRequest, name: NamePath) -> EnqueueResponse:
    """Enqueue the job of a schedule now."""
    return await permitted.fire_schedule(permit_of(request), name)


@post("/v1/schedules/{name:str}/preview", tags=["schedules"], status_code=200)
async def preview_schedule(
    request: HttpRequest, name: NamePath, data: JSONBody[ScheduleRequest], runs: RunsQuery = 5
) -> PreviewResponse:
    """Return the next runs of such a schedule; nothing is saved."""
    return await permitted.preview_schedule(permit_of(request), name, data, runs)


@get("/v1/schedules/{name:str}/history", tags=["schedules"])
async def schedule_runs(request: HttpRequest, name: NamePath, limit: LimitQuery = 100) -> ScheduleRunList:
    """List the runs of a schedule, newest first."""
    return await permitted.schedule_runs(permit_of(request), name, limit)


ROUTES = (
    *(schedules, schedule, save_schedule, remove_schedule, pause_schedule, resume_schedule, fire_schedule),
    *(preview_schedule, schedule_runs),
)
