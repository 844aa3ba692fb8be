"""A proxy before a server that passes everything on, until it is told to lose something."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Final

from tests.stores.pooler import USER

_COMPLETE: Final = b"C\0\0\0"  # the beginnings of what a server says: a command has ended,
_IDLE: Final = b"Z\0\0\0\5I"  # and there is no transaction any more


def is_done(data: bytes) -> bool:
    """Whether a server says that something is committed, and not only that it understands a statement."""
    return _IDLE in data and _COMPLETE in data


class Loss:
    """What gets lost: one in `every` of what fits, so many times."""

    def __init__(self, fits: Callable[[bytes], bool], every: int, times: int) -> None:
        self._fits = fits
        self._every = every
        self._times = times
        self._met = 0
        self.lost = 0
        self._lock = Lock()

    def strikes(self, data: bytes) -> bool:
        with self._lock:
            if self.lost >= self._times or not self._fits(data):
                return False
            self._met += 1
            is_struck = self._met % self._every == 0
            self.lost += is_struck
            return is_struck


class Relay:
    """Stands between programs and the server on a port of this machine. Where something is lost, the
    connection ends: both sides learn that it is gone, and no more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._request: Loss | None = None
        self._answer: Loss | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._threads = [Thread(target=self._accept, name="relay", daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        found: int = self._listener.getsockname()[1]
        return found

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{USER}"

    def lose_request(self, word: bytes) -> Loss:
        """What a program sends with this word does not arrive, once."""
        self._request = Loss(lambda data: word in data, 1, 1)
        return self._request

    def lose_answer(self, *, every: int = 1, times: int = 1, fits: Callable[[bytes], bool] = is_done) -> Loss:
        """What the server has done is not heard of."""
        self._answer = Loss(fits, every, times)
        return self._answer

    def _accept(self) -> None:
        while True:
            try:
                program, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                program.close()
                continue
            self._open |= {program, server}
            for source, target in ((program, server), (server, program)):
                thread = Thread(target=self._pass_on, args=(source, target, source is server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                loss = self._answer if answers else self._request
                if loss is not None and loss.strikes(data):
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        # A thread that waits in `accept` hears of a shutdown, and not of a close.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()
