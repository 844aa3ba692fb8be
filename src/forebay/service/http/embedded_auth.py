"""Who is let in by the program that the service is mounted in: it knows its people, and says who they are."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from forebay.domain.access import ApiKey, Grant, Role
from forebay.domain.text import check_actor
from forebay.errors import ConfigError, ForebayError, Unauthenticated
from forebay.service.auth import Caller, request_id
from forebay.service.http.auth import CALLER, OPEN, REQUEST_ID, add_headers, check_page, refuse

HOST_SCOPE = "forebay.host_scope"  # in the scope: the request as the program around us has it


class EmbeddedUser(msgspec.Struct, frozen=True):
    """Somebody whom the program has let in: the name for the audit log, and what they may do to which queues
    (`mail`, `mail-*` or `*`). `view` looks, `operate` also cancels, revives and pauses, `admin` may do
    everything."""

    name: str
    role: str = "view"
    queues: str = "*"

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("a visitor needs a name, for the audit log")
        check_actor(self.name)
        Grant.parse(f"{self.role}:{self.queues}")  # raises what is wrong with it

    @property
    def key(self) -> ApiKey:
        """What a key with the same rights would be; no secret opens it."""
        return ApiKey(name="visitor", grants=(Grant(Role(self.role), self.queues),), digest="0" * 64)


Admit = Callable[[Mapping[str, Any]], "EmbeddedUser | Awaitable[EmbeddedUser | None] | None"]


class EmbeddedAuth:
    """The app behind a function that is given the ASGI scope of a request, with what the program's own
    middleware has put into it, and says who asks; None lets nobody in.

    A browser shows the program's cookies with every request, whichever page has made it: so a change needs
    what only our page sends (see `admitting`).
    """

    def __init__(self, app: ASGIApp, admit: Admit) -> None:
        self._app = app
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"].startswith(OPEN):
            await self._app(scope, receive, send)
            return
        headers = Headers.from_scope(scope)
        asked = request_id(headers.get(REQUEST_ID, ""))
        known = cast("dict[str, Any]", scope)
        try:
            visitor = await require_embedded_user(self._admit, known[HOST_SCOPE])
            check_page(scope["method"], headers)
        except ForebayError as error:
            await refuse(send, error, {REQUEST_ID: asked})
            return

        async def key_now() -> ApiKey:
            return (await require_embedded_user(self._admit, known[HOST_SCOPE])).key

        known[CALLER] = Caller(visitor.name, visitor.key, asked, current_key=key_now, has_token=False)
        await self._app(scope, receive, add_headers(send, {REQUEST_ID: asked}))


async def require_embedded_user(admit: Admit, host_scope: Mapping[str, Any]) -> EmbeddedUser:
    """Who asks, by what the program says; raises Unauthenticated for nobody."""
    answer = admit(host_scope)
    found = await answer if inspect.isawaitable(answer) else answer
    if found is None:
        raise Unauthenticated("the program that this is a part of has not let you in: log in there")
    if not isinstance(found, EmbeddedUser):
        # No fault of who asks, so it is no answer of ours either: the server tells it to its log.
        raise TypeError(f"who admits gives a Visitor or None, not {found!r:.60}")
    return found
