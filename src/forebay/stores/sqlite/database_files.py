"""Paths of a database: the file, the folder beside it, and the checks of its disk and its permissions."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from forebay.errors import StoreUnusable

ANNOUNCEMENT_SECONDS: Final = 0.5
CHECK_SECONDS: Final = 0.005

# File systems on which SQLite's locks and its shared memory cannot be trusted between machines.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "fuse.sshfs", "fuse.glusterfs",
        "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "ncpfs", "fuse.s3fs", "fuse.rclone",
        "fuse.gcsfuse", "davfs", "fuse.davfs",
    }
)  # fmt: skip


class DatabasePaths:
    """Paths that belong to one database file.

    Everything that is not a table is in one folder beside the database, `<name>-forebay`: lock files of
    workers, sockets of listeners, and the announcement of a waiting writer.
    """

    def __init__(
        self, database: str, *, is_for_group: bool = False, mounts: str = "/proc/self/mountinfo"
    ) -> None:
        self.database: Path = Path(os.path.abspath(database))
        self.folder: Path = Path(f"{self.database}-forebay")
        # As texts: they are checked in every transaction.
        self._folder_path = str(self.folder)
        self._waiting_file = str(self.folder / "waiting")
        self.has_folder: bool = False  # at the last check
        self._next_check_at = 0.0
        self._is_for_group = is_for_group
        # Of files; SQLite gives the -wal and -shm files the permissions of the database.
        self.file_mode: int = 0o660 if is_for_group else 0o600
        self._mounts = mounts

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

    def has_waiting_writer(self) -> bool:
        """Return whether another writer has waited long for the write lock. The announcement of a dead
        process is soon too old.

        Without an announcement one check in 5 ms is enough: a writer announces itself after 100 ms.
        """
        now = time.monotonic()
        if now < self._next_check_at:
            return False
        self._next_check_at = now + CHECK_SECONDS
        # One check for both: most programs have no listener and no waiting writer, hence no folder.
        self.has_folder = os.access(self._folder_path, os.F_OK)
        if not self.has_folder or not os.access(self._waiting_file, os.F_OK):
            return False
        with suppress(OSError):
            age = time.time() - os.stat(self._waiting_file).st_mtime  # noqa: TID251 - file times
            if age < ANNOUNCEMENT_SECONDS:
                self._next_check_at = 0.0
                return True
        return False

    def announce_waiting(self) -> bool:
        """Create or renew the announcement. It is only a courtesy, so a folder that cannot be written is
        no error."""
        with suppress(OSError, StoreUnusable):
            self.ensure_folder()
            Path(self._waiting_file).touch()
            return True
        return False

    def withdraw_waiting(self) -> None:
        with suppress(OSError):
            os.unlink(self._waiting_file)

    def wal_size(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        with suppress(OSError):
            return os.stat(f"{self.database}-wal").st_size
        return 0

    def check_disk(self) -> None:
        """Raise StoreUnusable if the database lies on a network file system or is mounted alone, as far as
        the operating system tells."""
        mounts, database = self._mountinfo(), os.path.realpath(self.database)
        if any(point == database for point, _ in _mount_points(mounts)):
            # Its -wal and -shm files are then in the container alone: programs of two containers would write
            # to one database without seeing each other's locks, and destroy it.
            raise StoreUnusable(
                f"{self.database} is mounted alone, so other containers do not share the files beside it; "
                f"mount the folder {self.database.parent} instead"
            )
        kind = file_system_of(database, mounts)
        if kind in NETWORK_FILE_SYSTEMS:
            raise StoreUnusable(
                f"{self.database} lies on a network file system ({kind}), where SQLite's locks cannot be "
                "trusted: use a local disk, or a postgresql:// store to share jobs between machines"
            )

    def _mountinfo(self) -> str:
        try:
            return Path(self._mounts).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""  # not Linux: it cannot be told


def is_trusted(folder: os.stat_result, database: os.stat_result | None, *, is_for_group: bool) -> bool:
    """Return whether this user, the owner of the database, or its group where that shares the file, owns a
    folder. The owner of the database can change every job anyway."""
    if folder.st_uid == os.geteuid():
        return True
    if database is None:
        return False
    return folder.st_uid == database.st_uid or (is_for_group and folder.st_gid == database.st_gid)


def file_system_of(path: str, mountinfo: str) -> str:
    """Return the type of the file system of a path, by the longest mount point that leads to it."""
    best, kind = "", ""
    for point, point_kind in _mount_points(mountinfo):
        is_inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Not `>`: a later mount hides an earlier one on the same point.
        if is_inside and len(point) >= len(best):
            best, kind = point, point_kind
    return kind


def _mount_points(mountinfo: str) -> Iterator[tuple[str, str]]:
    """Yield each mount point with the type of its file system."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) >= 5 and right:  # noqa: PLR2004 - the fifth field is the mount point
            yield re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4]), right.split()[0]
