"""Threads that a test has started. Earlier tests of the process may have left apps open, with theirs."""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakSet

_earlier: Final[WeakSet[threading.Thread]] = WeakSet()


def leave_out_earlier_threads() -> None:
    """Begin a test: threads that run now are not its own."""
    _earlier.clear()
    _earlier.update(threading.enumerate())


def started_threads(name: str) -> list[threading.Thread]:
    """Return the living threads of this test whose names begin like this."""
    return [
        thread for thread in threading.enumerate() if thread.name.startswith(name) and thread not in _earlier
    ]
