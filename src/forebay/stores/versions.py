"""Which SQLite this Python brings. Other engines tell their version when somebody is connected to them."""

from __future__ import annotations

import sqlite3


def sqlite_version() -> str:
    """The version of the library that Python's sqlite3 uses."""
    return sqlite3.sqlite_version
