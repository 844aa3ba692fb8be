"""How much memory a process takes, and how to keep a job within its limit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from forebay.domain.outcome import AttemptError

try:
    import resource

    HAS_RESOURCE = True
except ImportError:  # Windows, where no process is isolated
    HAS_RESOURCE = False

MB: Final = 2**20
_PAGE: Final = resource.getpagesize() if HAS_RESOURCE else 4_096


def resident_bytes(pid: int | str = "self") -> int | None:
    """Bytes in memory of a process; None where nobody says."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None if pid == "self" else _query_ps(int(pid))


def peak_resident_bytes() -> int:
    """The most bytes that this process has ever had in memory; 0 where nobody says."""
    if not HAS_RESOURCE:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1_024


def _query_ps(pid: int) -> int | None:
    """For systems without /proc."""
    try:
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603, S607
        return int(told.stdout) * 1_024
    except (OSError, ValueError):
        return None


def out_of_memory(limit: int, traceback: str = "") -> AttemptError:
    """What becomes of a job that needed more."""
    return AttemptError(
        type="OutOfMemory", message=f"needed more than {limit / MB:g} MB", traceback=traceback
    )


@contextmanager
def limit_address_space(max_bytes: int | None) -> Iterator[None]:
    """Let the process take at most this many more bytes of address space while the block lasts. Where the
    system has no such limit nothing happens here: the worker watches what is resident."""
    before = None if max_bytes is None else _limit(max_bytes)
    try:
        yield
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _limit(max_bytes: int) -> tuple[int, int] | None:
    try:
        taken = int(Path("/proc/self/statm").read_bytes().split()[0]) * _PAGE
        before = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = taken + max_bytes
        for one in before:
            if one != resource.RLIM_INFINITY:
                ceiling = min(ceiling, one)
        # The soft limit alone, so that it can be taken back.
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, before[1]))
    except (OSError, ValueError, IndexError):
        return None
    return before
