"""TLS before a server that does not speak it: the wheel with the server has none."""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

CERTIFICATES: Final = Path(__file__).parent / "certificates"


class TlsFront:
    """Listens on a port of its own, with a certificate that our test authority has signed, and passes on what
    it hears. With `asks_clients` only those get in whom the authority has signed, too."""

    def __init__(self, port: int, *, asks_clients: bool = False) -> None:
        self._target = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATES / "server.pem")
        if asks_clients:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(CERTIFICATES / "authority.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, name="tls-front", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # A thread that waits hears of a shutdown, and not of a close.
        _shut(self._listener)
        self._threads[0].join()
        self._listener.close()
        for one in self._open:
            _shut(one)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                program, _ = self._listener.accept()
                self._open.append(program)
                self._threads.append(Thread(target=self._serve, args=(program,), daemon=True))
                self._threads[-1].start()

    def _serve(self, raw: socket.socket) -> None:
        with suppress(OSError), raw, self._context.wrap_socket(raw, server_side=True) as program:
            self._open.append(program)
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                _pass_on(program, server)


def _pass_on(program: ssl.SSLSocket, server: socket.socket) -> None:
    """One thread for both ways: two of them must not use one TLS connection at the same time."""
    while True:
        ready = [program] if program.pending() else select.select([program, server], [], [])[0]
        for source in ready:
            data = source.recv(65_536)
            if not data:
                return
            (server if source is program else program).sendall(data)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
