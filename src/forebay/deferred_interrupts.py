"""Deferred interrupts: no interrupt of a task thread while Forebay's own code runs on it.

A thread worker stops a task by an asynchronous exception (`PyThreadState_SetAsyncExc`). CPython raises it at
the next check: when a Python function begins, after most calls, and at each backward jump. That is fine in
the task's own code. In Forebay's code it is not:

- An exception between `acquire()` and `try` leaves a lock locked for ever. `with lock:` has the same gap on
  Python 3.14, where the call of `__enter__` ends with a check. A `Condition`, an `Event`, a logging handler
  and a thread pool have it on all versions, because they take their locks in Python code.
- An exception inside a store call leaves a half-read answer in a connection, an open transaction or an open
  pipeline mode. A memory store may be left with a job in one index and not in another.

Drivers and the standard library take such locks too, so careful handling of single locks is not enough.
Instead, this code runs in an `uninterrupted` region. An interrupt that arrives in a region is deferred, and
raised at its end. A region is for short work: one store call, one change under a lock. Waits that may be long
(for a result, for a wake-up) are made in slices, with the end of a region between two of them. A resource
that is taken in a region is released in the same one: an interrupt may come between two regions.

Why no interrupt arrives within a region: `Interruptible.hold` first hides the thread, so that the executor
cannot raise in it, and then makes CPython check. An interrupt that was raised before is delivered by that
check, and the region is not entered. So none is pending when `hold` returns, and none is raised before
`listen`. An interrupt at the end of a region is an ordinary exception, raised by the thread itself in
`__exit__`.

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
    """A thread that an executor may interrupt. `depth` counts its nested regions."""

    depth: int

    def hold(self) -> None:
        """Hide the thread: from then on no interrupt is raised in it, and none is pending. Raises one that
        came before."""
        ...

    def listen(self) -> None:
        """Allow interrupts again, and raise a deferred one."""
        ...

    def check(self) -> None:
        """Stay hidden, and raise a deferred interrupt."""
        ...

    def listen_later(self) -> None:
        """Allow interrupts again; a deferred one is raised at the end of the next region."""
        ...


class _CurrentThread(local):
    thread: Interruptible | None = None


_current: Final = _CurrentThread()


class UninterruptedRegion:
    """A region in which the current thread is not interrupted. Regions may be nested.

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
        """Return the function, run in a region."""

        @wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return func(*args, **kwargs)

        return call

    def check(self) -> None:
        """Raise a deferred interrupt as an ordinary exception, except in a nested region."""
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
            uninterrupted.__enter__()  # left when the lock is released

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.release()
        uninterrupted.__exit__(kind, error, trace)


def hold_lock(lock: Lock) -> AbstractContextManager[object]:
    """Return a fast equivalent of `with uninterrupted, lock:`. A thread that is no task thread takes the bare
    lock, where every tenth of a microsecond counts."""
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
    """Return a store handle that raises deferred interrupts after each call, for a region with many calls."""
    return cast(T, _CheckingHandle(handle))


def wait_for(condition: Condition, predicate: Callable[[], bool], seconds: float | None) -> None:
    """Wait for a predicate under a condition that the caller does not hold, at most this long.

    On a task thread it waits in slices, each in a region of its own: an interrupt is raised between two of
    them.
    """
    ends = inf if seconds is None else monotonic() + seconds
    longest = inf if _current.thread is None else SLICE_SECONDS
    while True:
        left = min(ends - monotonic(), longest)
        with uninterrupted, condition:
            if condition.wait_for(predicate, None if left == inf else left):
                return
        if monotonic() >= ends:
            return


def set_interruptible(thread: Interruptible | None) -> None:
    """Set the interruptible of the current thread: by an executor, before its first task. None removes it."""
    _current.thread = thread
