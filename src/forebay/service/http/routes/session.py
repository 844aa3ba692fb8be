"""Routes for browser sessions: the caller, and a cookie with the id of its session.

The key is sent once and is in no cookie. The session is in the store, so any server accepts it; it ends with
the key. `http.auth` has the checks of requests with a cookie.
"""

from __future__ import annotations

from litestar import Response, delete, get, post

from forebay.domain.api_key import Role
from forebay.errors import Unauthenticated
from forebay.service.api_keys import digest_of, parse_token
from forebay.service.auth import bearer_token
from forebay.service.http.cookies import SESSION, Cookie
from forebay.service.http.request_context import HttpRequest, caller_of, service_of
from forebay.service.required_roles import REQUIRED_ROLES
from forebay.service.schema.base import ResponseModel


class GrantView(ResponseModel, frozen=True, kw_only=True):
    """Role for queues: one by its name, a prefix with a `*`, or all (`*`)."""

    role: Role
    queues: str


class SessionView(ResponseModel, frozen=True, kw_only=True):
    """Caller of a request. `operations` are allowed for every queue. `is_open` says that this server needs no
    keys and allows everything; `has_key` that the caller has an API key. If both are false, a host app has
    admitted the caller."""

    name: str
    is_open: bool
    has_key: bool
    grants: list[GrantView]
    operations: list[str]
    engine: str
    version: str


class SessionEnded(ResponseModel, frozen=True, kw_only=True):
    """Session was ended, and its cookie deleted."""

    done: bool = True


@get("/v1/session", tags=["session"])
async def session(request: HttpRequest) -> SessionView:
    """Show the caller and its permissions."""
    return _session_view(request)


@post("/v1/session", tags=["session"], status_code=200)
async def begin_session(request: HttpRequest) -> Response[SessionView]:
    """Begin a session with the key of this request; its id is set as a cookie."""
    caller = caller_of(request)
    if not caller.has_token:
        return Response(_session_view(request))  # a session needs a key
    token = bearer_token(request.headers.get("authorization"))
    if token is None:
        raise Unauthenticated("a session begins with an API key: Authorization: Bearer fbk_...")
    digest = digest_of(parse_token(token)[1])
    session_id = await service_of(request).logins.begin(caller.name, caller.actor, digest=digest)
    cookie = session_cookie(request).header_value(session_id)
    return Response(_session_view(request), headers={"Set-Cookie": cookie})


@delete("/v1/session", tags=["session"], status_code=200)
async def end_session(request: HttpRequest) -> Response[SessionEnded]:
    """End the session of this browser on every server, and delete its cookie."""
    cookie = session_cookie(request)
    session_id = cookie.find(request.headers.get("cookie", ""))
    if session_id is not None:
        await service_of(request).logins.end(session_id, caller_of(request).actor)
    return Response(SessionEnded(), headers={"Set-Cookie": cookie.header_value("", max_age=0)})


def session_cookie(request: HttpRequest) -> Cookie:
    """Return the session cookie with the attributes for this request."""
    return Cookie.of(request.scope, SESSION, is_secure=service_of(request).logins.settings.is_secure)


def _session_view(request: HttpRequest) -> SessionView:
    caller = caller_of(request)
    grants = () if caller.key is None else caller.key.grants
    return SessionView(
        name=caller.name,
        is_open=caller.key is None,
        has_key=caller.has_token,
        grants=[GrantView(role=grant.role, queues=grant.queues) for grant in grants],
        operations=sorted(operation for operation in REQUIRED_ROLES if caller.may(operation)),
        engine=service_of(request).pool.engine.features.name,
        version=request.app.openapi_config.version if request.app.openapi_config else "",
    )


ROUTES = (session, begin_session, end_session)
