"""Worker inside an ASGI program: FastAPI, Starlette, Litestar.

    queue = Forebay("sqlite:///jobs.db")
    app = FastAPI(lifespan=lifespan(queue))

They all take a function that returns an asynchronous context manager for the life of their app, so one
function fits all. This module imports none of these frameworks. Views find the queue as `app.state.forebay`;
dependencies of the frameworks are in `integrations.fastapi` and `integrations.litestar`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

from forebay.app.app import Forebay
from forebay.errors import ConfigError

STATE: Final = "forebay"  # the name of the queue in `app.state`
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    queue: Forebay,
    *others: Lifespan,
    works: bool = True,
    threads: int = 4,
    coroutines: int = 100,
    queues: Sequence[str] | Mapping[str, int | None] | None = None,
) -> Lifespan:
    """Run jobs inside a web app, from before its first request until after its last one.

    Jobs have threads and an event loop of their own. At the end running jobs are waited for as
    `app.run_worker()` does; the options are the same. A server with several processes has a worker in each.
    The store stays open, since a test may start one app several times. With `works=False` no job runs here.

    `others` are further lifespan functions, such as one of your own, or that of a `Dashboard`: they begin
    after the worker and end before it, and the state that they yield for requests is handed on.
    """
    if not isinstance(queue, Forebay):
        raise ConfigError(f"lifespan takes the Forebay object, not {queue!r:.60}")

    @asynccontextmanager
    async def living(app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        setattr(app.state, STATE, queue)
        state: dict[str, Any] = {}
        async with AsyncExitStack() as stack:
            if works:
                await stack.enter_async_context(working())
            for other in others:
                state |= await stack.enter_async_context(other(app)) or {}
            yield state or None

    @asynccontextmanager
    async def working() -> AsyncIterator[None]:
        worker = queue.run_worker(threads=threads, coroutines=coroutines, queues=queues)
        # Off the loop: hooks of the program, the first access to the store and the last jobs may take long.
        await asyncio.to_thread(worker.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(worker.__exit__, None, None, None)

    return living


def queue_of(app: Any) -> Forebay:
    """Return the queue of a web app with a `lifespan`; raise ConfigError for another app."""
    queue = getattr(app.state, STATE, None)
    if not isinstance(queue, Forebay):
        raise ConfigError("this web app has no queue: make it with lifespan=lifespan(queue)")
    return queue
