"""What consumers may ask for."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext

from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.service.operations.consuming import kind_of
from forebay.service.operations.telling import problem_of
from forebay.service.permitting.permit import Permit
from forebay.service.schema.consuming import (
    AckRequest,
    ClaimAnswer,
    ClaimedJob,
    ClaimRequest,
    ExtendRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    NackRequest,
    SettleAnswer,
    Settled,
    SettleRequest,
    Wanted,
)
from forebay.service.schema.looking import PeekAnswer


async def claim(permit: Permit, data: ClaimRequest) -> ClaimAnswer:
    """Take jobs to run, and a lease on each; wait for some if there are none. If the caller is cancelled,
    because nobody is there for an answer, what was claimed goes back."""
    consuming = permit.allowed("claim", *data.queues).consuming
    with permit.caller.waiting(kind_of(data)) if data.wait_seconds else nullcontext():
        answer = await consuming.claim(data)
    if answer.jobs:
        try:
            await permit.caller.check_still("claim", *data.queues)
        except (ForebayError, CancelledError):
            await consuming.give_back(answer)
            raise
    return answer


async def stream(permit: Permit, data: Wanted, window: int) -> AsyncGenerator[ClaimedJob, None]:
    """Take jobs as they come. What was not taken from here when somebody closes this goes back; what was is
    theirs until its lease ends."""
    consuming = permit.allowed("claim", *data.queues).consuming
    with permit.caller.streaming(kind_of(data)):
        async with aclosing(consuming.stream(data, window)) as answers:
            async for answer in answers:
                left = list(answer.jobs)
                try:
                    await permit.caller.check_still("claim", *data.queues)
                    while left:
                        yield left[0]
                        del left[0]  # not before somebody has asked for the next one: this one was handed on
                finally:
                    await consuming.give_back(ClaimAnswer(jobs=left))


async def settle(permit: Permit, data: SettleRequest) -> SettleAnswer:
    """Say how several jobs ended."""
    refused = await permit.refusals("settle", *(ending.id for ending in data.endings))
    theirs = [ending for ending in data.endings if ending.id not in refused]
    answer = await permit.service.consuming.settle(replace(data, endings=theirs))
    settled = iter(answer.settled)
    return SettleAnswer(
        settled=[
            next(settled)
            if (error := refused.get(ending.id)) is None
            else Settled(id=ending.id, is_kept=False, problem=problem_of(error))
            for ending in data.endings
        ]
    )


async def ack(permit: Permit, job_id: str, data: AckRequest) -> Settled:
    """Say that a job is done."""
    service = await permit.allowed_for("ack", job_id)
    return await service.consuming.ack(job_id, data)


async def nack(permit: Permit, job_id: str, data: NackRequest) -> Settled:
    """Say that an attempt failed."""
    service = await permit.allowed_for("nack", job_id)
    return await service.consuming.nack(job_id, data)


async def heartbeat(permit: Permit, job_id: str, data: HeartbeatRequest) -> HeartbeatAnswer:
    """Keep a job for longer, and say how far it is."""
    service = await permit.allowed_for("heartbeat", job_id)
    return await service.consuming.heartbeat(job_id, data)


async def extend(permit: Permit, job_id: str, data: ExtendRequest) -> HeartbeatAnswer:
    """Let a lease end later than it would."""
    service = await permit.allowed_for("extend", job_id)
    return await service.consuming.extend(job_id, data)


async def peek(permit: Permit, queue: str, limit: int) -> PeekAnswer:
    """Show the jobs that would be claimed next, and take none."""
    return await permit.allowed("peek", queue).looking.peek(queue, limit)
