"""Standard gRPC health service, and the bounds on calls that need no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from forebay.errors import ForebayError, TooManyRequests
from forebay.service.auth import Authenticator
from forebay.service.connection_budgets import Budget, network_of
from forebay.service.grpc.incoming_message_limits import Arrivals
from forebay.service.grpc.method_table import SERVICES
from forebay.service.grpc.servicer import PACKAGE, MessageTimeout, address_of, read_message
from forebay.service.runtime.store_readiness import CHECK_SECONDS
from forebay.service.schema.base import InvalidRequest
from forebay.service.service import Service

NAME: Final = "grpc.health.v1.Health"
KNOWN: Final = frozenset({"", NAME, *(f"{PACKAGE}.{name}" for name in SERVICES)})
# Concurrent calls without a key: in total, and by address. They leave room for other calls.
MAX_OPEN_CALLS: Final = 1_000
MAX_OPEN_CALLS_PER_ADDRESS: Final = 100
# Their messages have a few bytes, and may be as large as any: few arrive at a time, and not for long.
MAX_OPEN_ARRIVING: Final = 4
MAX_OPEN_ARRIVING_PER_ADDRESS: Final = 2
OPEN_ARRIVAL_TIMEOUT_SECONDS: Final = 2.0

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class OpenCalls:
    """Bounds of calls without a key: a rate by address, and a number of concurrent calls."""

    def __init__(self, guard: Authenticator, budget: Budget) -> None:
        self._guard = guard
        self._budget = budget
        self._arrivals = Arrivals(MAX_OPEN_ARRIVING)
        self._arrivals_of = Arrivals(MAX_OPEN_ARRIVING_PER_ADDRESS)

    @asynccontextmanager
    async def admit(self, context: Any) -> AsyncIterator[None]:
        """Hold a slot for a call, or end it with RESOURCE_EXHAUSTED."""
        address = address_of(context.peer())
        try:
            self._guard.count_open_request(address)
        except TooManyRequests as exc:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(exc))
        if not self._budget.acquire(address):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many concurrent calls without a key")
        try:
            yield
        finally:
            self._budget.release(address)

    async def read(self, context: Any) -> bytes:
        """Return the message of an admitted call in its turn. Addresses take turns, and the calls of each."""
        address = network_of(address_of(context.peer()))
        async with self._arrivals_of.turn(address), self._arrivals.turn("all"):
            return await read_message(context, asyncio.timeout(OPEN_ARRIVAL_TIMEOUT_SECONDS))


class HealthServicer:
    """Health service. All Forebay services have the same status, because they share one store."""

    def __init__(self, service: Service, calls: OpenCalls) -> None:
        self._service = service
        self._calls = calls
        self._watchers = 0
        self._status: Any = None
        self._changed = asyncio.Event()

    def handler(self) -> Any:
        """Return the handler to register with a server."""
        render = health_pb2.HealthCheckResponse.SerializeToString
        # As streams of requests, for the reason in `servicer`.
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=render),
                "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=render),
            },
        )

    async def _check(self, _: Any, context: Any) -> Any:
        async with self._calls.admit(context):
            if await self._read_service_name(context) not in KNOWN:
                await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
            return health_pb2.HealthCheckResponse(status=await self._check_status())

    async def _watch(self, _: Any, context: Any) -> None:
        async with self._calls.admit(context):
            is_known = await self._read_service_name(context) in KNOWN
            with self._poll_while_watched():
                await self._send_changes(is_known, context)

    async def _send_changes(self, is_known: bool, context: Any) -> None:
        sent: Any = None
        while not self._service.claim_waiters.is_stopped:
            # Read before the status, so that a change during the write is not missed.
            changed = self._changed
            status = self._status if is_known else _UNKNOWN
            if status is not None and status != sent:
                sent = status
                with suppress(grpc.aio.InternalError):  # a lost client shows at the end of the call
                    await context.write(health_pb2.HealthCheckResponse(status=status))
            await changed.wait()

    @contextmanager
    def _poll_while_watched(self) -> Iterator[None]:
        """Run one polling task for all watchers, from the first to the last."""
        self._watchers += 1
        if self._watchers == 1:
            self._status = None
            self._task = asyncio.ensure_future(self._poll())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._task.cancel()

    async def _poll(self) -> None:
        while not self._service.claim_waiters.is_stopped:
            status = await self._check_status()
            if status != self._status:
                self._status = status
                self._wake()
            await asyncio.sleep(CHECK_SECONDS)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check_status(self) -> Any:
        try:
            await self._service.check()
        except ForebayError:
            return _NOT_SERVING
        return _SERVING

    async def _read_service_name(self, context: Any) -> str:
        """Return the service that a client asks about; ends a malformed call."""
        try:
            request = health_pb2.HealthCheckRequest.FromString(await self._calls.read(context))
        except TooManyRequests as exc:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(exc))
        except (MessageTimeout, InvalidRequest, DecodeError) as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {exc}")
        return str(request.service)
