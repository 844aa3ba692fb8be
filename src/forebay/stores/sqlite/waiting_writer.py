"""Announcement of a writer that has waited long for the write lock, so that the other writers pause."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from forebay.errors import StoreUnusable
from forebay.stores.sqlite.database_paths import DatabasePaths

ANNOUNCEMENT_SECONDS: Final = 0.5
CHECK_SECONDS: Final = 0.005


class WaitingWriter:
    """File in the folder beside the database. It exists while a writer waits."""

    def __init__(self, paths: DatabasePaths) -> None:
        self._paths = paths
        # As texts: they are checked in every transaction.
        self._folder_path = str(paths.folder)
        self._waiting_file = str(paths.folder / "waiting")
        self._next_check_at = 0.0

    def is_announced(self) -> bool:
        """Return whether another writer has waited long for the write lock. The announcement of a dead
        process is soon too old.

        Without an announcement one check in 5 ms is enough: a writer announces itself after 100 ms.
        """
        now = time.monotonic()
        if now < self._next_check_at:
            return False
        self._next_check_at = now + CHECK_SECONDS
        # One check for both: most programs have no listener and no waiting writer, hence no folder.
        self._paths.has_folder = os.access(self._folder_path, os.F_OK)
        if not self._paths.has_folder or not os.access(self._waiting_file, os.F_OK):
            return False
        with suppress(OSError):
            age = time.time() - os.stat(self._waiting_file).st_mtime  # noqa: TID251 - file times
            if age < ANNOUNCEMENT_SECONDS:
                self._next_check_at = 0.0
                return True
        return False

    def announce(self) -> bool:
        """Create or renew the announcement. It is only a courtesy, so a folder that cannot be written is
        no error."""
        with suppress(OSError, StoreUnusable):
            self._paths.ensure_folder()
            Path(self._waiting_file).touch()
            return True
        return False

    def withdraw(self) -> None:
        with suppress(OSError):
            os.unlink(self._waiting_file)
