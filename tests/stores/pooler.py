"""A proxy before a PostgreSQL server that does what poolers of transactions do, and nothing kinder.

Many clients share few sessions. A client has one only from the first message of a transaction until the
server says that it is idle again; the next transaction gets another one, and what the last has left in it
(settings, prepared statements, what is listened to) is discarded first. Options of a session are refused at
the start, as PgBouncer does unless it is told to ignore them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterator
from threading import Thread
from typing import Final

_VERSION: Final = 196_608
_ASKS_FOR_ENCRYPTION: Final = (80_877_103, 80_877_104)
_HEADER: Final = struct.Struct("!cI")
_PAIR: Final = struct.Struct("!II")
_ENDS_A_TURN: Final = (b"Q", b"S", b"F")  # each is answered by one "ready"
_BELONGS: Final = (b"d", b"c", b"f", b"H")  # rows, and a request to hear soon: parts of what was sent before
USER: Final = "postgres"
PATIENCE: Final = 20.0  # how long a client waits for a session


def messages(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take whole messages from a buffer: the kind of each, and all its bytes."""
    while len(buffer) >= _HEADER.size:
        kind, length = _HEADER.unpack_from(buffer)
        if len(buffer) <= length:
            return
        yield kind, bytes(buffer[: length + 1])
        del buffer[: length + 1]


