"""Paths of a database: the file and the folder beside it, with their permissions."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from forebay.errors import StoreUnusable


class DatabasePaths:
    """Paths that belong to one database file.

    Everything that is not a table is in one folder beside the database, `<name>-forebay`: lock files of
    workers, sockets of listeners, and the announcement of a waiting writer.
    """

    def __init__(self, database: str, *, is_for_group: bool = False) -> None:
        self.database: Path = Path(os.path.abspath(database))
        self.folder: Path = Path(f"{self.database}-forebay")
        self._folder_path = str(self.folder)
        self.has_folder: bool = False  # at the last check
        self._is_for_group = is_for_group
        # Of files; SQLite gives the -wal and -shm files the permissions of the database.
        self.file_mode: int = 0o660 if is_for_group else 0o600

    def ensure_folder(self) -> Path:
        """Return the folder beside the database, created if it does not exist. Raises StoreUnusable if
        another user controls it."""
        mode = 0o770 if self._is_for_group else 0o700
        try:
            self.folder.mkdir(mode=mode)
            # Adds what the umask has taken away, and keeps the set-group-ID bit of a shared folder.
            self.folder.chmod(stat.S_IMODE(self.folder.stat().st_mode) | mode)
        except FileExistsError:
            if not self.folder.is_dir():
                raise
            self.check_folder()
        self.has_folder = True
        return self.folder

    def check_folder(self) -> None:
        """Raise StoreUnusable if the folder exists and another user controls it. A free lock file in it
        means that a worker is dead: that user could make jobs run twice."""
        try:
            info = os.lstat(self._folder_path)
        except OSError:
            return
        has_owners = hasattr(os, "geteuid")  # not on Windows
        if stat.S_ISLNK(info.st_mode):
            raise StoreUnusable(f"{self.folder} is a link, and lock files of workers belong there: remove it")
        if has_owners and info.st_mode & stat.S_IWOTH:
            raise StoreUnusable(
                f"{self.folder} has lock files of workers, and every user can write to it: "
                f"chmod o-w {self.folder}"
            )
        if has_owners and not is_trusted(info, self._database_stat(), is_for_group=self._is_for_group):
            raise StoreUnusable(
                f"{self.folder} has lock files of workers and belongs to another user (uid {info.st_uid}): "
                "remove it, or share the file in a group with file_mode=660"
            )

    def _database_stat(self) -> os.stat_result | None:
        try:
            return os.stat(self.database)
        except OSError:
            return None

    def create_database(self) -> None:
        """Create an empty database file with the right permissions, if there is none.

        SQLite would create it by the umask. It is created under another name and linked: a descriptor of the
        file itself must not be closed here, because that drops the POSIX locks of all connections of this
        process (sqlite.org/howtocorrupt.html, 2.2). If that fails, SQLite creates it or raises an error.
        """
        target = os.path.realpath(self.database)
        if os.path.lexists(target):
            return
        draft = f"{target}.{os.getpid()}.{os.urandom(6).hex()}"
        with suppress(OSError):
            os.close(self.create_file(draft))
            try:
                os.link(draft, target)  # fails if another program was faster
            finally:
                os.unlink(draft)

    def create_file(self, path: str | Path) -> int:
        """Create a file with the permissions of this store, whatever the umask; return its descriptor."""
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, self.file_mode)
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, self.file_mode)
        return descriptor

    def wal_size(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        with suppress(OSError):
            return os.stat(f"{self.database}-wal").st_size
        return 0


def is_trusted(folder: os.stat_result, database: os.stat_result | None, *, is_for_group: bool) -> bool:
    """Return whether this user, the owner of the database, or its group where that shares the file, owns a
    folder. The owner of the database can change every job anyway."""
    if folder.st_uid == os.geteuid():
        return True
    if database is None:
        return False
    return folder.st_uid == database.st_uid or (is_for_group and folder.st_gid == database.st_gid)
