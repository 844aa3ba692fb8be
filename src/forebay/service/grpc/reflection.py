"""Reflection of the gRPC services, which needs no key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from grpc_reflection.v1alpha import reflection

from forebay.service.grpc.keyless_call_limits import OpenCalls


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # it has no types
    """Reflection service of the library, within the bounds of calls without a key."""

    def __init__(self, names: tuple[str, ...], calls: OpenCalls) -> None:
        super().__init__(names)
        self._calls = calls

    async def ServerReflectionInfo(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async with self._calls.admit(context):
            async for answer in super().ServerReflectionInfo(request_iterator, context):
                yield answer
