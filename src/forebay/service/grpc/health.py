"""The standard health service: whether this server can do anything for anybody now. It asks for no key."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from forebay.errors import ForebayError
from forebay.service.grpc.answering import PACKAGE
from forebay.service.grpc.methods import SERVICES
from forebay.service.operations.service import Service

NAME: Final = "grpc.health.v1.Health"
KNOWN: Final = frozenset({"", NAME, *(f"{PACKAGE}.{name}" for name in SERVICES)})
LOOK_SECONDS: Final = 1.0

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """All our services serve, or none does: they have one store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handler(self) -> Any:
        """What is registered with a server."""
        request, answer = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Check": grpc.unary_unary_rpc_method_handler(
                    self._check, request.FromString, answer.SerializeToString
                ),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self._watch, request.FromString, answer.SerializeToString
                ),
            },
        )

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in KNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return health_pb2.HealthCheckResponse(status=await self._status())

    async def _watch(self, request: Any, context: Any) -> None:
        told: Any = None
        while not self._service.waiting.is_stopped:
            status = await self._status() if request.service in KNOWN else _UNKNOWN
            if status != told:
                told = status
                with suppress(grpc.aio.InternalError):  # that nobody is there shows by the call's end
                    await context.write(health_pb2.HealthCheckResponse(status=status))
            await asyncio.sleep(LOOK_SECONDS)

    async def _status(self) -> Any:
        try:
            await self._service.check()
        except ForebayError:
            return _NOT_SERVING
        return _SERVING
