"""Thread on which coroutines run blocking calls: the only bridge between asyncio and the blocking core."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from forebay.deferred_interrupts import uninterrupted

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")


class OffloadThread:
    """Runs blocking calls on one named thread, so that coroutines can await them, until it is closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        # By process id: threads do not survive a fork, and the child starts its own. The value is None if
        # this object was closed before it had a thread.
        self._executors: dict[int, ThreadPoolExecutor | None] = {}

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._submit(partial(call, *args, **kwargs))
        # `close` runs after the store is closed, so the call fails at once with the reason.
        return call(*args, **kwargs) if future is None else await future

    def _submit(self, call: Callable[[], T]) -> Awaitable[T] | None:
        # Imported here: most programs that enqueue have no event loop, and loading asyncio takes 25 ms.
        import asyncio  # noqa: PLC0415

        # A pool takes a lock that all pools of this process share, and a task may have its own event loop.
        with uninterrupted:
            running = self._get_executor()
            try:
                return None if running is None else asyncio.get_running_loop().run_in_executor(running, call)
            except RuntimeError:  # closed, perhaps between these two lines
                return None

    def _get_executor(self) -> ThreadPoolExecutor | None:
        if os.getpid() not in self._executors:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as above

            # Two event loops, or a loop and `close`, may arrive at the same time. `setdefault` decides in one
            # step; the losing executor is dropped before it has started a thread.
            executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            return self._executors.setdefault(os.getpid(), executor)
        return self._executors[os.getpid()]

    def close(self) -> None:
        """End the thread after its submitted calls; closing twice, or before the start, is fine."""
        with uninterrupted:
            running = self._executors.setdefault(os.getpid(), None)
            if running is not None:
                running.shutdown()
