"""Servicer: authenticates, decodes, calls one permission function and encodes.

Bodies come as bytes. So nothing of a request is parsed before its caller is authenticated, and a malformed
request gets a problem like any other error. Every method takes a stream of request messages: for a unary
request the library reads the message before it calls the handler, so a client without a key could hold calls
open for ever by never sending it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from forebay.errors import Forbidden, ForebayError, TooManyRequests, Unauthenticated
from forebay.prepared_types import prepare_type
from forebay.service import problem_details
from forebay.service.auth import Authenticator, bearer_token, request_id
from forebay.service.client_rates_and_quotas import Connection, RateAllowance
from forebay.service.generated import forebay_pb2
from forebay.service.grpc.message_arrival_turns import Arrivals
from forebay.service.grpc.message_codec import mapping_of, message_name
from forebay.service.grpc.method_table import SERVICES, MethodSpec
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.problem_details import make_problem, problem_of
from forebay.service.request_log import RequestLine, key_name_in
from forebay.service.runtime.codec_threads import BODY_SIZE, LARGE
from forebay.service.runtime.request_stats import RequestRoute, RequestStats
from forebay.service.schema.base import InvalidRequest, Problem, RequestModel, ResponseModel
from forebay.service.service import Service
from forebay.service.tls_certificates import common_name

PACKAGE: Final = "forebay.v1"
REQUEST_ID: Final = "x-request-id"
# A wait ends this much before the deadline of its call, so that the response arrives in time.
MARGIN_SECONDS: Final = 0.25
# Clients accept 8 KiB of trailers; a character takes up to twelve bytes in a status, and six in a problem.
MAX_STATUS_CHARS: Final = 200
MAX_DETAIL_CHARS: Final = 680  # the list of alert metrics fits, behind an unknown name of 60

Metadata = list[tuple[str, str | bytes]]
CallHandler = Callable[[MethodSpec, Any, "CallRecorder"], Awaitable[bytes | None]]

logger: logging.Logger = logging.getLogger(__name__)


class Servicer:
    """Handlers of all methods of one service."""

    def __init__(
        self,
        service: Service,
        guard: Authenticator,
        *,
        reads_certificates: bool = False,
        logs_access: bool = False,
    ) -> None:
        self._service = service
        self._guard = guard
        self._reads_certificates = reads_certificates
        self._logs_access = logs_access
        self._arrivals = Arrivals()
        self._connections = Connections()
        self._routes = {
            method: RequestRoute(f"/{PACKAGE}.{name}/{method.name}", "gRPC")
            for name, methods in SERVICES.items()
            for method in methods
        }

    def handlers(self) -> list[Any]:
        """Return the handlers to register with a server."""
        return [
            grpc.method_handlers_generic_handler(
                f"{PACKAGE}.{name}", {method.name: self._handler(method) for method in methods}
            )
            for name, methods in SERVICES.items()
        ]

    def _handler(self, method: MethodSpec) -> Any:
        if method.stream is not None:
            return grpc.stream_stream_rpc_method_handler(partial(self._run, method, self._send_stream))
        return grpc.stream_unary_rpc_method_handler(partial(self._run, method, self._answer))

    async def _run(self, method: MethodSpec, serve: CallHandler, _: Any, context: Any) -> bytes | None:
        """Run a call, record it, and report its error to the caller.

        The library keeps the frames of a refused call until the garbage is collected. So the error, whose own
        frames hold the message, is dropped before the call is ended.
        """
        call = CallRecorder(self._service.request_stats, self._routes[method])
        response: bytes | None = None
        refusal: Refusal | None = None
        try:
            try:
                response = await serve(method, context, call)
            except Exception as exc:  # the request boundary: any error is reported to the caller
                refusal = Refusal.of(exc)
            if refusal is not None:
                await self._refuse(context, refusal, call)
        finally:  # also if the caller has disconnected
            call.record_response()
            if call.connection is not None:
                self._connections.leave(context.peer())
            if self._logs_access:
                line_of(context, call).write(call.milliseconds)
        context.set_trailing_metadata(tuple(call.trailers))
        return response

    async def _answer(self, method: MethodSpec, context: Any, call: CallRecorder) -> bytes:
        permit = await self._authorize(context, call)
        async with self._arrivals.turn(permit.caller.name) as turn:
            body = await read_message(context, turn.arrive())
            if len(body) <= LARGE:
                turn.end()
            with permit.caller.holding(len(body)) if len(body) > LARGE else nullcontext():
                request = await self._read(method, body, permit)
                del body  # the request has all of it, and is kept until the response
                request = limit_wait(method, request, context.time_remaining())
                assert method.call is not None  # noqa: S101 - it has no stream
                response = render(await method.call(permit, request))
        permit.caller.spend(response)
        return response

    async def _send_stream(self, method: MethodSpec, context: Any, call: CallRecorder) -> None:
        permit = await self._authorize(context, call)
        assert method.stream is not None  # noqa: S101 - it has no unary call
        async with self._arrivals.turn(permit.caller.name) as turn:
            request = await self._read(method, await read_message(context, turn.arrive()), permit)
        # Closed here, not by garbage collection: its leases go back when the call ends.
        async with aclosing(method.stream(permit, request)) as responses:
            async for response in responses:
                call.record_response()
                encoded = render(response)
                permit.caller.spend(encoded)
                try:
                    await context.write(encoded)
                except grpc.aio.InternalError:  # the client has gone
                    return

    async def _read(self, method: MethodSpec, body: bytes, permit: AuthorizedRequest) -> RequestModel:
        permit.caller.spend(body)
        BODY_SIZE.set(len(body))
        return await self._service.pool.converter.run(len(body), decode_request, method.request_type, body)

    async def _authorize(self, context: Any, call: CallRecorder) -> AuthorizedRequest:
        """Authenticate a call. There is no check of its Origin as over HTTP, because pages in a browser
        cannot make gRPC calls."""
        metadata: Mapping[str, Any] = dict(context.invocation_metadata() or ())
        req_id = request_id(str(metadata.get(REQUEST_ID, "")))
        call.trailers.append((REQUEST_ID, req_id))
        certificate = _certificate(context) if self._reads_certificates else None
        caller = await self._guard.authenticate(
            bearer_token(metadata.get("authorization")), address_of(context.peer()), req_id, certificate
        )
        call.caller = caller.name
        call.trailers += [(name.lower(), value) for name, value in caller.headers.items()]
        if caller.usage is not None:
            call.connection = self._connections.enter(context.peer())
            caller.usage.hold_connection(call.connection)
        return AuthorizedRequest(self._service, caller)

    async def _refuse(self, context: Any, refusal: Refusal, call: CallRecorder) -> NoReturn:
        """End a call with an error: a status, and the whole problem in the trailing metadata."""
        problem = refusal.problem
        status = grpc.StatusCode[problem_details.codes()[problem.code].grpc]
        call.record_error(status.name)
        if refusal.is_logged:
            self._service.refusals.write(line_of(context, call))
        details = (problem.detail or problem.title)[:MAX_STATUS_CHARS]
        await context.abort(status, details, (*call.trailers, *refusal.trailers))
        raise AssertionError("the library has not ended the call")


class Refusal(NamedTuple):
    """Error of a call, without the exception: its problem and trailers."""

    problem: Problem
    trailers: Metadata
    is_logged: bool

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        problem = _problem_of_error(error)
        problem = replace(problem, detail=problem.detail[:MAX_DETAIL_CHARS])
        trailers: Metadata = [("forebay-code", problem.code), ("forebay-problem-bin", render(problem))]
        if isinstance(error, TooManyRequests):
            headers = RateAllowance(error.limit, 0, error.reset_seconds).headers()
            trailers += [(name.lower(), value) for name, value in headers.items()]
        if problem.retry_after_seconds is not None:
            trailers.append(("retry-after", str(problem.retry_after_seconds)))
        return cls(problem, trailers, isinstance(error, (Unauthenticated, Forbidden, TooManyRequests)))


def _certificate(context: Any) -> str | None:
    """Return the common name of the verified client certificate."""
    return common_name(next(iter(context.auth_context().get("x509_common_name", ())), None))


def line_of(context: Any, call: CallRecorder) -> RequestLine:
    """Return the log line of a call."""
    metadata: Mapping[str, Any] = dict(context.invocation_metadata() or ())
    return RequestLine(
        method=call.route.method,
        path=call.route.endpoint,
        status=call.status,
        address=address_of(context.peer()),
        caller=call.caller or key_name_in(bearer_token(metadata.get("authorization"))),
        request=next((str(value) for name, value in call.trailers if name == REQUEST_ID), ""),
    )


class MessageTimeout(Exception):
    """Call whose message did not arrive in time."""


async def read_message(context: Any, limit: AbstractAsyncContextManager[object]) -> bytes:
    """Return the message of a call within a time limit; raises MessageTimeout or InvalidRequest."""
    try:
        async with limit:
            body = await context.read()
    except TimeoutError as exc:
        raise MessageTimeout("the request has not arrived in time") from exc
    if body is grpc.aio.EOF:
        raise InvalidRequest("the call has no message")
    message: bytes = body
    return message


def decode_request(request_type: type[RequestModel], body: bytes) -> RequestModel:
    """Return the request in a message; raises InvalidRequest."""
    message = getattr(forebay_pb2, message_name(request_type))()
    try:
        message.ParseFromString(body)
        return msgspec.convert(mapping_of(request_type).read(message), prepare_type(request_type))
    except (DecodeError, msgspec.ValidationError) as exc:
        raise InvalidRequest(str(exc)) from exc


def render(response: ResponseModel) -> bytes:
    """Return the encoded message of a response."""
    message = getattr(forebay_pb2, message_name(type(response)))()
    mapping_of(type(response)).write(response, message)
    body: bytes = message.SerializeToString()
    return body


def limit_wait(method: MethodSpec, request: RequestModel, remaining: float | None) -> RequestModel:
    """Return the request with a wait that ends before the deadline of the call."""
    if method.wait_field is None or remaining is None:
        return request
    max_wait = max(0.0, remaining - MARGIN_SECONDS)
    if getattr(request, method.wait_field) <= max_wait:
        return request
    return replace(request, **{method.wait_field: max_wait})


def address_of(peer: str) -> str:
    """Return the address in gRPC's text for a peer: `ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]") if kind.startswith("ip") else ""


