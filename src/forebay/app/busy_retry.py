"""Trying again while another transaction holds what a call needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from time import monotonic, sleep
from typing import Final, TypeVar

from forebay.errors import StoreBusy

# As long as PostgreSQL is waited for by default: a transaction of a web request is mostly over by then.
BUSY_RETRY_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.005
MAX_PAUSE_SECONDS: Final = 0.25

T = TypeVar("T")


def pauses(seconds: float | None = None) -> Iterator[float]:
    """Yield pauses between tries, each twice as long as the one before, until the time is over."""
    until, pause = monotonic() + (BUSY_RETRY_SECONDS if seconds is None else seconds), FIRST_PAUSE_SECONDS
    while (left := until - monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def retry_busy(call: Callable[[], T], busy: StoreBusy) -> T:
    """Repeat a call that has raised `busy`, on the thread of its caller and under no lock."""
    for pause in pauses():
        sleep(pause)
        try:
            return call()
        except StoreBusy as exc:
            busy = exc
    raise busy


async def retry_busy_async(call: Callable[[], Awaitable[T]], busy: StoreBusy) -> T:
    """`retry_busy` for coroutines; nobody else on the loop waits."""
    from asyncio import sleep as pass_by  # noqa: PLC0415 - most programs that enqueue have no event loop

    for pause in pauses():
        await pass_by(pause)
        try:
            return await call()
        except StoreBusy as exc:
            busy = exc
    raise busy
