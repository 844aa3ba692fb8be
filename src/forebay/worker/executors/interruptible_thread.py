"""Thread of a task that can be interrupted, but not within the regions of `forebay.deferred_interrupts`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Final, TypeAlias

# Raises in the thread with this id; false if there is none.
RaiseIn: TypeAlias = Callable[[ctypes.c_ulong, type[BaseException]], bool]
# No thread has this id, not even one that is being started, whose id is 0 until it runs.
_HIDDEN: Final = 1


class InterruptibleThread:
    """The current thread, and an interrupt that waits for the end of its region.

    `_target` is the id under which it is interrupted. It is a C integer because the one C call that raises
    reads it too, and keeps the interpreter's lock all the time. So a thread is either hidden before that
    call, which then finds no thread, or it is interrupted before it hides.
    """

    __slots__ = ("_deferred", "_id", "_lock", "_raise_in", "_target", "depth")

    def __init__(self, raise_in: RaiseIn) -> None:
        self._raise_in = raise_in
        self._id: int = get_ident()
        self._target = ctypes.c_ulong(self._id)
        self._lock = Lock()
        self._deferred: type[BaseException] | None = None
        self.depth: int = 0

    def interrupt(self, kind: type[BaseException]) -> None:
        """Raise in the thread at once, or at the end of its region. To be called by another thread."""
        # Under the lock, so that the thread does not check for a deferred interrupt between these two lines.
        with self._lock:
            if not self._raise_in(self._target, kind):
                self._deferred = kind

    def start_over(self) -> None:
        """Be visible, with nothing deferred. For the thread itself, while no other thread interrupts it."""
        self.depth, self._deferred = 0, None
        self._target.value = self._id

    # Called by regions

    def hold(self) -> None:
        self._target.value = _HIDDEN
        # From here on nothing is raised, but one may have been just before. From Python 3.13 on, a check that
        # lets another thread run does not hear what that thread has raised: the next check does.
        try:
            _check_for_interrupts()
        except BaseException:
            self._target.value = self._id
            raise

    def listen(self) -> None:
        # Still hidden, so no interrupt is heard between taking the lock and giving it back. While it is held
        # none is raised, so an interrupt is either deferred before this or raised after it, and never both.
        with self._lock:
            deferred, self._deferred = self._deferred, None
            self._target.value = self._id
        if deferred is not None:
            raise deferred

    def check(self) -> None:
        with self._lock:  # hidden, as above
            deferred, self._deferred = self._deferred, None
        if deferred is not None:
            raise deferred

    def listen_later(self) -> None:
        self._target.value = self._id


def _check_for_interrupts() -> None:
    """Do nothing: CPython checks when a function begins."""
