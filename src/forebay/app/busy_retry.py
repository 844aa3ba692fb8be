"""Retries of a call while another transaction holds a lock that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from time import monotonic, sleep
from typing import Final, TypeVar

from forebay.errors import StoreBusy

# The default lock time-out on PostgreSQL: most transactions of web requests have ended by then.
BUSY_RETRY_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.005
MAX_PAUSE_SECONDS: Final = 0.25

T = TypeVar("T")


def pauses(seconds: float | None = None) -> Iterator[float]:
    """Yield pauses between tries until the time is over; each is twice as long as the one before."""
    until, pause = monotonic() + (BUSY_RETRY_SECONDS if seconds is None else seconds), FIRST_PAUSE_SECONDS
    while (left := until - monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def retry_busy(call: Callable[[], T], busy: StoreBusy) -> T:
    """Repeat a call that has raised `busy`, on the thread of its caller and without a lock."""
    for pause in pauses():
        sleep(pause)
        try:
            return call()
        except StoreBusy as exc:
            busy = exc
    raise busy


async def retry_busy_async(call: Callable[[], Awaitable[T]], busy: StoreBusy) -> T:
    """Repeat a call as `retry_busy` does, without blocking the event loop."""
    from asyncio import sleep as async_sleep  # noqa: PLC0415 - most programs that enqueue have no event loop

    for pause in pauses():
        await async_sleep(pause)
        try:
            return await call()
        except StoreBusy as exc:
            busy = exc
    raise busy
