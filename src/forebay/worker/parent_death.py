"""A process that ends when the one that started it does."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """From now on the kernel kills this process when the thread that started it ends, whatever this one does
    then; where there is no such thing, nothing happens. Ends at once if the parent is gone already.

    The wish comes first and the look second: a parent that dies in between is noticed by one of the two.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
