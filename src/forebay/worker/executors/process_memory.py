"""Memory of processes: its size, and limits for a job."""

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
    """Return the resident bytes of a process; None where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None if pid == "self" else _query_ps(int(pid))


def peak_resident_bytes() -> int:
    """Return the peak of this process's resident bytes; 0 where the system does not tell."""
    if not HAS_RESOURCE:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024


def _query_ps(pid: int) -> int | None:
    """Return the resident bytes on systems without /proc."""
    try:
        output = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603, S607
        return int(output.stdout) * 1_024
    except (OSError, ValueError):
        return None


def out_of_memory(limit: int, traceback: str = "") -> AttemptError:
    """Return the error of a job that needed more memory than its limit."""
    return AttemptError(
        type="OutOfMemory", message=f"needed more than {limit / MB:g} MB", traceback=traceback
    )


@contextmanager
def limit_address_space(max_bytes: int | None) -> Iterator[None]:
    """Let the process take at most this many more bytes of address space while the block lasts. Does nothing
    where the system has no such limit: the worker watches the resident bytes."""
    previous = None if max_bytes is None else _limit(max_bytes)
    try:
        yield
    finally:
        if previous is not None:
            resource.setrlimit(resource.RLIMIT_AS, previous)


def _limit(max_bytes: int) -> tuple[int, int] | None:
    try:
        used = int(Path("/proc/self/statm").read_bytes().split()[0]) * _PAGE
        previous = resource.getrlimit(resource.RLIMIT_AS)
        ceiling = used + max_bytes
        for limit in previous:
            if limit != resource.RLIM_INFINITY:
                ceiling = min(ceiling, limit)
        # The soft limit alone, so that it can be raised again.
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, previous[1]))
    except (OSError, ValueError, IndexError):
        return None
    return previous
