"""Bridge from blocking code to a connection that lives on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class AsyncBridge:
    """Blocking work on a thread of its own, which sends its coroutines to the loop.

    One thread per work and no pool: a statement may wait for the key that another such transaction has taken,
    and that transaction may need a thread to go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: Future[Any] | None = None
        self._is_cancelled = False

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work and return its result.

        A cancel of this coroutine cancels the work too, and waits for its end: the connection is not used
        any more when the owner gets it back.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        context = copy_context()
        Thread(target=context.run, args=(self._work, work, done), name="forebay-within", daemon=True).start()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._cancel()
            while not done.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            done.exception()  # retrieved, so that asyncio logs no unretrieved exception
            raise

    def _work(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        try:
            result = work()
        except BaseException as exc:
            # A coroutine cannot raise StopIteration.
            error = RuntimeError(repr(exc)) if isinstance(exc, StopIteration) else exc
            self._loop.call_soon_threadsafe(done.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(done.set_result, result)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._running is not None:
            self._running.cancel()

    def wait_for(self, call: Callable[[], Coroutine[Any, Any, T]], *, even_if_cancelled: bool = False) -> T:
        """Await a coroutine on the loop; called from the thread.

        After a cancel only clean-up with `even_if_cancelled` still runs; other calls raise BridgeCancelled.
        """
        if self._is_cancelled and not even_if_cancelled:
            raise BridgeCancelled
        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        self._running = None if even_if_cancelled else future
        # Here the future is stored before the flag is read; `_cancel` sets the flag before it reads the
        # future. So one of the two sees the other.
        if self._is_cancelled and not even_if_cancelled:
            future.cancel()
        return future.result()


class BridgeCancelled(BaseException):
    """The caller has cancelled this work."""