class _Peer(asyncio.Protocol):
    """One end of the proxy."""

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pool.peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.peers.discard(self)

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class _Session(_Peer):
    """A connection to the server."""

    client: _Client | None = None
    is_fresh = True  # not ready for the first time yet
    is_resetting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        names = f"user\0{USER}\0database\0{USER}\0application_name\0pooler\0\0".encode()
        self.send(_PAIR.pack(8 + len(names), _VERSION) + names)

    def serve(self, client: _Client) -> None:
        """Begin a transaction of another client: whatever the last one has left is gone."""
        self.client, client.session = client, self
        self.is_resetting = True
        if client.patience is not None:
            client.patience.cancel()
        self.send(self.pool.reset + client.waiting)
        client.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        passed_on = b""
        for kind, message in messages(self.buffer):
            if self.is_fresh or self.is_resetting:
                self._prepare(kind, message)
            elif self.client is not None:
                passed_on += message
                if self.client.is_over(kind, message):
                    self._let_go(passed_on)
                    passed_on = b""
        if passed_on and self.client is not None:
            self.client.send(passed_on)

    def _prepare(self, kind: bytes, message: bytes) -> None:
        if kind == b"E":
            self.pool.faults.append(message.decode(errors="replace"))
        elif kind == b"S" and self.is_fresh:
            self.pool.settings[message[5 : message.index(0, 5)]] = message
        elif kind == b"Z" and self.is_fresh:
            self.is_fresh = False
            self.pool.give_back(self)
        elif kind == b"Z":
            self.is_resetting = False

    def _let_go(self, last: bytes) -> None:
        client, self.client = self.client, None
        assert client is not None
        client.session = None
        client.send(last)
        self.pool.give_back(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.client is not None:
            self.client.session = None
            self.client.close()
        self.pool.replace(self)


class _Client(_Peer):
    """A program that believes it has a session."""

    has_started = False
    is_extended = False
    is_within = False  # something was sent for which nothing has asked to be ready yet
    unanswered = 0
    patience: asyncio.TimerHandle | None = None

    def __init__(self, pool: _Pool) -> None:
        super().__init__(pool)
        self.session: _Session | None = None
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while not self.has_started and len(self.buffer) >= _PAIR.size:
            if not self._greet():
                return
        if self.has_started:
            self._pass_on()

    def _greet(self) -> bool:
        length, code = _PAIR.unpack_from(self.buffer)
        if len(self.buffer) < length:
            return False
        words = bytes(self.buffer[_PAIR.size : length]).split(b"\0")
        del self.buffer[:length]
        if code in _ASKS_FOR_ENCRYPTION:
            self.send(b"N")
            return True
        if code != _VERSION or (_has_options(words) and not self.pool.ignores_options):
            self.send(_refusal("unsupported startup parameter: options"))
            self.close()
            return False
        self.has_started = True
        self.send(_HEADER.pack(b"R", 8) + bytes(4) + b"".join(self.pool.settings.values()))
        self.send(_HEADER.pack(b"Z", 5) + b"I")
        return True

    def _pass_on(self) -> None:
        found = b""
        for kind, message in messages(self.buffer):
            if kind == b"X":
                self.close()
                return
            found += message
            if kind not in _BELONGS:
                self.is_extended = kind != b"Q"
                self.is_within = kind not in _ENDS_A_TURN
                self.unanswered += not self.is_within
        if found and self.session is not None:
            self.session.send(found)
        elif found and (self.unanswered or self.is_within):
            self.waiting += found
            self.pool.ask(self)

    def is_over(self, kind: bytes, message: bytes) -> bool:
        """Whether this answer of the server ends a transaction, with nothing more on its way."""
        if kind == b"G" and self.is_extended:
            self.unanswered -= 1  # who is about to be sent rows does not answer what was sent before them
        if kind != b"Z":
            return False
        self.unanswered -= 1
        return message[5:] == b"I" and not self.unanswered and not self.is_within

    def give_up(self) -> None:
        """No session has become free in time."""
        self.send(_refusal("query_wait_timeout"))
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pool.forget(self)
        if self.session is not None:  # in the middle of a transaction, which must end
            self.session.client = None
            self.session.close()


def _has_options(words: list[bytes]) -> bool:
    return any(value for name, value in zip(words[::2], words[1::2], strict=False) if name == b"options")


def _refusal(words: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C08P01\0M{words}\0\0".encode()
    return _HEADER.pack(b"E", 4 + len(fields)) + fields


class _Pool:
    """The sessions, and who waits for one. All of it runs on one event loop."""

    def __init__(self, port: int, size: int, reset: bytes, *, ignores_options: bool) -> None:
        self.port = port
        self._size = size
        self.ignores_options = ignores_options
        self.reset = _HEADER.pack(b"Q", 5 + len(reset)) + reset + b"\0"
        self._free: deque[_Session] = deque()
        self._waiting: deque[_Client] = deque()
        self._opening: set[asyncio.Task[object]] = set()
        self._is_closing = False
        self.peers: set[_Peer] = set()
        self.settings: dict[bytes, bytes] = {}
        self.faults: list[str] = []
        self.is_ready = asyncio.Event()

    def open(self) -> None:
        for _ in range(self._size):
            self._open_one()

    def _open_one(self) -> None:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[object] = loop.create_task(
            loop.create_connection(lambda: _Session(self), "127.0.0.1", self.port)
        )
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def ask(self, client: _Client) -> None:
        if self._free:
            self._free.popleft().serve(client)
        elif client not in self._waiting:
            self._waiting.append(client)
            client.patience = asyncio.get_running_loop().call_later(PATIENCE, client.give_up)

    def give_back(self, session: _Session) -> None:
        self.is_ready.set()
        # To the end of the row, so that no client gets the same one twice while there is another.
        self._free.append(session)
        if self._waiting:
            self._free.popleft().serve(self._waiting.popleft())

    def forget(self, client: _Client) -> None:
        if client in self._waiting:
            self._waiting.remove(client)

    def replace(self, session: _Session) -> None:
        if session in self._free:
            self._free.remove(session)
        if not self._is_closing:
            self._open_one()

    async def close(self) -> None:
        self._is_closing = True
        for peer in list(self.peers):
            peer.close()
        while self.peers or self._opening:
            await asyncio.sleep(0.001)


class Pooler:
    """The proxy, on a thread of its own, before the server that listens on a port of this machine. `reset` is
    what makes a session like new; with another statement and one session it shows what is left in it."""

    def __init__(
        self,
        port: int,
        *,
        sessions: int = 3,
        reset: bytes = b"discard all",
        ignores_options: bool = False,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool = _Pool(port, sessions, reset, ignores_options=ignores_options)
        self._thread = Thread(target=self._loop.run_forever, name="pooler", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{USER}@127.0.0.1:{port}/{USER}"

    @property
    def faults(self) -> list[str]:
        """What went wrong between transactions."""
        return self._pool.faults

    async def _listen(self) -> asyncio.Server:
        self._pool.open()
        await self._pool.is_ready.wait()
        return await self._loop.create_server(lambda: _Client(self._pool), "127.0.0.1", 0)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            await self._pool.close()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
