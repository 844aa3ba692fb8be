"""Blocking work beside an event loop, on which the connection lives that it works with."""

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
    """One piece of blocking work on a thread of its own; what it has to await it sends to the loop.

    A thread for each and no pool: a statement may wait for the key that another such transaction has taken,
    and that one may need a thread to go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: Future[Any] | None = None
        self._is_cancelled = False

    async def run(self, work: Callable[[], T]) -> T:
        """What the work answers. If this is cancelled, the work is as well, and has ended when this raises:
        nobody uses the connection behind its owner's back."""
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
            done.exception()  # looked at, so that nobody misses it
            raise

    def _work(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        try:
            answer = work()
        except BaseException as exc:
            # A coroutine cannot raise StopIteration, nor a cancel that nobody asked of it.
            error = RuntimeError(repr(exc)) if isinstance(exc, StopIteration) else exc
            self._loop.call_soon_threadsafe(done.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(done.set_result, answer)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._under_way is not None:
            self._under_way.cancel()

    def wait_for(self, call: Callable[[], Coroutine[Any, Any, T]], *, even_if_cancelled: bool = False) -> T:
        """From the thread: have this awaited on the loop. After a cancel only what is done
        `even_if_cancelled`, to clean
        up, still is; the rest raises."""
        if self._is_cancelled and not even_if_cancelled:
            raise BridgeCancelled
        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        self._under_way = None if even_if_cancelled else future
        # First kept, then looked; `_cancel` says so first and then looks. So one of the two sees the other.
        if self._is_cancelled and not even_if_cancelled:
            future.cancel()
        return future.result()


class BridgeCancelled(BaseException):
    """Nobody waits for this work any more."""
