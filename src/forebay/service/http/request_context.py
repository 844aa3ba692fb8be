"""Context of a request: service, caller, and whether the client is still connected."""

from __future__ import annotations

from typing import Annotated, Any, cast

from litestar import Request
from litestar.params import PathParameter

from forebay.service.caller import Caller
from forebay.service.http.auth import CALLER
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.service import Service

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
