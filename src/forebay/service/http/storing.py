"""The store seam over HTTP, for Python programs elsewhere: POST /v1/store/METHOD with MessagePack.

It is no part of the document: what it takes is the seam itself, and other languages have the routes. It
stands before the framework, because workers ask for nothing else, and often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from forebay.errors import ForebayError
from forebay.service import problems
from forebay.service.auth import Caller
from forebay.service.http.admitting import CALLER
from forebay.service.http.errors import PROBLEM_JSON, TooSlow
from forebay.service.operations.service import Service
from forebay.service.operations.storing import HINT
from forebay.service.operations.telling import made
from forebay.service.problems import Kind, kind_of
from forebay.stores.wire import MEDIA_TYPE, PATH, encoded

_OK: Final = 200

logger = logging.getLogger(__name__)


class TooLarge(Exception):
    """A body has more bytes than a server takes."""


class Left(Exception):
    """The client has closed its connection."""


class StoreDoor:
    """The app behind the seam: what is not for the seam goes on to it."""

    def __init__(self, app: ASGIApp, service: Service, max_body: int) -> None:
        self._app = app
        self._service = service
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        try:
            if scope["method"] != "POST":
                await _tell(send, problems.UNSUPPORTED, "calls of the store are made by POST")
                return
            body = await self._body(receive)
            caller = cast("dict[str, Any]", scope)[CALLER]
            await self._serve(scope["path"].removeprefix(PATH), body, caller, receive, send)
        except Left:
            pass
        except TooLarge as exc:
            await _tell(send, problems.TOO_LARGE, str(exc))
        except TooSlow as exc:
            await _tell(send, problems.TOO_SLOW, str(exc))

    async def _serve(self, operation: str, body: bytes, caller: Caller, receive: Receive, send: Send) -> None:
        if operation == HINT:
            await self._hint(body, caller, receive, send)
            return
        try:
            answer = await self._service.storing.answer(operation, body, caller)
        except ForebayError as exc:
            await _answer(send, kind_of(exc).status, encoded(exc))
        except Exception as exc:  # the request boundary: a fault of ours is told to our log alone
            logger.error("a call of the store has met a fault of the service", exc_info=exc)
            await _tell(send, problems.INTERNAL, "the service has met a fault of its own; its log says more")
        else:
            await _answer(send, _OK, answer)

    async def _hint(self, body: bytes, caller: Caller, receive: Receive, send: Send) -> None:
        """The head of the answer at once, so that the client knows where it waits; it may leave meanwhile."""
        await send(_head(_OK, {"content-type": MEDIA_TYPE}))
        hinting = asyncio.ensure_future(self._service.storing.answer(HINT, body, caller))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((hinting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if hinting.done():
                word = b"" if isinstance(hinting.exception(), ForebayError) else hinting.result()
                await send({"type": "http.response.body", "body": word, "more_body": False})
        finally:
            hinting.cancel()
            leaving.cancel()

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                raise Left
            parts.append(message["body"])
            size += len(message["body"])
            if size > self._max_body:
                raise TooLarge(f"a request has at most {self._max_body:,} bytes")
            has_more = message.get("more_body", False)
        return b"".join(parts)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _tell(send: Send, kind: Kind, detail: str) -> None:
    await _answer(send, kind.status, msgspec.json.encode(made(kind, detail)), PROBLEM_JSON)


async def _answer(send: Send, status: int, body: bytes, media_type: str = MEDIA_TYPE) -> None:
    await send(_head(status, {"content-type": media_type, "content-length": str(len(body))}))
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _head(status: int, headers: Mapping[str, str]) -> Any:
    told = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": told}
