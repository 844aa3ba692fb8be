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
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ASGIApp, Receive, Scope, Send

from forebay.errors import ForebayError, TooManyRequests
from forebay.service import problems
from forebay.service.http.auth import CALLER
from forebay.service.http.body import read_body
from forebay.service.http.errors import PROBLEM_JSON, RequestTimeout
from forebay.service.http.request_context import (
    ClientDisconnected,
    run_while_connected,
    wait_until_disconnected,
)
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.store_calls import WAKEUP_OPERATION, call_store, check_call
from forebay.service.problems import ProblemKind, kind_of, make_problem
from forebay.service.service import Service
from forebay.stores.rpc import MEDIA_TYPE, PATH, encode

_OK: Final = 200

logger: logging.Logger = logging.getLogger(__name__)


class StoreRpc:
    """The app behind the seam: what is not for the seam goes on to it."""

    def __init__(self, app: ASGIApp, service: Service, max_body: int) -> None:
        self._app = app
        self._service = service
        self._max_body = max_body
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        try:
            if scope["method"] != "POST":
                await _send_problem(send, problems.UNSUPPORTED, "calls of the store are made by POST")
                return
            permit = AuthorizedRequest(self._service, cast("dict[str, Any]", scope)[CALLER])
            await self._serve(permit, scope["path"].removeprefix(PATH), receive, send)
        except ClientDisconnected:
            pass
        except RequestEntityTooLarge:
            await _send_problem(send, problems.TOO_LARGE, f"a request has at most {self._max_body:,} bytes")
        except RequestTimeout as exc:
            await _send_problem(send, problems.TOO_SLOW, str(exc))

    async def _serve(self, permit: AuthorizedRequest, operation: str, receive: Receive, send: Send) -> None:
        try:
            check_call(permit, operation)
            body = await read_body(receive, self._max_body)
            answer = (
                None if operation == WAKEUP_OPERATION else await self._call(permit, operation, body, receive)
            )
        except ForebayError as exc:
            await _send_response(send, kind_of(exc).status, encode(exc))
        except (ClientDisconnected, RequestEntityTooLarge, RequestTimeout):
            raise
        except Exception as exc:  # the request boundary: a fault of ours is told to our log alone
            logger.error("a call of the store has met a fault of the service", exc_info=exc)
            await _send_problem(
                send, problems.INTERNAL, "the service has met a fault of its own; its log says more"
            )
        else:
            if answer is None:
                await self._answer_wakeup_poll(permit, body, receive, send)
            else:
                await _send_response(send, _OK, answer)

    async def _call(self, permit: AuthorizedRequest, operation: str, body: bytes, receive: Receive) -> bytes:
        """The answer to a call. While it waits behind others of these its client may leave: then it is not
        made, or its client's next try would be made beside it. What has begun goes on."""
        calling = call_store(permit, operation, body)
        others, self._in_flight = self._in_flight, self._in_flight + 1
        try:
            # One that is alone waits at most for what else this server does, and is not watched: watching
            # costs more than most calls do.
            return await (run_while_connected(receive, calling) if others else calling)
        finally:
            self._in_flight -= 1

    async def _answer_wakeup_poll(
        self, permit: AuthorizedRequest, body: bytes, receive: Receive, send: Send
    ) -> None:
        try:
            with permit.caller.reserve_wait():
                await self._wait_for_wakeup(permit, body, receive, send)
        except TooManyRequests as exc:  # before the head of an answer was sent
            await _send_response(send, kind_of(exc).status, encode(exc))

    async def _wait_for_wakeup(
        self, permit: AuthorizedRequest, body: bytes, receive: Receive, send: Send
    ) -> None:
        """The head of the answer at once, so that the client knows where it waits; it may leave meanwhile."""
        await send(_response_start(_OK, {"content-type": MEDIA_TYPE}))
        hinting = asyncio.ensure_future(call_store(permit, WAKEUP_OPERATION, body))
        leaving = asyncio.ensure_future(wait_until_disconnected(receive))
        try:
            await asyncio.wait((hinting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if hinting.done():
                word = b"" if isinstance(hinting.exception(), ForebayError) else hinting.result()
                await send({"type": "http.response.body", "body": word, "more_body": False})
        finally:
            hinting.cancel()
            leaving.cancel()


async def _send_problem(send: Send, kind: ProblemKind, detail: str) -> None:
    await _send_response(send, kind.status, msgspec.json.encode(make_problem(kind, detail)), PROBLEM_JSON)


async def _send_response(send: Send, status: int, body: bytes, media_type: str = MEDIA_TYPE) -> None:
    await send(_response_start(status, {"content-type": media_type, "content-length": str(len(body))}))
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _response_start(status: int, headers: Mapping[str, str]) -> Any:
    told = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": told}
