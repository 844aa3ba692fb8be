"""Time-outs of the phases of a connection, which takes a slot of its address while it is open.

uvicorn limits idle time between two requests. It has no limit for connections that are silent from the start,
send a request byte by byte, or leave a response unread.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from forebay.service.client_rates_and_quotas import Connection
from forebay.service.http.auth import CERTIFICATE, CONNECTION
from forebay.service.http.body_timeout import ARRIVAL_TIMEOUT_SECONDS, HAS_BODY
from forebay.service.http.combined_response_writes import CombinedWrites
from forebay.service.request_log import Refusals
from forebay.service.slots_by_address import AddressSlots
from forebay.service.tls_certificates import subject_name

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 29\r\n\r\ntoo many connections are open"
)


class TimedConnection(H11Protocol):
    """Connection with a limit for each of its phases.

    A head must arrive within `head_seconds`; `BodyTimeout` limits the body. A request lives for
    `age_seconds`. After an early response, such as a refusal, the rest of the body has `body_rest_seconds`;
    then the connection is closed, whatever still comes. Closing at once would lose the response, because the
    kernel resets a connection that is closed with unread bytes. A client that reads nothing of a response for
    `head_seconds` is aborted.
    """

    head_seconds = ARRIVAL_TIMEOUT_SECONDS
    age_seconds: float = 3_600.0  # streams end after ten minutes, waits after seconds
    body_rest_seconds: float = 2.0
    app_state: dict[str, Any]
    transport: asyncio.Transport
    # A timer for each request would cost more than a look at the clock. So the timer of an earlier phase goes
    # on; when it fires, it starts again for the rest of the present one.
    _timer: asyncio.TimerHandle | None = None
    _limit: float | None = None
    _ends_at = 0.0
    _is_admitted = False

    def __init__(
        self, *args: Any, slots: AddressSlots | None = None, refusals: Refusals | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._connection = Connection()
        self.app_state = {**self.app_state, CONNECTION: self._connection, HAS_BODY: self._has_body}
        self._slots = slots
        self._refusals = refusals

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if self._slots is not None and not self._slots.acquire(self._address):
            self._refuse(transport)
            return
        self._is_admitted = True
        super().connection_made(transport)
        name = subject_name(transport.get_extra_info("peercert"))
        if name is not None:
            self.app_state = {**self.app_state, CERTIFICATE: name}
        # A large response is written in two parts, head and body. With Nagle's algorithm the kernel delays
        # the body until the client has acknowledged the head, which takes 40 ms. asyncio sets TCP_NODELAY
        # only on sockets that were created with the protocol number, which accepted sockets do not have.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = cast("asyncio.Transport", CombinedWrites(transport, self.loop))
        self._start_phase_timer()

    def _refuse(self, transport: asyncio.Transport) -> None:
        self.transport = transport  # uvicorn closes it again in connection_lost
        if self._refusals is not None:
            self._refusals.write_connection(self._address)
        transport.write(_FULL)
        transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._start_phase_timer()

    def on_response_complete(self) -> None:
        self._limit = None  # a pipelined request may be here already, with an age of its own
        super().on_response_complete()
        self._start_phase_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()
        if self._is_admitted and self._slots is not None:
            self._slots.release(self._address)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_if_stalled(None)

    def _has_body(self) -> bool:
        """Return whether all of the request is here."""
        return not self.cycle.more_body

    def _start_phase_timer(self) -> None:
        """Start the timer when a phase begins; later bytes of the phase do not restart it."""
        limit = self._phase_limit()
        if limit == self._limit:
            return
        self._limit = limit
        if limit is None:
            return
        self._ends_at = self.loop.time() + limit
        if self._timer is None or self._timer.when() > self._ends_at:
            self._restart_timer()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(self._ends_at, self._end_phase)

    def _end_phase(self) -> None:
        self._timer = None
        if self._limit is not None and self.loop.time() < self._ends_at:
            self._restart_timer()
        elif self._limit is not None:
            self._close()

    def _phase_limit(self) -> float | None:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            return self.age_seconds
        if self.conn.their_state is h11.SEND_BODY:
            return self.body_rest_seconds
        # Between two requests uvicorn's keep-alive timer runs, until the next byte.
        is_head = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        return self.head_seconds if is_head else None

    def _close(self) -> None:
        self.transport.close()
        self._abort_if_stalled(None)

    def _abort_if_stalled(self, before: int | None) -> None:
        """Abort a closed connection whose client reads nothing of the rest of the response."""
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        elif left:
            self.loop.call_later(self.head_seconds, self._abort_if_stalled, left)
