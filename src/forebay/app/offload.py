"""The one bridge between coroutines and the blocking core."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Run blocking calls on one named thread so that coroutines can await them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: ThreadPoolExecutor | None = None
        self._pid = 0

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._running(), partial(call, *args, **kwargs))

    def _running(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: the child starts one of its own.
        if self._thread is None or self._pid != os.getpid():
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            self._pid = os.getpid()
        return self._thread

    def close(self) -> None:
        if self._thread is not None and self._pid == os.getpid():
            self._thread.shutdown()
        self._thread = None
