"""Routes for producers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from litestar import get, patch, post
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from msgspec.structs import replace

from forebay.app.graphs import MayRaise
from forebay.domain.job import JobId
from forebay.domain.workflow import missing_parent
from forebay.errors import Forbidden, InvalidJob
from forebay.service.http.calling import (
    Asking,
    JobIdPath,
    actor_of,
    allowed,
    allowed_for,
    caller_of,
    open_service,
    while_connected,
)
from forebay.service.operations.looking import Sees
from forebay.service.schema.looking import GraphShape, JobShape
from forebay.service.schema.producing import (
    Accepted,
    AmendRequest,
    CancelRequest,
    EnqueueManyAnswer,
    EnqueueManyRequest,
    EnqueueRequest,
    ResultAnswer,
    Verdict,
)
from forebay.service.schema.shared import LONGEST_WAIT_SECONDS

KeyHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="The same key on the same queue within 24 hours gives the first answer again; with "
        "another task or other arguments it is 409 `duplicate`.",
    ),
]
GraphQuery = Annotated[int, QueryParameter(ge=1, le=500, description="At most so many jobs.")]
PositionQuery = Annotated[bool, QueryParameter(description="Say where the job stands in its queue.")]
WaitQuery = Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_SECONDS, description="How long to wait.")]


@post("/v1/jobs", tags=["produce"])
async def enqueue(
    request: Asking,
    data: JSONBody[EnqueueRequest],
    idempotency_key: KeyHeader = None,
    position: PositionQuery = False,
) -> Accepted:
    """Ask for a job."""
    if idempotency_key is not None:
        if data.idempotency_key not in (None, idempotency_key):
            raise InvalidJob("the header and the body name different keys", field="idempotency_key")
        data = replace(data, idempotency_key=idempotency_key)
    service = allowed(request, "enqueue", data.queue)
    await _check_reach(request, "enqueue", [data])
    return await service.producing.enqueue(
        _of_caller(request, data), with_position=position, may_raise=_may_raise(request)
    )


@post("/v1/jobs/batch", tags=["produce"])
async def enqueue_many(request: Asking, data: JSONBody[EnqueueManyRequest]) -> EnqueueManyAnswer:
    """Ask for several jobs, in one or several queues."""
    service = allowed(request, "enqueue_many", *{job.queue for job in data.jobs})
    await _check_reach(request, "enqueue_many", data.jobs)
    jobs = [_of_caller(request, job) for job in data.jobs]
    return await service.producing.enqueue_many(replace(data, jobs=jobs), may_raise=_may_raise(request))


@get("/v1/jobs/{job_id:str}", tags=["produce"])
async def job(request: Asking, job_id: JobIdPath) -> JobShape:
    """Show a job with its attempts and with what depends on it."""
    service = await allowed_for(request, "job", job_id)
    return await service.looking.job(job_id, _sees(request))


@get("/v1/jobs/{job_id:str}/wait", tags=["produce"])
async def wait(
    request: Asking, job_id: JobIdPath, timeout_seconds: WaitQuery = LONGEST_WAIT_SECONDS
) -> JobShape:
    """Show a job when it has ended, or as it is when the time is up."""
    service = await allowed_for(request, "wait", job_id)
    work = service.producing.wait(job_id, timeout_seconds, _sees(request))
    found = await while_connected(request, work)
    await caller_of(request).check_still()
    return found


@get("/v1/jobs/{job_id:str}/result", tags=["produce"])
async def result(request: Asking, job_id: JobIdPath) -> ResultAnswer:
    """Give what a completed job has returned."""
    service = await allowed_for(request, "result", job_id)
    return await service.producing.result(job_id)


@get("/v1/jobs/{job_id:str}/graph", tags=["jobs"])
async def graph(request: Asking, job_id: JobIdPath, limit: GraphQuery = 200) -> GraphShape:
    """Show the jobs around one that wait for each other."""
    service = await allowed_for(request, "graph", job_id)
    return await service.looking.graph(job_id, limit, _sees(request))


@post("/v1/jobs/{job_id:str}/cancel", tags=["produce"], status_code=200)
async def cancel(request: Asking, job_id: JobIdPath, data: JSONBody[CancelRequest]) -> Verdict:
    """Cancel a job that waits; ask one that runs to stop."""
    service = await allowed_for(request, "cancel", job_id)
    if data.dependants:  # they may be in any queue
        allowed(request, "cancel")
    return await service.producing.cancel(job_id, data, actor_of(request))


@patch("/v1/jobs/{job_id:str}", tags=["produce"])
async def amend(request: Asking, job_id: JobIdPath, data: JSONBody[AmendRequest]) -> Verdict:
    """Change the priority, the time or the metadata of a job that waits."""
    service = await allowed_for(request, "amend", job_id)
    return await service.producing.amend(job_id, data, actor_of(request))


def _of_caller(request: Asking, data: EnqueueRequest) -> EnqueueRequest:
    """Who has shown a key is that client: nobody spends what a queue takes of another one."""
    caller = caller_of(request)
    return data if caller.key is None else replace(data, client=caller.name)


async def _check_reach(request: Asking, operation: str, jobs: Sequence[EnqueueRequest]) -> None:
    """A key that is not for all queues reaches into no other one by what a new job names.

    Jobs of a sequence wait for each other wherever they are, so it takes a key for all queues to join one. A
    parent in a queue that the key may not see is answered as if there were none. Ids are of one kind for all
    queues, and one that is taken is refused: whoever guesses an id learns that much and no more.
    """
    caller = caller_of(request)
    if caller.may(operation):
        return
    if any(job.sequence is not None for job in jobs):
        raise Forbidden(f"{caller.name} may not use a sequence: that needs the role produce for all queues")
    naming = {JobId(one.id): job for job in jobs for one in job.depends_on if one.id is not None}
    for parent in await open_service(request).desk.jobs(list(naming)) if naming else ():
        if parent is not None and not caller.may_see(parent.queue):
            job = naming[parent.id]
            raise missing_parent(job.task, parent.id, job.allow_missing)


def _may_raise(request: Asking) -> MayRaise | None:
    """In which queues a new job may change the priority of those it waits for; None for all."""
    caller = caller_of(request)
    return None if caller.may("amend") else partial(caller.may, "amend")


def _sees(request: Asking) -> Sees | None:
    """Of which queues somebody may know jobs; None for all."""
    caller = caller_of(request)
    return None if caller.may("job") else caller.may_see


ROUTES = (enqueue, enqueue_many, job, wait, result, graph, cancel, amend)
