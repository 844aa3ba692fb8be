"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_MAX_BYTES: Final = 64


@contextmanager
def open_keyboard() -> Iterator[Callable[[float], str]]:
    """Switch the terminal to cbreak mode; the function waits up to so many seconds for keys.

    Keys arrive at once and are not echoed. Ctrl-C still interrupts. The terminal is restored at the end, also
    after an error.
    """
    import termios  # noqa: PLC0415 - not on Windows
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], max(seconds, 0))
        if not ready:
            return ""
        typed = os.read(descriptor, _MAX_BYTES)
        return typed.decode(errors="replace") if typed else "q"  # the terminal is gone

    try:
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
