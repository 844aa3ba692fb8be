"""Parent-death signal: a process ends when the one that started it does."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, whatever this process does
    then. Does nothing where the system has no such signal. Ends at once if the parent is gone already.

    The signal is set first and the parent is checked second. So one of the two notices a parent that dies in
    between.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
