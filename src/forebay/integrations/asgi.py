"""A worker inside a program that an ASGI server runs: FastAPI, Starlette, Litestar.

    queue = Forebay("sqlite:///jobs.db")
    app = FastAPI(lifespan=lifespan(queue))

They all take a function that gives an asynchronous context manager for the life of their app, so one is
enough. Nothing of these frameworks is imported here. An app that only enqueues needs nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from forebay.app.app import Forebay
from forebay.errors import ConfigError


def lifespan(
    queue: Forebay,
    *,
    threads: int = 4,
    coroutines: int = 100,
    queues: Sequence[str] | Mapping[str, int | None] | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Run jobs inside a web app, from before its first request until after its last one.

    They have threads and an event loop of their own. At the end running jobs are waited for as
    `app.working()` does, whose options these are. A server with several processes has a worker in each. The
    store stays open, since a test may start one app several times.
    """
    if not isinstance(queue, Forebay):
        raise ConfigError(f"lifespan takes the Forebay object, not {queue!r:.60}")

    @asynccontextmanager
    async def living(_: Any) -> AsyncIterator[None]:
        working = queue.working(threads=threads, coroutines=coroutines, queues=queues)
        # Off the loop: hooks of the program, the first look at the store and the last jobs take their time.
        await asyncio.to_thread(working.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(working.__exit__, None, None, None)

    return living
