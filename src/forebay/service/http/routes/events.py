"""Route for server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from forebay.errors import ForebayError, TooManyRequests
from forebay.service.caller import Caller
from forebay.service.http.asgi_responses import refuse
from forebay.service.http.client_disconnect import wait_until_disconnected
from forebay.service.http.request_context import HttpRequest, caller_of, service_of
from forebay.service.problem_details import problem_of
from forebay.service.runtime.event_feed import EventFeed, FeedFilter, FeedListener, FeedMessage

COMMENT_SECONDS: Final = 30.0
# Then the client reconnects and authenticates again, because its key may have changed.
MAX_STREAM_SECONDS: Final = 600.0
DRAIN_SECONDS: Final = 1.0
RECONNECT_MS: Final = 2_000
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),  # a proxy must not buffer events
)

QueuesQuery = Annotated[
    list[str] | None, QueryParameter(name="queue", description="Only these queues; may be repeated.")
]
TasksQuery = Annotated[
    list[str] | None,
    QueryParameter(name="task", description="Audit events about jobs of these tasks only."),
]
AfterQuery = Annotated[
    int | None,
    QueryParameter(ge=0, lt=10**18, description="Continue after this event; the header takes precedence."),
]
LastHeader = Annotated[
    str | None,
    HeaderParameter(name="Last-Event-ID", description="The last event received, to continue after it."),
]


@get("/v1/events/stream", include_in_schema=False)
async def stream(
    request: HttpRequest,
    queue: QueuesQuery = None,
    task: TasksQuery = None,
    after: AfterQuery = None,
    last_event_id: LastHeader = None,
) -> ASGIApp:
    """Stream changes of queues, workers and jobs until the client disconnects."""
    caller = caller_of(request)
    for name in queue or ():
        caller.check("stream", name)
    if last_event_id and _is_number(last_event_id):
        after = int(last_event_id)
    feed_filter = _build_filter(caller, frozenset(queue or ()), frozenset(task or ()))
    return EventStream(service_of(request).events, caller, feed_filter, after)


class EventStream:
    """Response that lasts until the client disconnects or is too slow, or the maximal time is over."""

    def __init__(
        self,
        feed: EventFeed,
        caller: Caller,
        feed_filter: FeedFilter,
        after: int | None = None,
        max_seconds: float = MAX_STREAM_SECONDS,
    ) -> None:
        self._feed = feed
        self._caller = caller
        self._filter = feed_filter
        self._after = after
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._caller.reserve_stream():
                await self._stream(receive, send)
        except TooManyRequests as error:  # before the start of the response was sent
            await refuse(send, error, {})

    async def _stream(self, receive: Receive, send: Send) -> None:
        with self._feed.listen(self._filter, self._after) as listener:
            writing = asyncio.ensure_future(self._write(listener, send))
            leaving = asyncio.ensure_future(wait_until_disconnected(receive))
            stopping = asyncio.ensure_future(listener.is_over.wait())
            try:
                await asyncio.wait((writing, leaving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not leaving.done():  # let it read its last messages, for a bounded time
                    await asyncio.wait((writing,), timeout=DRAIN_SECONDS)
                if writing.done():
                    writing.result()
            finally:
                for task in (writing, leaving, stopping):
                    task.cancel()

    async def _write(self, listener: FeedListener, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        async for text in self._messages(listener):
            await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _messages(self, listener: FeedListener) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % RECONNECT_MS
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        while loop.time() < started_at + self._max_seconds:
            message = await listener.next(COMMENT_SECONDS)
            if message is None and listener.is_over.is_set():
                return
            try:
                await self._caller.recheck()  # before the send: the key may have been revoked
            except ForebayError as error:
                yield _encode_message(FeedMessage("problem", problem_of(error), 0))
                return
            yield b": still here\n\n" if message is None else _encode_message(message)


def _encode_message(message: FeedMessage) -> bytes:
    """Return one event in the stream format. JSON has no line breaks, so one data line is enough."""
    number = b"id: %d\n" % message.event_id if message.event_id else b""
    return b"event: %s\n%sdata: %s\n\n" % (message.kind.encode(), number, msgspec.json.encode(message.body))


def _build_filter(caller: Caller, queues: frozenset[str], tasks: frozenset[str]) -> FeedFilter:
    """Return the filter of a caller: these queues, or all visible ones. Events of no queue are included only
    without named queues. With tasks, audit events are about their jobs only."""
    return FeedFilter(
        queue=lambda name: (not queues or name in queues) and caller.may("stream", name),
        workers=not queues and caller.may("workers"),
        audit=not queues and caller.may("audit"),
        names_other_jobs=caller.may("job"),
        tasks=tasks,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18  # noqa: PLR2004 - the range of event ids


ROUTES = (stream,)
