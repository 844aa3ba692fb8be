"""Threads that read and write large messages beside the event loop.

Values with tags are read and written by Python code: up to a second for 1 MiB. On the event loop that would
hold up every other client. On a thread the loop gets its turn within 5 ms, the switch interval of the
interpreter. C code writes plain JSON and MessagePack and keeps the interpreter to itself: a thread would not
help there, and 1 MiB takes a millisecond or two.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Final, ParamSpec, TypeVar

LARGE: Final = 65_536  # bytes; a thread costs 0.1 ms, and so many of them take some milliseconds
THREADS: Final = 2  # each takes its share of the interpreter from the loop

# Bytes in the body of the present request.
BODY_SIZE: Final[ContextVar[int]] = ContextVar("forebay_body_size", default=0)

P = ParamSpec("P")
T = TypeVar("T")


class Converter:
    """Threads of one service. They start with the first large message."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "forebay-converter")

    async def run(self, size: int, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that converts so many bytes: at once if they are few."""
        if size <= LARGE:
            return call(*args, **kwargs)
        return await get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))

    def close(self) -> None:
        """End the threads after what they do now. Closing twice is fine."""
        self._threads.shutdown()
