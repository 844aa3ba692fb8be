"""The one bridge between coroutines and the blocking core."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Run blocking calls on one named thread so that coroutines can await them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: ThreadPoolExecutor | None = None
        self._pid = 0

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Here, because most programs that enqueue have no event loop, and loading asyncio takes 25 ms.
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._running(), partial(call, *args, **kwargs))

    def _running(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: the child starts one of its own.
        if self._thread is None or self._pid != os.getpid():
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as above

            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            self._pid = os.getpid()
        return self._thread

    def close(self) -> None:
        if self._thread is not None and self._pid == os.getpid():
            self._thread.shutdown()
        self._thread = None
