"""Real receivers of notifications: an HTTP server and a mail server on loopback, which keep what they were
sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, Final, TypeVar

from forebay.domain.allowed_alert_addresses_and_secrets import parse_policy

LOOPBACK: Final = "127.0.0.1"
# Deliveries to these receivers need it.
LOCAL: Final = parse_policy("127.0.0.0/8")


class Calls(ThreadingHTTPServer):
    """Answers each POST with the next of `answers`, and then always with 204."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Call)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"


class _Call(BaseHTTPRequestHandler):
    server: Calls
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.seen.append((self.path, dict(self.headers), self.rfile.read(length)))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Mails(ThreadingTCPServer):
    """Takes mails as far as the protocol goes, without encryption or names."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Mail)
        self.seen: list[tuple[list[str], str]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Mail(StreamRequestHandler):
    server: Mails
    timeout = 30

    def handle(self) -> None:
        with suppress(OSError):  # a client that speaks another protocol hangs up
            self._talk()

    def _talk(self) -> None:
        receivers: list[str] = []
        self._reply("220 here")
        while line := self.rfile.readline().decode(errors="replace").rstrip():
            word = line.split(maxsplit=1)[0].upper()
            if word == "RCPT":
                receivers.append(line.partition("<")[2].partition(">")[0])
            if word == "DATA":
                self._reply("354 go on")
                self.server.seen.append((receivers, self._data()))
            self._reply("221 bye" if word == "QUIT" else "250 ok")
            if word == "QUIT":
                return

    def _data(self) -> str:
        lines = iter(self.rfile.readline, b".\r\n")
        return b"".join(lines).decode()

    def _reply(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


Server = TypeVar("Server", Calls, Mails)


@contextmanager
def served(server: Server) -> Iterator[Server]:
    """A server while the block lasts."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=30)
