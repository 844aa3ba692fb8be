"""Strict decoding of JSON bodies.

Litestar would accept 0 for false, a text for a number and a number for an instant. A client's mistake could
then change a thousand jobs in a way that it has not requested.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import BaseRouteHandler
from litestar.types import Receive

from forebay.prepared_types import prepare_type
from forebay.service.http.client_disconnect import ClientDisconnected
from forebay.service.http.request_context import service_of
from forebay.service.runtime.codec_threads import BODY_SIZE, LARGE
from forebay.service.schema.base import InvalidRequest

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_EXACT: Final = 2.0**53  # beyond it, a float stands for several integers


class StrictRequest(Request[Any, Any, Any]):
    """Request whose body is decoded strictly, in one step."""

    async def json(self) -> Any:
        return await self.decode(self.route_handler, await self.body())

    async def decode(self, handler: BaseRouteHandler, body: bytes) -> Any:
        """Return the argument of a handler; raises InvalidRequest. Records the size of the request."""
        BODY_SIZE.set(len(body))
        if len(body) <= LARGE:  # without a coroutine more for each small request
            return decode_body(handler, body)
        return await service_of(self).pool.converter.run(len(body), decode_body, handler, body)


def decode_body(handler: BaseRouteHandler, body: bytes) -> Any:
    """Return the argument of a handler from a body; raises InvalidRequest."""
    field = handler.parsed_data_field
    kind = Any if field is None else field.annotation
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as exc:
        with suppress(*_UNREADABLE):
            return msgspec.convert(_integral_floats_to_int(msgspec.json.decode(body)), prepare_type(kind))
        raise InvalidRequest(str(exc)) from exc
    except _UNREADABLE as exc:
        raise InvalidRequest(str(exc)) from exc


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """Return the body of a request; raises RequestEntityTooLarge, and ClientDisconnected if the client has
    left."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        parts.append(message["body"])
        size += len(message["body"])
        if size > max_bytes:
            raise RequestEntityTooLarge
        if not message.get("more_body", False):
            return b"".join(parts)


def _integral_floats_to_int(value: Any) -> Any:
    """Convert integral floats to integers.

    JSON has one kind of number, and languages without integers write 5.0 for 5. In a request that needs the
    conversion, it applies to the arguments of the job as well.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, list):
        return [_integral_floats_to_int(item) for item in value]
    if isinstance(value, dict):
        return {name: _integral_floats_to_int(item) for name, item in value.items()}
    return value


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(prepare_type(kind))
