"""Routes for a page in a browser: who somebody is, and a cookie that stands for their key.

The cookie is the key itself, out of the reach of scripts. So a server keeps nothing of a session, any server
knows it, and it ends with the key. See `admitting` for what a request with a cookie must show beside it.
"""

from __future__ import annotations

from typing import Final

from litestar import Response, delete, get, post

from forebay.domain.access import Role
from forebay.errors import Unauthenticated
from forebay.service.auth import NEEDS, bearer
from forebay.service.http.admitting import COOKIE
from forebay.service.http.calling import Asking, caller_of, open_service
from forebay.service.mounted import BASE
from forebay.service.schema.shared import Shape

_HOW: Final = "HttpOnly; SameSite=Strict"


class GrantShape(Shape, frozen=True, kw_only=True):
    """A role for queues: one by its name, those whose names begin with what stands before a *, or all (*)."""

    role: Role
    queues: str


class SessionShape(Shape, frozen=True, kw_only=True):
    """Who asks. `operations` are those that they may do to every queue; `is_open` says that this server asks
    nobody for a key, and lets everybody do everything; `has_key` that they have shown one. Where neither is
    true a program that this server is a part of has let them in."""

    name: str
    is_open: bool
    has_key: bool
    grants: list[GrantShape]
    operations: list[str]
    engine: str
    version: str


class Ended(Shape, frozen=True, kw_only=True):
    """The browser has forgotten the key."""

    done: bool = True


@get("/v1/session", tags=["session"])
async def session(request: Asking) -> SessionShape:
    """Say who asks, and what they may do."""
    return _described(request)


@post("/v1/session", tags=["session"], status_code=200)
async def begin_session(request: Asking) -> Response[SessionShape]:
    """Keep the key of this request in a cookie of the browser."""
    if not caller_of(request).has_token:
        return Response(_described(request))  # there is no key to keep
    token = bearer(request.headers.get("authorization"))
    if token is None:
        raise Unauthenticated("show the key that the session is for: Authorization: Bearer fbk_...")
    return Response(_described(request), headers={"Set-Cookie": _cookie(request, token)})


@delete("/v1/session", tags=["session"], status_code=200)
async def end_session(request: Asking) -> Response[Ended]:
    """Let the browser forget the key."""
    return Response(Ended(), headers={"Set-Cookie": f"{_cookie(request, '')}; Max-Age=0"})


def _cookie(request: Asking, token: str) -> str:
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    # Of an app that others share the host with, the cookie is shown to this part of it alone.
    path = f"{request.scope.get(BASE, '')}/"
    return f"{COOKIE}={token}; {_HOW}; Path={path}{secure}"


def _described(request: Asking) -> SessionShape:
    caller = caller_of(request)
    grants = () if caller.key is None else caller.key.grants
    return SessionShape(
        name=caller.name,
        is_open=caller.key is None,
        has_key=caller.has_token,
        grants=[GrantShape(role=one.role, queues=one.queues) for one in grants],
        operations=sorted(operation for operation in NEEDS if caller.may(operation)),
        engine=open_service(request).desk.engine.features.name,
        version=request.app.openapi_config.version if request.app.openapi_config else "",
    )


ROUTES = (session, begin_session, end_session)
