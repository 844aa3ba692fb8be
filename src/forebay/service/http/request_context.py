"""Context of a request: service, caller, and whether the client is still connected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, TypeVar, cast

from litestar import Request
from litestar.params import PathParameter
from litestar.types import Receive

from forebay.service.auth import Caller
from forebay.service.http.auth import CALLER
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.service import Service

T = TypeVar("T")
HttpRequest = Request[Any, Any, Any]

JobIdPath = Annotated[
    str,
    PathParameter(
        description="The id of a job.", min_length=1, max_length=200, pattern="^[^\\x00-\\x1f\\x7f]*$"
    ),
]
QueuePath = Annotated[
    str, PathParameter(description="The name of a queue.", pattern="^[A-Za-z0-9_.-]{1,50}$")
]


class ClientDisconnected(Exception):
    """Client has closed its connection, so nothing reads a response."""


def service_of(request: HttpRequest) -> Service:
    """Return the service, for what needs no permission."""
    service: Service = request.app.state.service
    return service


def caller_of(request: HttpRequest) -> Caller:
    """Return the caller; every request that gets here has one."""
    caller: Caller = cast("dict[str, Any]", request.scope)[CALLER]
    return caller


def permit_of(request: HttpRequest) -> AuthorizedRequest:
    """Return the request with its permission checks."""
    return AuthorizedRequest(service_of(request), caller_of(request))


def authorized_service(request: HttpRequest, operation: str, *queues: str) -> Service:
    """Return the service for an operation on all these queues, or on something that belongs to no queue;
    raises Forbidden."""
    return permit_of(request).authorize(operation, *queues)


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` for a client that may disconnect: then the work is cancelled, and ClientDisconnected
    raised.

    A result that was ready in the same moment is raised as DisconnectedWithResult.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_until_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            return await working
        working.cancel()
        with suppress(asyncio.CancelledError):
            raise DisconnectedWithResult(await working)
        raise ClientDisconnected
    finally:
        working.cancel()
        leaving.cancel()


class DisconnectedWithResult(ClientDisconnected):
    """Client has disconnected in the moment in which this result was ready."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


async def wait_until_disconnected(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
