"""What the tasks of all systems note down when they run, about a microsecond each.

Every process owns a small mapped file in the folder COMPARE_NOTES: how many jobs, the first time, the last.
A job that carries the time of its sending also adds (sent, started) to a file that all share. Only the
standard library is used here: the environments of the peers have nothing else of ours.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

NAME: Final = "COMPARE_NOTES"
now: Final = time.time  # noqa: TID251 - processes compare their times
_COUNT: Final = struct.Struct("<qdd")
_DELAY: Final = struct.Struct("<dd")
_lock: Final = threading.Lock()


class _Own:
    """The files of this process; a child that was forked opens its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        folder = Path(os.environ[NAME])
        with (folder / f"{self.pid}.count").open("a+b") as file:
            file.truncate(_COUNT.size)
            self.count = mmap.mmap(file.fileno(), _COUNT.size)
        self.delays = os.open(folder / "delays", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


_own: _Own | None = None


def note(sent: float = 0.0, jobs: int = 1) -> None:
    """One job runs now, or that many have run; `sent` is the time at which its enqueue call began."""
    global _own  # noqa: PLW0603 - opened by the first job of a process, after any fork
    started = now()
    with _lock:
        if _own is None or _own.pid != os.getpid():
            _own = _Own()
        if sent:
            os.write(_own.delays, _DELAY.pack(sent, started))
        count, first, _ = _COUNT.unpack_from(_own.count)
        _COUNT.pack_into(_own.count, 0, count + jobs, first or started, started)


class Noted(NamedTuple):
    jobs: int
    first: float
    last: float


def noted(folder: Path) -> Noted:
    """What all processes have noted so far."""
    files = [file.read_bytes() for file in folder.glob("*.count")]
    found = [_COUNT.unpack(content) for content in files if len(content) == _COUNT.size]
    found = [one for one in found if one[0]]
    if not found:
        return Noted(0, 0.0, 0.0)
    return Noted(sum(one[0] for one in found), min(one[1] for one in found), max(one[2] for one in found))


def delays_ms(folder: Path) -> list[float]:
    """From the begin of an enqueue call to the start of its job, sorted."""
    file = folder / "delays"
    content = file.read_bytes() if file.exists() else b""
    return sorted((started - sent) * 1_000 for sent, started in _DELAY.iter_unpack(content))


def argument(number: int = 0, sent: float = 0.0, size: int = 0) -> dict[str, Any]:
    """The one argument of every job: 109 bytes as JSON, or about `size`."""
    made = {"id": 100_000 + number, "t": sent, "kind": "send_mail", "to": "someone@example.com"}
    return made | {"ref": "x" * (size - 80) if size > 100 else "0123456789abcdef01234567"}
