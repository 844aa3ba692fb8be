"""What handlers need of a request beside its shape: the service, who asks, whether they are still there."""

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
    """The client has closed its connection, so nobody reads an answer."""


def service_of(request: HttpRequest) -> Service:
    """The operations of this server, for what needs nobody's leave."""
    service: Service = request.app.state.service
    return service


def caller_of(request: HttpRequest) -> Caller:
    """Who asks. There is always somebody: nothing gets here that was not let in."""
    caller: Caller = cast("dict[str, Any]", request.scope)[CALLER]
    return caller


def permit_of(request: HttpRequest) -> AuthorizedRequest:
    """What who asks may do."""
    return AuthorizedRequest(service_of(request), caller_of(request))


def authorized_service(request: HttpRequest, operation: str, *queues: str) -> Service:
    """The operations, for one that who asks may do to all these queues, or to what belongs to none; raises
    Forbidden."""
    return permit_of(request).authorize(operation, *queues)


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do something long for a client that may leave meanwhile: then it is cancelled, and raises Gone.

    What was finished at the very moment at which the client left is `late` on the error.
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
    """The client has gone, and this would have been its answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


async def wait_until_disconnected(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
