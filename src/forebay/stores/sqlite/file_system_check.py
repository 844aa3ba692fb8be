"""Check of the file system of a database: neither a network file system nor a file mounted alone works."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forebay.errors import StoreUnusable

# File systems on which SQLite's locks and its shared memory cannot be trusted between machines.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "fuse.sshfs", "fuse.glusterfs",
        "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "ncpfs", "fuse.s3fs", "fuse.rclone",
        "fuse.gcsfuse", "davfs", "fuse.davfs",
    }
)  # fmt: skip


def check_file_system(path: Path, *, mounts: str = "/proc/self/mountinfo") -> None:
    """Raise StoreUnusable if the database lies on a network file system or is mounted alone, as far as
    the operating system tells."""
    mountinfo, database = _read_mounts(mounts), os.path.realpath(path)
    if any(point == database for point, _ in _mount_points(mountinfo)):
        # Its -wal and -shm files are then in the container alone: programs of two containers would write
        # to one database without seeing each other's locks, and destroy it.
        raise StoreUnusable(
            f"{path} is mounted alone, so other containers do not share the files beside it; "
            f"mount the folder {path.parent} instead"
        )
    kind = file_system_of(database, mountinfo)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnusable(
            f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be "
            "trusted: use a local disk, or a postgresql:// store to share jobs between machines"
        )


def _read_mounts(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: it cannot be told


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
