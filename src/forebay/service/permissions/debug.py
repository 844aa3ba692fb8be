"""Permission checks for debug operations."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.debug import (
    InspectResponse,
    QueueContentsResponse,
    SignalRequest,
    SignalResponse,
    SweepResponse,
    TraceResponse,
    WorkerStateResponse,
)


async def contents(
    permit: AuthorizedRequest, queue: str, *, with_running: bool, with_retrying: bool, limit: int
) -> QueueContentsResponse:
    """Show the jobs of a queue with their arguments, or the reason why these cannot be read."""
    return await permit.authorize("contents", queue).debug.contents(
        queue, with_running=with_running, with_retrying=with_retrying, limit=limit
    )


async def trace(permit: AuthorizedRequest, job_id: str) -> TraceResponse:
    """Show a job, its result and its timeline, which may name jobs of any queue."""
    return await permit.authorize("trace").debug.trace(job_id)


async def inspect(permit: AuthorizedRequest, job_id: str) -> InspectResponse:
    """Show a stored job with its diagnosis, which may name jobs of any queue."""
    return await permit.authorize("inspect").debug.inspect(job_id)


async def sweep(permit: AuthorizedRequest) -> SweepResponse:
    """Start to settle attempts whose lease has expired or whose worker is dead, without waiting for the
    end."""
    return permit.authorize("sweep").debug.sweep()


async def worker_state(permit: AuthorizedRequest, worker: str, wait_seconds: float) -> WorkerStateResponse:
    """Show a worker, and ask it for its thread stacks."""
    return await permit.authorize("worker_state").debug.worker_state(worker, wait_seconds, permit.actor)


async def signal(permit: AuthorizedRequest, worker: str, data: SignalRequest) -> SignalResponse:
    """Ask a worker to pause, resume or stop; `status` only shows it."""
    return await permit.authorize("signal").debug.signal(worker, data, permit.actor)
