"""The service with its dashboard as a part of another ASGI app: FastAPI, Starlette, Litestar.

    jobs = Dashboard(queue)
    app = FastAPI(lifespan=lifespan(queue, jobs.lifespan))
    app.mount("/jobs", jobs)

The page is then at /jobs/dashboard/, and the API below /jobs/v1/. Needs `forebay[server]`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version
from threading import current_thread, main_thread
from typing import Any, Final, Literal

from litestar.datastructures import Headers
from litestar.types import ASGIApp

from forebay.app.app import Forebay
from forebay.dashboard.static_files import Receive, Scope, Send, StaticFiles, is_page
from forebay.errors import ConfigError, Forbidden, ForebayError, StoreUnavailable
from forebay.service.auth import KeyAuthenticator, OpenAccess
from forebay.service.http.app import http_app
from forebay.service.http.auth import refuse
from forebay.service.http.embedded_auth import (
    HOST_SCOPE,
    Admit,
    EmbeddedAuth,
    EmbeddedUser,
    require_embedded_user,
)
from forebay.service.loopback import is_loopback
from forebay.service.mount_scope import local_scope
from forebay.service.rate_limits import ClientRateLimiter
from forebay.service.service import Service

__all__ = ["Dashboard", "EmbeddedUser"]

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# What a proxy says of the client that it speaks for.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Dashboard:
    """An ASGI app to mount; its `lifespan` goes to the app around it, since those that are mounted hear of no
    start.

    `admit` decides which clients may enter. By default a client shows an API key of the store, as with
    `forebay server --require-keys`. "local" admits every client of this machine as admin: it is for a machine
    of your own and never for a server behind a proxy. A function of yours takes the ASGI scope and returns an
    `EmbeddedUser` or None. `path` is where the app is mounted, for a framework that does not say so itself:
    Litestar.
    """

    def __init__(
        self,
        queue: Forebay,
        *,
        admit: Literal["keys", "local"] | Admit = "keys",
        path: str | None = None,
        debug: bool = False,
    ) -> None:
        if not isinstance(queue, Forebay):
            raise ConfigError(f"a dashboard is for a Forebay object, not {queue!r:.60}")
        if queue.engine.features.runs_maintenance:
            raise ConfigError("this store is behind a service, which has a dashboard of its own")
        if not callable(admit) and admit not in ("keys", "local"):
            raise ConfigError(f"admit is 'keys', 'local' or a function, not {admit!r:.60}")
        if path is not None and not path.startswith("/"):
            raise ConfigError(f"path begins with a slash, such as /jobs, and not as {path!r:.60}")
        self._queue = queue
        self._admit = admit
        self._path = path
        self._debug = debug
        self._app: StaticFiles | None = None

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """From before the first request until after the last one. An app may be started again."""
        if self._app is not None:
            raise ConfigError("this dashboard runs already: each app needs one of its own")
        queue = self._queue
        service = Service(queue.engine, clock=queue.clock, policy=queue.delivery_policy)
        try:
            await service.start()
            self._app = StaticFiles(self._build_service_app(service))
            with _refuse_on_signal(service.end_waits):
                yield
        finally:
            self._app = None
            service.end_waits()
            await service.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": "a dashboard speaks HTTP"})
            return
        if scope["type"] != "http":
            raise ConfigError(f"a dashboard answers HTTP alone, not {scope['type']}")
        local = {**local_scope(scope, self._path), HOST_SCOPE: scope}
        try:
            if self._app is None:
                raise StoreUnavailable(
                    "the dashboard was not started: give its lifespan to the app that it is mounted in"
                )
            await self._check_admission(scope, local["path"])
        except ForebayError as error:
            await refuse(send, error, {})
            return
        await self._app(local, receive, send)

    async def _check_admission(self, scope: Scope, path: str) -> None:
        """Raise the reason to refuse a visitor, before any data is read.

        With API keys every visitor gets the page, since the page asks for the key. A program that knows its
        users is asked first.
        """
        if self._admit == "local":
            _check_same_machine(scope)
        elif callable(self._admit) and is_page(path):
            await require_embedded_user(self._admit, scope)

    def _build_service_app(self, service: Service) -> ASGIApp:
        made = partial(http_app, service, version=version("forebay"), debug=self._debug)
        clock = service.pool.clock
        rates = ClientRateLimiter(None, clock)
        if self._admit == "keys":
            return made(guard=KeyAuthenticator(service.pool, clock, rates, sessions=service.logins.cache))
        if self._admit == "local":
            return made(guard=OpenAccess(rates))
        admit: Any = self._admit
        return made(auth_wrapper=lambda app: EmbeddedAuth(app, admit))


def _check_same_machine(scope: Scope) -> None:
    """Raise Forbidden for a request from another machine. A proxy on this one would lend it our address, and
    is refused where its headers show it. One that adds none cannot be seen: there strangers would enter. The
    service itself looks at the names that a browser says (`check_local`)."""
    headers = Headers.from_scope(scope)  # type: ignore[arg-type]  # ours is the same, less closely typed
    ends = [end[0] if end else "" for end in (scope.get("client"), scope.get("server"))]
    if all(map(is_loopback, ends)) and not any(name in headers for name in _FORWARDED):
        return
    raise Forbidden(
        "this dashboard lets in who is on the same machine, without a proxy between; for others give it "
        "keys (admit='keys'), or a function that knows them"
    )


@contextmanager
def _refuse_on_signal(refuse: Callable[[], None]) -> Iterator[None]:
    """Let those who look on know at once that the server is about to end. It waits for their connections
    before it tells the app of the end, and they would stay for minutes."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def hear(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(refuse)
        before[number](number, frame)

    # Only where the server listens for a signal by a function; what else becomes of one is its own affair.
    for number in _STOP_SIGNALS if current_thread() is main_thread() else ():
        if callable(found := signal.getsignal(number)):
            before[number] = found
            signal.signal(number, hear)
    try:
        yield
    finally:
        for heard, found in before.items():
            if signal.getsignal(heard) is hear:
                signal.signal(heard, found)
