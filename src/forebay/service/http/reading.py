"""Bodies as the document has them, and nothing that only looks like it.

The framework would take 0 for false, a text for a number and a number for an instant, and so do to a thousand
jobs what somebody has never asked for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.handlers import BaseRouteHandler

_WHERE: Final = re.compile(r"(?P<what>.*) - at `\$\.?(?P<field>.*)`\Z", re.DOTALL)


class Unreadable(Exception):
    """A body that is not JSON, or not of the shape that its operation takes."""

    def __init__(self, message: str) -> None:
        found = _WHERE.match(message)
        super().__init__(found["what"] if found else message)
        self.field = found["field"] or None if found else None


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
