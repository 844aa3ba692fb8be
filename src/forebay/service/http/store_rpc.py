"""Store contract over HTTP, for Python programs elsewhere: POST /v1/store/METHOD with MessagePack.

It is not part of the OpenAPI document: it takes the store contract itself, and other languages have the
routes. It runs before Litestar, because it is all that remote workers use, and they use it often.
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
from forebay.service import problem_details
from forebay.service.http.auth import CALLER
from forebay.service.http.client_disconnect import (
    ClientDisconnected,
    run_while_connected,
    wait_until_disconnected,
)
from forebay.service.http.errors import PROBLEM_JSON, RequestTimeout
from forebay.service.http.json_body import read_body
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.remote_store_calls import WAKEUP_OPERATION, call_store, check_call
from forebay.service.problem_details import ProblemKind, kind_of, make_problem
from forebay.service.service import Service
from forebay.stores.rpc import MEDIA_TYPE, PATH, encode

_OK: Final = 200

logger: logging.Logger = logging.getLogger(__name__)


class StoreRpc:
    """Middleware that serves store calls; other requests go to the app."""

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
                await _send_problem(send, problem_details.UNSUPPORTED, "store calls are made by POST")
                return
            permit = AuthorizedRequest(self._service, cast("dict[str, Any]", scope)[CALLER])
            await self._serve(permit, scope["path"].removeprefix(PATH), receive, send)
        except ClientDisconnected:
            pass
        except RequestEntityTooLarge:
            await _send_problem(
                send, problem_details.TOO_LARGE, f"a request has at most {self._max_body:,} bytes"
            )
        except RequestTimeout as exc:
            await _send_problem(send, problem_details.TOO_SLOW, str(exc))

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
        except Exception as exc:  # the request boundary: details of an internal error go to the log only
            logger.error("a store call has failed with an internal error", exc_info=exc)
            await _send_problem(send, problem_details.INTERNAL, problem_details.INTERNAL_DETAIL)
        else:
            if answer is None:
                await self._answer_wakeup_poll(permit, body, receive, send)
            else:
                await _send_response(send, _OK, answer)

    async def _call(self, permit: AuthorizedRequest, operation: str, body: bytes, receive: Receive) -> bytes:
        """Return the response of a call.

        While a call waits behind others, its client may disconnect. Then it is not made, or the client's
        retry would run concurrently with it. A call that has started continues.
        """
        call = call_store(permit, operation, body)
        others, self._in_flight = self._in_flight, self._in_flight + 1
        try:
            # Without other calls in flight it starts soon, and the disconnect is not watched: that costs more
            # than most calls do.
            return await (run_while_connected(receive, call) if others else call)
        finally:
            self._in_flight -= 1

    async def _answer_wakeup_poll(
        self, permit: AuthorizedRequest, body: bytes, receive: Receive, send: Send
    ) -> None:
        try:
            with permit.caller.reserve_wait():
                await self._wait_for_wakeup(permit, body, receive, send)
        except TooManyRequests as exc:  # before the start of the response was sent
            await _send_response(send, kind_of(exc).status, encode(exc))

    async def _wait_for_wakeup(
        self, permit: AuthorizedRequest, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Send the start of the response at once, so that the client knows which server it waits at. The
        client may disconnect meanwhile."""
        await send(_response_start(_OK, {"content-type": MEDIA_TYPE}))
        polling = asyncio.ensure_future(call_store(permit, WAKEUP_OPERATION, body))
        leaving = asyncio.ensure_future(wait_until_disconnected(receive))
        try:
            await asyncio.wait((polling, leaving), return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                token = b"" if isinstance(polling.exception(), ForebayError) else polling.result()
                await send({"type": "http.response.body", "body": token, "more_body": False})
        finally:
            polling.cancel()
            leaving.cancel()


async def _send_problem(send: Send, kind: ProblemKind, detail: str) -> None:
    await _send_response(send, kind.status, msgspec.json.encode(make_problem(kind, detail)), PROBLEM_JSON)


async def _send_response(send: Send, status: int, body: bytes, media_type: str = MEDIA_TYPE) -> None:
    await send(_response_start(status, {"content-type": media_type, "content-length": str(len(body))}))
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _response_start(status: int, headers: Mapping[str, str]) -> Any:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}
