"""Responses of middleware as ASGI messages: a problem that refuses a request, and headers for a response."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from litestar.types import Message, Send

from forebay.errors import ForebayError, TooManyRequests, Unauthenticated
from forebay.service.client_rates_and_quotas import RateAllowance
from forebay.service.problem_details import problem_of


def add_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a `send` that adds these headers to the response."""
    encoded = _encode_headers(headers)

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *encoded]
        await send(message)

    return send_with_headers


async def refuse(send: Send, error: ForebayError, headers: Mapping[str, str]) -> None:
    """Send a problem as the response."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    fields = {**headers, "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
    if isinstance(error, TooManyRequests):
        fields |= RateAllowance(error.limit, 0, error.reset_seconds).headers()
    if isinstance(error, Unauthenticated):
        fields["WWW-Authenticate"] = "Bearer"
    if problem.retry_after_seconds is not None:
        fields["Retry-After"] = str(problem.retry_after_seconds)
    await send({"type": "http.response.start", "status": problem.status, "headers": _encode_headers(fields)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
