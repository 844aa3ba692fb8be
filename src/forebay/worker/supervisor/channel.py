"""Channel between a supervisor and a worker process: messages over a pair of sockets."""

from __future__ import annotations

import socket
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec

from forebay.worker.supervisor.messages import ToSupervisor, ToWorker

_READ_BYTES: Final = 65_536
# Limit of unsent bytes for a side that does not read; beyond it, messages that may be missed are dropped.
_MAX_UNSENT: Final = 1_048_576


MessageT = TypeVar("MessageT")


class Channel(Generic[MessageT]):
    """One end of the pair, with the decoder of its messages. A message is a line of JSON.

    Sending never waits, because the other side may be stuck. Bytes that the socket does not take are kept and
    offered again with the next message or `flush`.
    """

    def __init__(self, end: socket.socket, decoder: msgspec.json.Decoder[MessageT]) -> None:
        self._end = end
        end.setblocking(False)
        self._lock = Lock()
        self._unsent = bytearray()
        self._unread = bytearray()
        self._decode = decoder.decode

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: ToSupervisor | ToWorker, *, may_be_missed: bool = False) -> None:
        """Send a message; from any thread. Raises nothing if the other side is gone: `receive` returns None
        then."""
        line = msgspec.json.encode(message) + b"\n"
        with self._lock:
            if not may_be_missed or len(self._unsent) < _MAX_UNSENT:
                self._unsent += line
            self._flush()

    def flush(self) -> None:
        """Offer unsent bytes again."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # gone, or closed on our side

    def receive(self) -> list[MessageT] | None:
        """Return the messages since the last call; None when the other side is gone. Raises MsgspecError for
        an invalid message."""
        is_over = False
        try:
            while part := self._end.recv(_READ_BYTES):
                self._unread += part
            is_over = True
        except BlockingIOError:
            pass
        except OSError:
            is_over = True
        *lines, rest = self._unread.split(b"\n")
        self._unread = rest
        # Messages from before the end are returned first; the end is still there at the next call.
        return None if is_over and not lines else [self._decode(line) for line in lines]

    def close(self) -> None:
        self._end.close()
