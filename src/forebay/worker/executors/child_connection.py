"""Connection of an isolated process to its worker."""

from __future__ import annotations

import os
import signal
from socket import socket
from threading import Lock, get_ident, main_thread
from typing import Final

from forebay.worker.executors.messages import (
    FromChild,
    encode_frame,
)

# Ignored by processes that do not handle it, and hardly used by programs.
INTERRUPT: Final = signal.SIGURG


class ChildConnection:
    """Sends complete messages. While the main thread sends, an interrupt waits: it would cut a message in
    two."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self._owner = os.getpid()
        self._main = main_thread().ident
        self.is_busy: bool = False

    @property
    def is_main_thread(self) -> bool:
        """Whether this is the main thread, the target of interrupts."""
        return get_ident() == self._main

    def send(self, message: FromChild) -> None:
        if os.getpid() != self._owner:
            os._exit(0)  # a copy that the task has forked must not send
        frame = encode_frame(message)
        if not self.is_main_thread:
            self._send(frame)
            return
        self.is_busy = True
        try:
            self._send(frame)
        finally:
            self.is_busy = False

    def _send(self, frame: bytes) -> None:
        with self._lock:
            self._connection.sendall(frame)
