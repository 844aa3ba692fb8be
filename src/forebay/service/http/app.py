"""ASGI app of the service."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from litestar import HttpMethod, Litestar, MediaType, Response, route
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.types import ASGIApp

from forebay.service.auth import Authenticator, OpenAccess
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.http.auth import AuthMiddleware
from forebay.service.http.body_timeout import ARRIVAL_TIMEOUT_SECONDS, BodyTimeout
from forebay.service.http.client_disconnect import ClientDisconnected
from forebay.service.http.errors import HANDLERS
from forebay.service.http.fast_path import FastPath
from forebay.service.http.json_body import StrictRequest
from forebay.service.http.openapi import OpenApiPlugin
from forebay.service.http.request_metrics import RequestMetrics
from forebay.service.http.routes import (
    alerts,
    api_keys,
    audit,
    concurrency_and_rate_limits,
    dead_letters,
    events,
    gradual_revives,
    health,
    job_claims,
    jobs,
    login,
    metrics,
    queues,
    schedules,
    session,
    workers_and_commands,
)
from forebay.service.http.routes import debug as debug_routes
from forebay.service.http.store_rpc import StoreRpc
from forebay.service.runtime.request_stats import EndpointMatcher
from forebay.service.service import Service
from forebay.stores.rpc import PATH, store_methods

ROUTE_MODULES: Final = (
    *(
        jobs,
        job_claims,
        queues,
        dead_letters,
        gradual_revives,
        schedules,
        workers_and_commands,
        concurrency_and_rate_limits,
    ),
    *(metrics, alerts, api_keys, audit, events, session, login, health),
)
MAX_BODY: Final = 16 * 1_048_576
DESCRIPTION: Final = (
    "Jobs for programs in any language: enqueue, claim, settle, inspect and operate. "
    "Errors are problem details of RFC 9457; their `code` is stable."
)
AuthWrapper = Callable[[ASGIApp], ASGIApp]
_TYPE: Final = re.compile(r":\w+}")
_CLIENT_CLOSED_STATUS: Final = 499  # as in the logs of nginx; the client has gone and does not read it


def http_app(
    service: Service,
    *,
    version: str,
    max_body: int = MAX_BODY,
    body_timeout: float = ARRIVAL_TIMEOUT_SECONDS,
    guard: Authenticator | None = None,
    hosts: frozenset[str] = frozenset(),
    debug: bool = False,
    auth_wrapper: AuthWrapper | None = None,
) -> ASGIApp:
    """Return the routes of this service as an ASGI app, which starts and stops with the server that runs it.

    Without `guard`, every client is an administrator; `hosts` are the names by which such a server may be
    addressed. `debug` adds the debug routes. An `auth_wrapper` of the caller replaces the guard.
    """
    framework = framework_app(service, version=version, max_body=max_body, debug=debug)
    routes = StoreRpc(FastPath(framework, _ERROR_HANDLERS, max_body), service, max_body)
    admitted = BodyTimeout(routes, body_timeout)
    if auth_wrapper is not None:
        guarded = auth_wrapper(admitted)
    else:
        known = guard or OpenAccess(ClientRateLimiter(None, service.pool.clock))
        guarded = AuthMiddleware(admitted, known, hosts, is_secure=service.logins.settings.is_secure)
    return RequestMetrics(
        guarded, service.request_stats, EndpointMatcher(_templates(debug=debug)), service.refusals
    )


def framework_app(
    service: Service, *, version: str, max_body: int = MAX_BODY, debug: bool = False
) -> Litestar:
    """Return the Litestar app, without body time-out and fast path."""
    routes = _routes(debug=debug)
    return Litestar(
        # OPTIONS routes first: else Litestar adds its own, which do not list all methods of a path.
        [*_options(routes), *routes],
        request_class=StrictRequest,
        state=State({"service": service}),
        on_startup=[service.start],
        on_shutdown=[service.stop],
        exception_handlers=_ERROR_HANDLERS,
        request_max_body_size=max_body,
        # No documentation pages: those of Litestar load scripts from other hosts.
        openapi_config=OpenAPIConfig(
            title="Forebay",
            version=version,
            description=DESCRIPTION,
            path="/openapi",
            render_plugins=[OpenApiPlugin()],
            use_handler_docstrings=True,
            operation_id_creator=lambda handler, *_: handler.handler_name,
        ),
        logging_config=None,
    )


def _routes(*, debug: bool) -> list[HTTPRouteHandler]:
    return [route for part in (*ROUTE_MODULES, *([debug_routes] if debug else [])) for route in part.ROUTES]


def _templates(*, debug: bool) -> Iterator[str]:
    """Yield every endpoint as the reference names it: without Litestar's parameter types."""
    for handler in _routes(debug=debug):
        yield from (_TYPE.sub("}", path) for path in handler.paths)
    yield from (PATH + operation for operation in store_methods())


def _options(handlers: Sequence[HTTPRouteHandler]) -> Iterator[HTTPRouteHandler]:
    """Yield a handler for each path that lists its methods."""
    methods: dict[str, set[str]] = defaultdict(lambda: {"OPTIONS"})
    for handler in handlers:
        for path in handler.paths:
            methods[path] |= handler.http_methods
    for path, found in methods.items():
        yield _options_at(path, ", ".join(sorted(found)))


def _options_at(path: str, methods: str) -> HTTPRouteHandler:
    @route(path, http_method=[HttpMethod.OPTIONS], include_in_schema=False, status_code=204)
    async def options() -> Response[None]:
        return Response(None, status_code=204, headers={"Allow": methods})

    return options


def _empty_response(_: Any, __: ClientDisconnected) -> Response[None]:
    return Response(None, status_code=_CLIENT_CLOSED_STATUS, media_type=MediaType.TEXT)


_ERROR_HANDLERS: Final[dict[int | type[Exception], Any]] = {**HANDLERS, ClientDisconnected: _empty_response}
