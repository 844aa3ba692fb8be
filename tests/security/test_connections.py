"""Clients without a key that try to hold connections, or more of them than they may."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from threading import Event

import pytest

from forebay.service.http.connection_timeouts import TimedConnection
from forebay.service.server_security import MAX_CONNECTIONS_PER_ADDRESS, ListenAddress, ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import speaking
from tests.service.live_server import PATIENCE, Served, serving
from tests.worker.support import eventually

# A refusal is sent long before such a body has come, and the library's own limit between requests is 5 s.
HUGE = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
SOON = 20.0


class Quick(TimedConnection):
    body_rest_seconds = 0.3


class Short(TimedConnection):
    age_seconds = 0.3


class Clogged(TimedConnection):
    """A connection of which the system takes little at a time, to a client that takes nothing."""

    head_seconds = 0.3
    is_lost = Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        Clogged.is_lost.set()


@pytest.fixture(scope="module")
def quick() -> Iterator[Served]:
    with serving(
        open_engine("memory://"), security=ServerSecurity(requires_keys=True), connecting=Quick
    ) as found:
        yield found


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def refused(address: str) -> socket.socket:
    """A connection on which the body of a refused request is still awaited."""
    connection = connected(address)
    connection.sendall(HUGE)
    assert status(connection) == 401
    connection.settimeout(SOON)
    return connection


def status(connection: socket.socket) -> int:
    """The status of an answer, which is read to its end: it comes in two pieces."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(65_536) == b""
    except ConnectionError:
        return True


@pytest.mark.shows("R-SEC-10")
def test_one_byte_after_a_refusal_does_not_hold_the_connection(quick: Served) -> None:
    with refused(quick.address) as connection:
        connection.sendall(b"x")

        assert is_closed(connection)


@pytest.mark.shows("R-SEC-10")
def test_a_refused_body_that_never_ends_is_not_taken_for_ever(quick: Served) -> None:
    with refused(quick.address) as connection:
        connection.settimeout(0.02)

        def is_over() -> bool:
            try:
                connection.sendall(b"x")
                return connection.recv(65_536) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(is_over)


def test_a_refused_request_whose_body_comes_soon_leaves_the_connection_open() -> None:
    with (
        serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as served,
        connected(served.address) as connection,
    ):
        connection.sendall(HUGE.replace(b"16000000", b"2"))
        assert status(connection) == 401
        connection.sendall(b"{}GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert status(connection) == 200


@pytest.mark.shows("R-SEC-10")
def test_a_request_has_an_age_at_which_its_connection_is_closed() -> None:
    body = b'{"queues": ["q"], "wait_seconds": 20}'
    with serving(open_engine("memory://"), connecting=Short) as served:
        served.service.pool.engine.store().save_queue("q")  # type: ignore[arg-type]  # a plain text names it
        with connected(served.address) as connection:
            connection.settimeout(SOON / 2)
            connection.sendall(
                b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )

            assert is_closed(connection)


@pytest.mark.shows("R-SEC-10")
def test_a_client_that_leaves_its_answer_unread_is_cut_off() -> None:
    with serving(open_engine("memory://"), connecting=Clogged) as served, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, _, port = served.address.removeprefix("http://").partition(":")
        connection.connect((host, int(port)))
        connection.sendall(b"GET /openapi/v1.json HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert Clogged.is_lost.wait(SOON)


@pytest.mark.shows("R-SEC-10")
@pytest.mark.parametrize("bound", [{"max_connections": 2}, {"max_connections_per_address": 2}])
def test_connections_beyond_a_bound_are_refused_until_others_end(
    bound: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with speaking(open_engine("memory://"), security=ServerSecurity(**bound)) as spoken:  # type: ignore[arg-type]
        first, second = connected(spoken.address), connected(spoken.address)
        with second:
            for connection in (first, second):
                assert is_served(connection)
            with connected(spoken.address) as third:
                assert status(third) == 503
                assert is_closed(third)
            first.close()

            eventually(lambda: is_open(spoken.address))
    assert "refused a connection from 127.0.0.1" in caplog.text


def is_served(connection: socket.socket) -> bool:
    connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return status(connection) == 200


def is_open(address: str) -> bool:
    with connected(address) as connection:
        try:
            return is_served(connection)
        except (ConnectionError, HTTPException):
            return False


@pytest.mark.parametrize(
    ("security", "host", "each"),
    [
        ({}, "127.0.0.1", None),
        ({}, "0.0.0.0", 1_000),  # noqa: S104 - that is the point
        ({"behind_tls_proxy": True}, "0.0.0.0", None),  # noqa: S104 - as above
        ({"max_connections_per_address": 7}, "127.0.0.1", 7),
    ],
)
def test_addresses_are_counted_where_they_are_those_of_clients(
    security: dict[str, int], host: str, each: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many more files than connections: the limit of this process may be 1,024.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65_536, 65_536))
    secured = ServerSecurity(**security)  # type: ignore[arg-type]  # of its fields
    slots = secured.connection_slots(ListenAddress(host))
    taken = 0
    while taken <= MAX_CONNECTIONS_PER_ADDRESS and slots.acquire("192.0.2.1"):
        taken += 1

    assert taken == (MAX_CONNECTIONS_PER_ADDRESS + 1 if each is None else each)
    assert slots.acquire("192.0.2.2")


def test_connections_leave_files_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 300))
    slots = ServerSecurity().connection_slots(ListenAddress())
    taken = 0
    while taken < 300 and slots.acquire("192.0.2.1"):
        taken += 1

    assert taken == 300 - 256


def test_an_ipv6_network_is_one_address() -> None:
    slots = ServerSecurity(max_connections_per_address=1).connection_slots(ListenAddress())

    assert slots.acquire("2001:db8::1")
    assert not slots.acquire("2001:db8::2")
    assert slots.acquire("2001:db8:0:1::1")
    slots.release("2001:db8::1")
    assert slots.acquire("2001:db8::2")
    assert slots.acquire("::ffff:192.0.2.1")
    assert slots.acquire("::ffff:192.0.2.2")