class Connections:
    """Connections with a call under way, by peer. The library does not say when a connection is closed."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        self._calls: Counter[str] = Counter()

    def enter(self, peer: str) -> Connection:
        """Return the connection of a call that begins."""
        self._calls[peer] += 1
        return self._open.setdefault(peer, Connection())

    def leave(self, peer: str) -> None:
        """End a call."""
        self._calls[peer] -= 1
        if not self._calls[peer]:
            del self._calls[peer]
            self._open.pop(peer).close()


class CallRecorder:
    """Trailers and statistics of one call: its latency until the first response or error, and its errors."""

    def __init__(self, requests: RequestStats, route: RequestRoute) -> None:
        self._requests = requests
        self.route = route
        self.status: str = grpc.StatusCode.OK.name
        self.caller = ""
        self.trailers: Metadata = []
        self.connection: Connection | None = None
        self._started_at = requests.clock.monotonic()
        self._is_counted = False

    @property
    def milliseconds(self) -> float:
        return (self._requests.clock.monotonic() - self._started_at) * 1_000

    def record_response(self) -> None:
        if not self._is_counted:
            self._is_counted = True
            self._requests.record_response(self.route, self._started_at)

    def record_error(self, status: str) -> None:
        self.status = status
        self.record_response()
        self._requests.record_error(self.route, status)


def _problem_of_error(error: Exception) -> Problem:
    if isinstance(error, ForebayError):
        return problem_of(error)
    if isinstance(error, InvalidRequest):
        return make_problem(
            problem_details.BAD_REQUEST, f"the request cannot be read: {error!s:.500}", field=error.field
        )
    if isinstance(error, MessageTimeout):
        return make_problem(problem_details.TOO_SLOW, str(error))
    logger.error("a request has failed with an internal error", exc_info=error)
    return make_problem(problem_details.INTERNAL, problem_details.INTERNAL_DETAIL)
