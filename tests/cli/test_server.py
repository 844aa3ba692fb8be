"""`forebay server`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from socket import create_connection, create_server, socket

import httpx2
import pytest

from forebay.service.server import Address
from tests.cli.calling import DEADLINE, command, environment, refusal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_answers_until_it_is_told_to_stop(folder: Path, number: int) -> None:
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", "sqlite:///jobs.db"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        ready = httpx2.get(f"{address}/health/ready", timeout=DEADLINE)
        with under_way(address) as claim:
            process.send_signal(number)
            claim.sendall(b"{}")
            answered = read_all(claim)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()

    assert ready.json() == {"status": "ok"}
    assert answered.endswith(b'{"jobs":[]}')
    assert (process.returncode, "Traceback" in said) == (0, False), said


def under_way(address: str) -> socket:
    """A connection on which the server waits for the body of a claim that could take 20 seconds."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = create_connection((host, int(port)), timeout=DEADLINE)
    connection.sendall(
        b"POST /v1/claim HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
    return connection


def read_all(connection: socket) -> bytes:
    """What comes until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104 - it is refused
@pytest.mark.shows("R-SEC-04")
def test_nobody_listens_beyond_this_machine_without_authentication(folder: Path, host: str) -> None:
    error = refusal("server", "--host", host, "--url", "sqlite:///jobs.db")

    assert error["status"] == 2
    assert "127.0.0.1" in error["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_has_several_names(host: str) -> None:
    assert Address(host).is_loopback


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        error = refusal("server", "--port", str(port), "--url", "sqlite:///jobs.db")

    assert f"port {port}" in error["message"]
