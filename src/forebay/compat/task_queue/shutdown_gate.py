"""A door that is closed once: who is inside may finish, nobody comes in afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from forebay.interrupts import uninterrupted, wait_for


class ShutdownGate:
    """Lets any number of threads in at once, until it is closed."""

    def __init__(self, closed_message: str) -> None:
        self._closed_message = closed_message
        self._change = Condition()
        self._inside = 0
        self._is_open = True

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside while the block lasts; raises RuntimeError once it is closed.

        On a task thread the block must be within an `uninterrupted` region, or an interrupt between two lines
        here would keep the count up for ever.
        """
        with uninterrupted, self._change:
            if not self._is_open:
                raise RuntimeError(self._closed_message)
            self._inside += 1
        try:
            yield
        finally:
            with uninterrupted, self._change:
                self._inside -= 1
                self._change.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """Let nobody in from now on, and wait for those who are inside.

        Coming in and closing look at the same flag under one lock, so whoever came in has been counted
        before it was closed and is waited for here; everybody else gets the error.
        """
        with uninterrupted, self._change:
            self._is_open = False
        wait_for(self._change, lambda: self._inside == 0, timeout)
