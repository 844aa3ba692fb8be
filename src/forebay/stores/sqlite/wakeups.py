"""Wake-ups between processes without a server: datagrams to socket files beside the database.

A listener binds a socket in the folder beside the database. A writer that has committed new work sends an
empty datagram to each socket there. Some commits send none: a caller's own transaction, a folder that cannot
be written, a container with its own file system. Polling finds these: SQLite counts commits of other
connections in `data_version`, and reading that every 50 ms costs next to nothing.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Final

from forebay.errors import StoreError
from forebay.stores.sqlite.connection import Connection
from forebay.stores.sqlite.database_paths import DatabasePaths
from forebay.stores.sqlite.errors import DRIVER_ERRORS

POLL_SECONDS: Final = 0.05
SETTLED_NS: Final = 100_000_000
LONGEST_ADDRESS: Final = 100  # the kernel's limit is 107 bytes
_PREFIX: Final = "wake-"
# Windows has neither, or not for Python; there the poll alone finds what is new.
HAS_SOCKETS: Final = hasattr(socket, "AF_UNIX") and hasattr(select, "poll")

logger: logging.Logger = logging.getLogger(__name__)


class SqliteNotifier:
    """Sender of wake-ups. It lists the listeners again only when the folder has changed."""

    def __init__(self, paths: DatabasePaths) -> None:
        self._paths = paths
        self._folder = paths.folder
        self._folder_version = -1
        self._listeners: list[str] = []
        self._socket: socket.socket | None = None

    def send(self) -> None:
        """Wake up every listener. A lost wake-up costs delay, never a job, so nothing here may fail."""
        if not self._paths.has_folder or not HAS_SOCKETS:  # as of the beginning of the transaction
            return
        with suppress(OSError):
            self._refresh_listeners()
        for name in self._listeners:
            self._send_to(name)

    def _refresh_listeners(self) -> None:
        changed = os.stat(self._folder).st_mtime_ns
        if changed != self._folder_version:
            self._listeners = [name for name in os.listdir(self._folder) if name.startswith(_PREFIX)]
            # File times are coarse: a folder that has just changed may change again and look the same.
            age = time.time_ns() - changed  # noqa: TID251 - compared with a file's time
            self._folder_version = changed if age > SETTLED_NS else -1

    def _send_to(self, name: str) -> None:
        try:
            with _SocketAddress(self._folder / name) as address:
                self._sender().sendto(b"", socket.MSG_DONTWAIT, address)
        except (ConnectionRefusedError, FileNotFoundError):
            # Its owner is gone. Two senders may both see that; the second finds nothing to remove.
            with suppress(OSError):
                os.unlink(self._folder / name)
            self._folder_version = -1
        except OSError:
            pass  # its buffer is full: it has a wake-up already

    def _sender(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class SqliteWakeups:
    """Listener for wake-ups, on a thread of its own."""

    def __init__(self, paths: DatabasePaths) -> None:
        self._paths = paths
        self._thread: Thread | None = None
        self._socket: socket.socket | None = None
        self._file: Path | None = None
        self._stopped = Event()

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopped.is_set():
            raise StoreError("these wake-ups were started or closed before; ask the engine for others")
        self._bind()
        connection = Connection(self._paths)
        # Read here and not on the thread: a commit after this call returns must wake the listener.
        version = _data_version(connection)
        self._thread = Thread(
            target=self._listen,
            args=(on_wakeup, connection, version),
            name="forebay-sqlite-wakeups",
            daemon=True,
        )
        self._thread.start()

    def _bind(self) -> None:
        if not HAS_SOCKETS:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # Not `secrets`: it loads OpenSSL, three megabytes that nothing else here needs.
            file = self._paths.ensure_folder() / f"{_PREFIX}{os.urandom(6).hex()}"
            with _SocketAddress(file) as address:
                listener.bind(address)
                os.chmod(address, self._paths.file_mode)  # a sender needs to write to it
        except OSError as exc:
            listener.close()
            logger.warning("no wake-ups by socket beside %s (%s): polling only", self._paths.database, exc)
            return
        listener.setblocking(False)
        self._socket, self._file = listener, file

    def _listen(self, on_wakeup: Callable[[], None], connection: Connection, version: int) -> None:
        wait = self._build_wait()
        try:
            while not self._stopped.is_set():
                if wait():
                    # A job waits, and reading the file would delay its start. The first poll after the
                    # datagrams finds commits without one. It also finds the commits of these datagrams: that
                    # is one needless wake-up, soon after the last of them.
                    self._drain()
                    has_changed = True
                else:
                    # Read before the wake-up: a later commit deserves another one.
                    before, version = version, _data_version(connection)
                    has_changed = version != before
                if has_changed and not self._stopped.is_set():
                    on_wakeup()
        finally:
            connection.close()

    def _build_wait(self) -> Callable[[], bool]:
        """Return a function that waits for a datagram or for the poll interval, and returns whether one
        came."""
        if not HAS_SOCKETS:
            return lambda: self._stopped.wait(POLL_SECONDS) and False
        datagrams = select.poll()
        if self._socket is not None:
            datagrams.register(self._socket, select.POLLIN)
        return lambda: bool(datagrams.poll(POLL_SECONDS * 1_000))

    def _drain(self) -> None:
        """Read all datagrams: a burst counts as one."""
        with suppress(OSError):
            while self._socket is not None:
                self._socket.recv(1)

    def close(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._nudge()
            if self._thread is not current_thread():
                self._thread.join(timeout=5)
            self._thread = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._file is not None:
            with suppress(OSError):
                os.unlink(self._file)
            self._file = None

    def _nudge(self) -> None:
        if self._file is None:
            return
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError), datagrams as sender, _SocketAddress(self._file) as address:
            # Not blocking. A full buffer wakes the thread anyway, and if the thread has ended without reading
            # it, a blocking send would never return.
            sender.setblocking(False)
            sender.sendto(b"", address)


def _data_version(connection: Connection) -> int:
    with suppress(StoreError, *DRIVER_ERRORS):
        return int(connection.execute("pragma data_version").fetchone()[0])
    return -1


class _SocketAddress:
    """Address of a socket file. A long path is reached through the descriptor of its folder."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def __enter__(self) -> str:
        address = str(self._file)
        if len(os.fsencode(address)) <= LONGEST_ADDRESS:
            return address
        self._descriptor = os.open(self._file.parent, os.O_RDONLY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{self._file.name}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
