"""What administrators may ask who look for a fault."""

from __future__ import annotations

from forebay.service.permitting.permit import Permit
from forebay.service.schema.debugging import (
    ContentsAnswer,
    InspectAnswer,
    SignalAnswer,
    SignalRequest,
    SweepAnswer,
    TraceAnswer,
    WorkerStateAnswer,
)


async def contents(
    permit: Permit, queue: str, *, with_running: bool, with_retrying: bool, limit: int
) -> ContentsAnswer:
    """Show what is in a queue."""
    return await permit.allowed("contents", queue).debugging.contents(
        queue, with_running=with_running, with_retrying=with_retrying, limit=limit
    )


async def trace(permit: Permit, job_id: str) -> TraceAnswer:
    """Show all that happened to a job. It may name jobs of any queue."""
    return await permit.allowed("trace").debugging.trace(job_id)


async def inspect(permit: Permit, job_id: str) -> InspectAnswer:
    """Say what keeps a job. It may name jobs of any queue."""
    return await permit.allowed("inspect").debugging.inspect(job_id)


async def sweep(permit: Permit) -> SweepAnswer:
    """Begin a sweep."""
    return permit.allowed("sweep").debugging.sweep()


async def worker_state(permit: Permit, worker: str, wait_seconds: float) -> WorkerStateAnswer:
    """Show what a worker and its threads do."""
    return await permit.allowed("worker_state").debugging.worker_state(worker, wait_seconds, permit.actor)


async def signal(permit: Permit, worker: str, data: SignalRequest) -> SignalAnswer:
    """Ask a worker to pause, resume or stop."""
    return await permit.allowed("signal").debugging.signal(worker, data, permit.actor)
