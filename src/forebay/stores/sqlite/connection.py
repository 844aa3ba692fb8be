"""SQLite connection: pragmas, and write transactions that wait for the lock."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeVar
from weakref import WeakSet

from forebay.errors import ConfigError, StoreLocked, StoreUnusable
from forebay.stores.sqlite.database_paths import DatabasePaths
from forebay.stores.sqlite.errors import DRIVER_ERRORS, translate_error
from forebay.stores.sqlite.waiting_writer import WaitingWriter

Durability = Literal["default", "relaxed", "full"]
T = TypeVar("T")

OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables
OPENING_WAIT_MS: Final = 5_000
CACHE_KIB: Final = -65_536  # 64 MiB; negative means kibibytes and not pages
ANNOUNCE_AFTER_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.002


# SQLite keeps its locks in the memory of the process, and a fork copies that memory but not the locks. A
# write of the child, through an old connection or a new one, can then destroy commits of other processes. So
# the child is refused every file that was open at the moment of the fork.
_open_connections: Final[WeakSet[Connection]] = WeakSet()
_forked_paths: Final[set[str]] = set()


def _record_fork() -> None:
    _forked_paths.update(connection.path for connection in _open_connections)
    _open_connections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_record_fork)


def check_fork(path: str) -> None:
    """Raise StoreUnusable in a process that was forked while this file was open."""
    if path in _forked_paths:
        raise StoreUnusable(
            f"{path} was open when this process was forked, and SQLite cannot be used after that: "
            "start processes by spawn, or fork before the file is opened"
        )


class Connection:
    """Connection of our own to one database file."""

    def __init__(
        self, paths: DatabasePaths, *, durability: Durability = "default", lock_timeout_ms: int = 30_000
    ) -> None:
        check_version()
        self._paths = paths
        self._waiting_writer = WaitingWriter(paths)
        self._path = str(paths.database)
        self._durability = durability
        self._lock_timeout = lock_timeout_ms / 1_000
        self._is_full: bool | None = None
        check_fork(self._path)
        self._raw = self._connect()
        _open_connections.add(self)

    def _connect(self) -> sqlite3.Connection:
        folder = Path(self._path).resolve().parent
        if not folder.is_dir():
            raise StoreUnusable(
                f"{self._path} cannot be opened: the folder {folder} does not exist; create it first"
            )
        if Path(self._path).is_dir():
            raise StoreUnusable(f"{self._path} is a folder: name a file in it")
        self._paths.check_folder()
        self._paths.create_database()
        try:
            raw = sqlite3.connect(
                self._path, isolation_level=None, timeout=0, check_same_thread=False, cached_statements=256
            )
            with close_on_error(raw):
                # Several programs may open a new file at once, and only one of them can switch it to WAL.
                raw.execute(f"pragma busy_timeout = {OPENING_WAIT_MS:d}")
                self._switch_to_wal(raw)
                raw.execute("pragma temp_store = memory")
                raw.execute(f"pragma cache_size = {CACHE_KIB:d}")
                raw.execute("pragma busy_timeout = 0")
        except DRIVER_ERRORS as exc:
            raise translate_error(self._path, exc) from exc
        return raw

    def _switch_to_wal(self, raw: sqlite3.Connection) -> None:
        until = time.monotonic() + OPENING_WAIT_MS / 1_000
        while (mode := self._try_wal(raw)) is None and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
        if mode is None:
            raise StoreLocked(f"{self._path} is locked by another program: end its transaction")
        if mode != "wal":
            raise StoreUnusable(
                f"{self._path} cannot be switched to write-ahead logging (it stays in {mode} mode): "
                "use a file on a local disk"
            )

    def _try_wal(self, raw: sqlite3.Connection) -> str | None:
        """Return the journal mode after the switch, or None while other connections switch. SQLite waits
        by itself, but not for another connection that reads the file and wants to switch it too."""
        try:
            (mode,) = raw.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return None
        return str(mode)

    @property
    def path(self) -> str:
        return self._path

    def execute(self, statement: str, values: Mapping[str, object] | tuple[()] = ()) -> sqlite3.Cursor:
        """Run one statement, in the open transaction or in one of its own."""
        return self._raw.execute(statement, values)

    @contextmanager
    def wait_for_locks(self) -> Iterator[None]:
        """Wait for locks that other connections hold only while they open or close the file."""
        self._raw.execute(f"pragma busy_timeout = {OPENING_WAIT_MS:d}")
        try:
            yield
        finally:
            self._raw.execute("pragma busy_timeout = 0")

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction: all statements inside see one snapshot."""
        if _forked_paths:
            check_fork(self._path)
        try:
            self._raw.execute("begin")
            yield self._raw
        finally:
            self._rollback()

    def write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """Run `work` in a write transaction that happens completely or not at all.

        `durable` marks work that accepts jobs: by default it is on the disk before this returns. A power cut
        may lose claims and settlements; it then stops their workers, too.
        """
        if _forked_paths:
            check_fork(self._path)
        try:
            self._sync(full=durable if self._durability == "default" else self._durability == "full")
            try:
                # Inside: an interrupt that arrives with the lock just taken must not leave it taken.
                self._begin()
                result = work(self._raw)
                self._raw.execute("commit")
            except BaseException:
                self._rollback()
                raise
        except DRIVER_ERRORS as exc:
            raise translate_error(self._path, exc) from exc
        return result

    def _rollback(self) -> None:
        # SQLite may have rolled back by itself (disk full or broken); then there is nothing left to undo.
        if self._raw.in_transaction:
            with suppress(sqlite3.Error):
                self._raw.execute("rollback")

    def _sync(self, *, full: bool) -> None:
        if full is not self._is_full:
            self._raw.execute("pragma synchronous = full" if full else "pragma synchronous = normal")
            self._is_full = full

    def _begin(self) -> None:
        """Take the write lock, waiting up to the limit.

        SQLite's own waiting is not fair: a program in a tight loop takes the lock again before a sleeper
        wakes. So a writer that has waited 100 ms announces it with a file beside the database. While that
        exists, every writer pauses for 2 ms between two transactions.
        """
        if self._waiting_writer.is_announced():
            time.sleep(PAUSE_SECONDS)
        try:
            self._raw.execute("begin immediate")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            self._wait_for_lock()

    def _wait_for_lock(self) -> None:
        began = time.monotonic()
        pause = 0.000_2
        is_announced = False
        try:
            while True:
                waited = time.monotonic() - began
                if waited > ANNOUNCE_AFTER_SECONDS:
                    is_announced = self._waiting_writer.announce()
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the waiters, guards nothing
                pause = min(pause * 1.5, PAUSE_SECONDS)
                if self._try_lock(waited):
                    return
        finally:
            if is_announced:
                self._waiting_writer.withdraw()

    def _try_lock(self, waited: float) -> bool:
        try:
            self._raw.execute("begin immediate")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if waited > self._lock_timeout:
                raise StoreLocked(
                    f"{self._path} is locked by another program for more than {self._lock_timeout:g} s: "
                    "end its transaction, or wait longer with lock_timeout"
                ) from exc
            return False
        return True

    def checkpoint(self) -> None:
        """Copy the write-ahead log back into the database file, as far as readers allow."""
        try:
            self._raw.execute("pragma wal_checkpoint(truncate)")
        except DRIVER_ERRORS as exc:
            raise translate_error(self._path, exc) from exc

    def close(self) -> None:
        # Abandoned and not closed after a fork: closing would drop the parent's locks.
        if self._path not in _forked_paths:
            _open_connections.discard(self)
            self._raw.close()


@contextmanager
def close_on_error(raw: sqlite3.Connection) -> Iterator[None]:
    """Close the connection if its preparation fails."""
    try:
        yield
    except BaseException:
        raw.close()
        raise


def check_version() -> None:
    """Raise ConfigError if Python's SQLite is older than the schema needs."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(
            f"Python's sqlite3 uses SQLite {sqlite3.sqlite_version}; Forebay needs {needed} or newer"
        )
