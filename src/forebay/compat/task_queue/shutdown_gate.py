"""Shutdown gate: lets calls in until it is closed, and then waits for those under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from forebay.deferred_interrupts import uninterrupted, wait_for


class ShutdownGate:
    """Lets any number of threads in at once, until it is closed."""

    def __init__(self, closed_message: str) -> None:
        self._closed_message = closed_message
        self._change = Condition()
        self._inside = 0
        self._is_open = True

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Count the thread as inside for the length of the block; raise RuntimeError once closed.

        On a task thread the block must be within an `uninterrupted` region. Else an interrupt between two
        lines here would leave the count too high for ever.
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
        """Let no thread in from now on, and wait for those inside.

        `enter` and `close` use the same flag under one lock. So a thread that came in was counted before the
        flag changed, and is waited for here; every later one gets the error.
        """
        with uninterrupted, self._change:
            self._is_open = False
        wait_for(self._change, lambda: self._inside == 0, timeout)
