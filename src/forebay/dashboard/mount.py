"""Dashboard and API as a part of another ASGI app: FastAPI, Starlette, Litestar.

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
from forebay.service.asgi_mount_scope import local_scope
from forebay.service.auth import KeyAuthenticator, OpenAccess
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.http.app import http_app
from forebay.service.http.asgi_responses import refuse
from forebay.service.http.embedded_auth import (
    HOST_SCOPE,
    Admit,
    EmbeddedAuth,
    EmbeddedUser,
    require_embedded_user,
)
from forebay.service.loopback import is_loopback
from forebay.service.service import Service

__all__ = ["Dashboard", "EmbeddedUser"]

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Headers that a proxy adds.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Dashboard:
    """ASGI app to mount. Its `lifespan` belongs into that of the app around it, because a mounted app gets no
    lifespan events.

    `admit` says who may enter. "keys", the default, asks for an API key of the store, as `forebay server
    --require-keys` does. "local" makes every client of this machine an administrator: for a machine of your
    own, never behind a proxy. A function gets the ASGI scope and returns an `EmbeddedUser` or None. `path` is
    the path of the mount, for a framework that does not pass it: Litestar.
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
        """Run the service from before the first request until after the last one. May be entered again
        afterwards."""
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
        build = partial(http_app, service, version=version("forebay"), debug=self._debug)
        clock = service.pool.clock
        rates = ClientRateLimiter(None, clock)
        if self._admit == "keys":
            return build(guard=KeyAuthenticator(service.pool, clock, rates, sessions=service.logins.cache))
        if self._admit == "local":
            return build(guard=OpenAccess(rates))
        admit: Any = self._admit
        return build(auth_wrapper=lambda app: EmbeddedAuth(app, admit))


def _check_same_machine(scope: Scope) -> None:
    """Raise Forbidden for a request from another machine.

    A proxy on this machine would lend it a local address, and is refused if its headers show it. A proxy that
    adds no headers cannot be detected, and would let strangers in. The service itself checks the names that a
    browser sends (`check_local`).
    """
    headers = Headers.from_scope(scope)  # type: ignore[arg-type]  # the same mapping, with a wider type
    hosts = [address[0] if address else "" for address in (scope.get("client"), scope.get("server"))]
    if all(map(is_loopback, hosts)) and not any(name in headers for name in _FORWARDED):
        return
    raise Forbidden(
        "this dashboard admits only clients on the same machine, without a proxy between; for other clients "
        "use API keys (admit='keys'), or a function that names the user"
    )


@contextmanager
def _refuse_on_signal(refuse: Callable[[], None]) -> Iterator[None]:
    """Close event streams as soon as the server gets a stop signal. The server waits for their connections
    before it ends the app's lifespan, and they would stay open for minutes."""
    loop = asyncio.get_running_loop()
    previous: dict[int, Any] = {}

    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(refuse)
        previous[number](number, frame)

    # Only where the server handles the signal by a function, which is called afterwards.
    for number in _STOP_SIGNALS if current_thread() is main_thread() else ():
        if callable(handler := signal.getsignal(number)):
            previous[number] = handler
            signal.signal(number, handle)
    try:
        yield
    finally:
        for handled, handler in previous.items():
            if signal.getsignal(handled) is handle:
                signal.signal(handled, handler)
