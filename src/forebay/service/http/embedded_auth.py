"""Authentication by the host app that the service is mounted in: it knows its users and names them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from forebay.domain.actor_name import check_actor
from forebay.domain.api_key import ApiKey, Grant, Role
from forebay.errors import ConfigError, ForebayError, Unauthenticated
from forebay.service.auth import request_id
from forebay.service.caller import Caller
from forebay.service.http.asgi_responses import add_headers, refuse
from forebay.service.http.auth import CALLER, OPEN, REQUEST_ID
from forebay.service.http.cross_site_check import check_page

HOST_SCOPE = "forebay.host_scope"  # in the scope: the scope of the request in the host app


class EmbeddedUser(msgspec.Struct, frozen=True):
    """User that the host app admits: a name for the audit log, and a role for queues (`mail`, `mail-*` or
    `*`). `view` reads, `operate` also cancels, revives and pauses, `admin` may do everything."""

    name: str
    role: str = "view"
    queues: str = "*"

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("an EmbeddedUser needs a name, for the audit log")
        check_actor(self.name)
        Grant.parse(f"{self.role}:{self.queues}")  # raises ConfigError for an invalid one

    @property
    def key(self) -> ApiKey:
        """API key with the same permissions; no secret matches it."""
        return ApiKey(name="visitor", grants=(Grant(Role(self.role), self.queues),), digest="0" * 64)


Admit = Callable[[Mapping[str, Any]], "EmbeddedUser | Awaitable[EmbeddedUser | None] | None"]


class EmbeddedAuth:
    """Middleware that asks a function of the host app for the user. The function gets the ASGI scope of the
    request, with what the host app's middleware has put into it; None refuses the request.

    A browser sends the host app's cookies with every request, whichever page makes it. So a change also needs
    the header of the dashboard's page (see `http.auth`).
    """

    def __init__(self, app: ASGIApp, admit: Admit) -> None:
        self._app = app
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"].startswith(OPEN):
            await self._app(scope, receive, send)
            return
        headers = Headers.from_scope(scope)
        req_id = request_id(headers.get(REQUEST_ID, ""))
        values = cast("dict[str, Any]", scope)
        try:
            user = await require_embedded_user(self._admit, values[HOST_SCOPE])
            check_page(scope["method"], headers)
        except ForebayError as error:
            await refuse(send, error, {REQUEST_ID: req_id})
            return

        async def current_key() -> ApiKey:
            return (await require_embedded_user(self._admit, values[HOST_SCOPE])).key

        values[CALLER] = Caller(user.name, user.key, req_id, current_key=current_key, has_token=False)
        await self._app(scope, receive, add_headers(send, {REQUEST_ID: req_id}))


async def require_embedded_user(admit: Admit, host_scope: Mapping[str, Any]) -> EmbeddedUser:
    """Return the user that the host app names; raises Unauthenticated for none."""
    answer = admit(host_scope)
    user = await answer if inspect.isawaitable(answer) else answer
    if user is None:
        raise Unauthenticated("the host app does not admit you: log in there")
    if not isinstance(user, EmbeddedUser):
        # A mistake of the host app, not of the client, so it is an internal error for the log.
        raise TypeError(f"admit returns an EmbeddedUser or None, not {user!r:.60}")
    return user
