"""Bodies as the document has them, and nothing that only looks like it.

The framework would take 0 for false, a text for a number and a number for an instant, and so do to a thousand
jobs what somebody has never asked for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import BaseRouteHandler
from litestar.types import Receive

from forebay.service.http.calling import Gone
from forebay.service.schema.unreadable import Unreadable


class Reading(Request[Any, Any, Any]):
    """A request whose body is read strictly, in one step."""

    async def json(self) -> Any:
        return decoded(self.route_handler, await self.body())


def decoded(handler: BaseRouteHandler, body: bytes) -> Any:
    """What a handler takes, from a body; raises Unreadable."""
    field = handler.parsed_data_field
    try:
        return _decoder(field.annotation).decode(body) if field else msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise Unreadable(str(exc)) from exc


async def whole_body(receive: Receive, most: int) -> bytes:
    """The bytes of a request; raises RequestEntityTooLarge, and Gone if the client has left meanwhile."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        parts.append(message["body"])
        size += len(message["body"])
        if size > most:
            raise RequestEntityTooLarge
        if not message.get("more_body", False):
            return b"".join(parts)


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
