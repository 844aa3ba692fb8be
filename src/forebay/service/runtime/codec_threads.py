"""Threads that encode and decode large messages off the event loop.

Values with type tags are converted by Python code, which takes up to a second for 1 MiB. On the event loop
that would delay every other client. On a thread the loop runs again within 5 ms, the switch interval of the
interpreter. C code converts plain JSON and MessagePack and holds the GIL: a thread would not help there, and
1 MiB takes a millisecond or two.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Final, ParamSpec, TypeVar

LARGE: Final = 65_536  # bytes; these take some milliseconds, and a hand-over to a thread costs 0.1 ms
THREADS: Final = 2  # each takes its share of the interpreter from the loop

# Size of the current request's body in bytes.
BODY_SIZE: Final[ContextVar[int]] = ContextVar("forebay_body_size", default=0)

P = ParamSpec("P")
T = TypeVar("T")


class Converter:
    """Threads of one service, started by the first large message."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "forebay-converter")

    async def run(self, size: int, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that converts `size` bytes: inline if they are few, else on a thread."""
        if size <= LARGE:
            return call(*args, **kwargs)
        return await get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))

    def close(self) -> None:
        """End the threads after their current calls. May be called twice."""
        self._threads.shutdown()
