"""Bodies as the document has them, and nothing that only looks like it.

The framework would take 0 for false, a text for a number and a number for an instant, and so do to a thousand
jobs what somebody has never asked for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request
from litestar.handlers import BaseRouteHandler

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


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
