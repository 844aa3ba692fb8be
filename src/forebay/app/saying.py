"""A word of a running job that somebody waits for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from forebay.errors import LeaseLost


class Pending:
    """A step on its way to the store. Whoever waits may be interrupted between any two bytecodes.

    So this is a bare lock and no Event: an Event has a lock of its own, and an interrupt at the wrong moment
    would leave that locked for the one who answers. A bare lock is released by whoever answers, at most one
    waits for it, and nobody else is hurt when that one never comes back.
    """

    __slots__ = ("_lock", "_tell", "_tickets", "refused")

    def __init__(self, tell: Callable[[], object] | None = None) -> None:
        self.refused: str | None = None
        self._tell = tell
        self._tickets = [None]
        self._lock = Lock()
        self._lock.acquire()

    def answer(self, refused: str | None = None) -> None:
        """It is stored, or refused for this reason. Of two answers the first counts."""
        try:
            self._tickets.pop()
        except IndexError:
            return
        self.refused = refused
        self._lock.release()
        if self._tell is not None:
            with suppress(RuntimeError):  # the event loop that waits is gone
                self._tell()

    def wait(self, seconds: float) -> bool:
        """Whether the answer has come, after at most so many seconds; true once."""
        return self._lock.acquire(timeout=seconds)

    def check(self) -> None:
        """Raise LeaseLost if it was refused."""
        if self.refused is not None:
            raise LeaseLost(f"the step was not stored: {self.refused}; this attempt counts no more, so stop")
