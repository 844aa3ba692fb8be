"""Translation of driver errors into store errors."""

from __future__ import annotations

import sqlite3
from typing import Final

from forebay.errors import StoreError, StoreLocked, StoreRefused, StoreUnavailable, StoreUnusable

# Meaning of an error by the beginning of its name.
_ERROR_MEANINGS: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("SQLITE_BUSY", StoreLocked, "is locked by another program"),
    ("SQLITE_PROTOCOL", StoreUnavailable, "is locked by another program"),
    ("SQLITE_LOCKED", StoreLocked, "is locked by another program"),
    ("SQLITE_FULL", StoreUnavailable, "has no room left: free some space on its disk"),
    ("SQLITE_IOERR", StoreUnavailable, "cannot be read or written: look at its disk"),
    (
        "SQLITE_READONLY",
        StoreUnusable,
        "is read-only: give this user the right to write the file and its folder",
    ),
    ("SQLITE_CANTOPEN", StoreUnusable, "cannot be opened: look at its folder and who may write there"),
    ("SQLITE_NOTADB", StoreUnusable, "is not a SQLite database: name another file"),
    ("SQLITE_CORRUPT", StoreUnusable, "is damaged: restore it from a backup"),
    ("SQLITE_PERM", StoreUnusable, "may not be used by this user"),
    ("SQLITE_AUTH", StoreUnusable, "may not be used by this user"),
    ("SQLITE_TOOBIG", StoreRefused, "cannot hold a value of this size"),
    ("SQLITE_CONSTRAINT", StoreRefused, "cannot hold this value"),
    ("SQLITE_MISMATCH", StoreRefused, "cannot hold this value"),
)


def translate_error(path: str, exc: Exception) -> StoreError:
    """Return our error for a driver's error."""
    if isinstance(exc, sqlite3.Error):
        name = getattr(exc, "sqlite_errorname", None) or ""
        for start, kind, meaning in _ERROR_MEANINGS:
            if name.startswith(start):
                return kind(f"{path} {meaning} ({exc})")
        # Without an error code it is the module's own complaint about a value it cannot bind.
        if not name and isinstance(
            exc, (sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError)
        ):
            return StoreRefused(f"{path} cannot hold a value: {exc}")
        return StoreError(f"{path}: {exc}")
    return StoreRefused(f"{path} cannot hold a value: {exc}")


# Binding a value can raise more than the driver's own errors: for half a surrogate pair, and for an integer
# that does not fit into 64 bits.
DRIVER_ERRORS: Final = (sqlite3.Error, UnicodeEncodeError, OverflowError)
