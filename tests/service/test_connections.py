"""Connections on which no request arrives."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from forebay.service.http.connection_timeouts import TimedConnection
from forebay.stores.factory import open_engine
from tests.service.live_server import PATIENCE, Served, serving
from tests.worker.support import eventually


class Hasty(TimedConnection):
    head_seconds = 0.3
    is_sent_at_once = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        accepted = transport.get_extra_info("socket")
        Hasty.is_sent_at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.fixture(scope="module")
def hasty() -> Iterator[Served]:
    with serving(open_engine("memory://"), connecting=Hasty) as found:
        yield found


def connected(served: Served) -> socket.socket:
    host, _, port = served.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


@pytest.mark.shows("R-SEC-10")
def test_who_says_nothing_is_not_held(hasty: Served) -> None:
    with connected(hasty) as silent:
        assert silent.recv(1) == b""


@pytest.mark.shows("R-SEC-10")
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(hasty: Served) -> None:
    with connected(hasty) as slow:
        slow.settimeout(0.02)

        def is_closed() -> bool:
            try:
                slow.sendall(b"GET /health/live HTTP/1.1\r\nX: " if not begun else b"x")
                begun.append(True)
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        begun: list[bool] = []
        eventually(is_closed)


def test_the_system_does_not_keep_an_answer_until_its_head_is_confirmed(hasty: Served) -> None:
    with connected(hasty) as asking:
        asking.recv(1)

    assert Hasty.is_sent_at_once


def test_a_small_answer_comes_in_one_piece() -> None:
    with serving(open_engine("memory://")) as served, connected(served) as asking:
        asking.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = asking.recv(65_536).partition(b"\r\n\r\n")

    assert b"content-length: %d\r\n" % len(body) in head.lower() + b"\r\n"
    assert body.endswith(b"}")


def test_a_request_may_take_longer_than_its_head(hasty: Served) -> None:
    body = f'{{"queues": ["{hasty.queue()}"], "wait_seconds": 0.6}}'
    request = (
        f"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    )

    def is_answered() -> bool:
        # A machine that stalls between the connection and the head closes it: then once more.
        with connected(hasty) as patient, suppress(ConnectionError):
            patient.sendall(request.encode())
            return patient.recv(65_536).startswith(b"HTTP/1.1 200")
        return False

    eventually(is_answered)
