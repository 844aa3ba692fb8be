"""Death of workers, noticed by lock files: each worker holds a lock of the operating system on its own file.

The kernel releases the lock when the process ends, for whatever reason. A sweeper that gets the lock knows
that the worker is dead, and need not wait for its leases to end. A forked child shares the lock of its
worker: while such a child lives, the death is noticed only when the leases end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from forebay.domain.job import WorkerId
from forebay.errors import StoreUnavailable
from forebay.stores.sqlite.database_paths import DatabasePaths

try:
    import fcntl

    HAS_FLOCK = True
except ImportError:  # Windows: only the end of its leases shows there that a worker is dead
    HAS_FLOCK = False

_PREFIX: Final = "worker-"
_SUFFIX: Final = ".lock"


class WorkerLocks:
    """Locks of the workers that send heartbeats through one store handle."""

    def __init__(self, paths: DatabasePaths) -> None:
        self._paths = paths
        self._descriptors: dict[WorkerId, int] = {}

    def acquire(self, worker: WorkerId) -> None:
        """Show that this process runs the worker, for as long as the process lives."""
        if not HAS_FLOCK or worker in self._descriptors:
            return
        try:
            self._descriptors[worker] = self._create_lock_file(self._file(worker))
        except OSError as exc:
            raise StoreUnavailable(
                f"the lock file of worker {worker} in {self._paths.folder} cannot be made ({exc}): "
                "look at that folder, who may write there, and its disk"
            ) from exc

    def _create_lock_file(self, target: Path) -> int:
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        self._paths.ensure_folder()
        descriptor = self._paths.create_file(draft)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Locked first, named second: no sweeper can find the file without its lock.
            os.rename(draft, target)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(draft)
            raise
        return descriptor

    def release(self, worker: WorkerId) -> None:
        """Release the lock of a worker that has stopped normally: it has no leases left to take over."""
        descriptor = self._descriptors.pop(worker, None)
        if descriptor is not None:
            with suppress(OSError):
                os.unlink(self._file(worker))
            os.close(descriptor)

    def close(self) -> None:
        """Release the locks but leave the files: leases of these workers may be taken over at once."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    @contextmanager
    def dead_workers(self) -> Iterator[frozenset[WorkerId]]:
        """Hold the free locks, and yield the workers that they belong to."""
        taken = dict(self._take_free_locks())
        try:
            yield frozenset(taken)
        finally:
            for descriptor in taken.values():
                os.close(descriptor)

    def remove_dead(self, dead: Iterable[WorkerId]) -> None:
        """Remove the files of dead workers that have no leases any more."""
        for worker in dead:
            with suppress(OSError):
                os.unlink(self._file(worker))

    def _take_free_locks(self) -> Iterator[tuple[WorkerId, int]]:
        if not HAS_FLOCK or not self._paths.folder.is_dir():
            return
        self._paths.check_folder()
        for file in self._paths.folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            worker = WorkerId(unquote(file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)))
            if worker not in self._descriptors:
                descriptor = _try_lock(file)
                if descriptor is not None:
                    yield worker, descriptor

    def _file(self, worker: WorkerId) -> Path:
        return self._paths.folder / f"{_PREFIX}{quote(worker, safe='')}{_SUFFIX}"


def _try_lock(file: Path) -> int | None:
    """Return a descriptor that holds the lock of a file; None while another process holds it, or if it is
    gone."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
