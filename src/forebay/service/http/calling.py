"""What handlers need of a request beside its shape: the service, who asks, whether they are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, TypeVar, cast

from litestar import Request
from litestar.params import PathParameter
from litestar.types import Receive

from forebay.domain.job import JobId
from forebay.errors import ForebayError
from forebay.service.auth import Caller
from forebay.service.http.admitting import CALLER
from forebay.service.operations.service import Service

T = TypeVar("T")
Asking = Request[Any, Any, Any]

JobIdPath = Annotated[
    str,
    PathParameter(
        description="The id of a job.", min_length=1, max_length=200, pattern="^[^\\x00-\\x1f\\x7f]*$"
    ),
]
QueuePath = Annotated[
    str, PathParameter(description="The name of a queue.", pattern="^[A-Za-z0-9_.-]{1,50}$")
]


class Gone(Exception):
    """The client has closed its connection, so nobody reads an answer."""


def open_service(request: Asking) -> Service:
    """The operations of this server, for what needs nobody's leave."""
    service: Service = request.app.state.service
    return service


def service_of(request: Asking) -> Service:
    """The operations, for one that who asks may do to all queues: by the name of the handler. What is about
    one queue or one job asks `allowed` or `allowed_for`, so that a key for this queue is enough."""
    return allowed(request, request.route_handler.handler_name)


def caller_of(request: Asking) -> Caller:
    """Who asks. There is always one: nothing gets here that was not let in."""
    caller: Caller = cast("dict[str, Any]", request.scope)[CALLER]
    return caller


def actor_of(request: Asking) -> str:
    """Who asks, for the record."""
    return caller_of(request).actor


def allowed(request: Asking, operation: str, *queues: str) -> Service:
    """The operations, for one that who asks may do to all these queues, or to what belongs to none; raises
    Forbidden. Handlers get the service from here and below, so none can forget to ask."""
    caller = caller_of(request)
    for queue in queues or (None,):
        caller.check(operation, queue)
    return open_service(request)


async def allowed_for(request: Asking, operation: str, *ids: str) -> Service:
    """The same for what is done to jobs; raises JobNotFound or Forbidden for the first that they may not."""
    for error in (await refusals(request, operation, *ids)).values():
        raise error
    return open_service(request)


async def refusals(request: Asking, operation: str, *ids: str) -> dict[str, ForebayError]:
    """With which of these jobs who asks may not do this, and what to answer instead. Only a key that is not
    for all queues costs a look at theirs.

    A job that is moved to another queue between the look and the deed was one that they might have dealt with
    a moment ago.
    """
    caller, refused = caller_of(request), dict[str, ForebayError]()
    if not caller.may(operation):
        found = await open_service(request).desk.jobs([JobId(one) for one in ids])
        for job_id, job in zip(ids, found, strict=True):
            try:
                if job is not None:  # else the operation says so
                    caller.check_job(operation, job_id, job.queue)
            except ForebayError as exc:
                refused[job_id] = exc
    return refused


async def while_connected(request: Asking, work: Coroutine[Any, Any, T]) -> T:
    """Do something long for a client that may leave meanwhile: then it is cancelled, and raises Gone.

    What was finished at the very moment at which the client left is `late` on the error.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            return await working
        working.cancel()
        with suppress(asyncio.CancelledError):
            raise Late(await working)
        raise Gone
    finally:
        working.cancel()
        leaving.cancel()


class Late(Gone):
    """The client has gone, and this would have been its answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


async def left(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
