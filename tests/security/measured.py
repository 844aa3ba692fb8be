"""A real server as a process of its own: its memory, and how soon it answers."""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection, socket
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

import httpx2

from forebay.domain.job import JobId, QueueName
from forebay.stores.contract.engine import Engine
from tests.cli.command_runner import DEADLINE, command, environment

MIB: Final = 1_048_576
ALLOWED: Final = 64 * MIB
QUEUE: Final = QueueName("a")


class Address(NamedTuple):
    """A server's process, and where it listens for HTTP and for gRPC."""

    pid: int
    http: str
    grpc: str


@contextmanager
def server_process(url: str, folder: Path, *options: str) -> Iterator[Address]:
    """A server for this store, which asks for keys, while the block lasts."""
    process = subprocess.Popen(
        command("server", "--port", "0", "--grpc", "127.0.0.1:0", "--url", url, "--require-keys", *options),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        http, grpc = (process.stdout.readline().split()[-1] for _ in range(2))
        yield Address(process.pid, http, grpc.removeprefix("grpc://"))
    finally:
        process.kill()
        process.communicate()


class Measured:
    """A server as a process of its own, with a client that may use one queue."""

    def __init__(self, pid: int, address: str, token: str, engine: Engine) -> None:
        self._proc = Path(f"/proc/{pid}")
        self.token = token
        self.engine = engine
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port)
        headers = {"Authorization": f"Bearer {token}"}
        self.client = httpx2.Client(base_url=address, headers=headers, timeout=DEADLINE)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def connect(self, path: str) -> socket:
        """A connection on which this was asked for."""
        head = f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        connection = create_connection((self.host, self.port), DEADLINE)
        connection.sendall(head.encode())
        return connection

    def enqueue(self, jobs: int) -> list[JobId]:
        """Large jobs that came through this server, so that its page cache is as full as it gets."""
        body = {"task": "t", "queue": QUEUE}
        return [
            JobId(self.ask("POST", "/v1/jobs", body | {"args": [random_text(1_000_000)]})["id"])
            for _ in range(jobs)
        ]

    @contextmanager
    def within(self, allowed: int = ALLOWED) -> Iterator[None]:
        """Fail if the server has taken more than this at any moment of the block."""
        self.ask("GET", f"/v1/queues/{QUEUE}")  # what is loaded at the first request is loaded
        (self._proc / "clear_refs").write_text("5")  # the peak is what is used now
        before = self._status("VmHWM")
        yield
        taken = self._status("VmHWM") - before
        assert taken < allowed, f"{taken / MIB:.0f} MiB"

    def used(self) -> int:
        """The memory that the server uses now."""
        return self._status("VmRSS")

    def usual_seconds(self, path: str, times: int = 11) -> float:
        """How soon a request is usually answered. The median, because other programs run here as well."""
        found = []
        for _ in range(times):
            began = perf_counter()
            self.ask("GET", path)
            found.append(perf_counter() - began)
        return median(found)

    def _status(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._proc / "status").read_text())
        assert found is not None
        return int(found[1]) * 1_024


def random_text(size: int) -> str:
    return b64encode(os.urandom(size * 3 // 4)).decode()
