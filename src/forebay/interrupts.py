"""Defer interrupts of a task thread while Forebay's own code runs on it.

A thread worker stops a task by an asynchronous exception (`PyThreadState_SetAsyncExc`). CPython raises it at
the next check: when a Python function begins, after most calls, and at each backward jump. That is fine in
the task's own code. In ours it is not:

- An exception between `acquire()` and `try` leaves a lock locked for ever. `with lock:` has the same gap on
  Python 3.14, where the call of `__enter__` ends with a check. A `Condition`, an `Event`, a logging handler
  and a thread pool have it on all versions, because they take their locks in Python code.
- An exception inside a store call leaves a half-read answer in a connection, an open transaction, a pipeline
  mode that is not left, or a memory store of which one index knows a job and another does not.

Drivers and the standard library take such locks too, so no care with single locks is enough. Instead, this
code runs in an `uninterrupted` region. An interrupt that comes meanwhile waits, and is raised where the
region ends. A region is for work that ends soon: one store call, one change under a lock. Waits that may be
long (for a result, for a hint) are made in slices, with the end of a region between two of them. Whatever is
taken in a region is given back in the same one: an interrupt may come between two regions.

Why no interrupt arrives within a region. `Interruptible.hold` first hides the thread, so that the executor
cannot raise in it, and then makes CPython check. One that was raised before is heard by that check, and the
region is not entered. So nothing is on its way when `hold` returns, and nothing is raised before `listen`.
An interrupt at the end of a region is an ordinary exception, raised by the thread itself in `__exit__`.

A thread without an `Interruptible` (any thread that is no task thread) pays two calls, 0.1 us each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from math import inf
from threading import Condition, Lock, local
from time import monotonic
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SLICE_SECONDS: Final = 0.05


class Interruptible(Protocol):
    """A thread that an executor may interrupt. `depth` counts the regions that it is in."""

    depth: int

    def hold(self) -> None:
        """Hide the thread: no interrupt is raised in it from then on, and none is on its way. Raises one that
        came before."""
        ...

    def listen(self) -> None:
        """Let interrupts in again, and raise the one that came meanwhile."""
        ...

    def check(self) -> None:
        """Stay hidden, and raise the interrupt that came meanwhile."""
        ...

    def listen_later(self) -> None:
        """Let interrupts in again; the one that came meanwhile is raised at the end of the next region."""
        ...


class _CurrentThread(local):
    thread: Interruptible | None = None


_current: Final = _CurrentThread()


class UninterruptedRegion:
    """A region in which the current thread is not interrupted. It may be entered again inside itself.

    Use `uninterrupted`, before the lock: `with uninterrupted, self._lock:`. Never across an `await`.
    """

    def __enter__(self) -> None:
        thread = _current.thread
        if thread is not None:
            if thread.depth == 0:
                thread.hold()
            thread.depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        thread = _current.thread
        if thread is not None:
            thread.depth -= 1
            if thread.depth == 0:
                thread.listen()

    def __call__(self, func: Callable[P, R]) -> Callable[P, R]:
        """The function, run as such a region."""

        @wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return func(*args, **kwargs)

        return call

    def check(self) -> None:
        """Raise an interrupt that has come, as an ordinary exception, except in a region inside another."""
        thread = _current.thread
        if thread is not None and thread.depth == 1:
            thread.check()

    def leave_quietly(self) -> None:
        """End a region where an exception would be lost, as in a function that Python calls at a fork."""
        thread = _current.thread
        if thread is not None:
            thread.depth -= 1
            if thread.depth == 0:
                thread.listen_later()


uninterrupted: Final = UninterruptedRegion()


class _LockRegion:
    __slots__ = ("_lock",)

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        with uninterrupted:
            self._lock.acquire()
            uninterrupted.__enter__()  # ends with the lock

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.release()
        uninterrupted.__exit__(kind, error, trace)


def hold_lock(lock: Lock) -> AbstractContextManager[object]:
    """The same as `with uninterrupted, lock:` where every tenth of a microsecond counts: a thread that is no
    task thread takes the bare lock."""
    return lock if _current.thread is None else _LockRegion(lock)


class _CheckingHandle:
    def __init__(self, handle: object) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._handle, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            uninterrupted.check()
            return answer

        return call


def check_between_calls(handle: T) -> T:
    """Return a store handle that checks for interrupts after each call, for a region with many calls."""
    return cast(T, _CheckingHandle(handle))


def wait_for(condition: Condition, predicate: Callable[[], bool], seconds: float | None) -> None:
    """Wait for something under a condition that the caller does not hold, at most `seconds`.

    A task thread waits in slices, each in a region of its own: interrupts are raised between two slices.
    """
    ends = inf if seconds is None else monotonic() + seconds
    most = inf if _current.thread is None else SLICE_SECONDS
    while True:
        left = min(ends - monotonic(), most)
        with uninterrupted, condition:
            if condition.wait_for(predicate, None if left == inf else left):
                return
        if monotonic() >= ends:
            return


def set_interruptible(thread: Interruptible | None) -> None:
    """Called by an executor on a thread of its own, before the first task. None: no longer."""
    _current.thread = thread
