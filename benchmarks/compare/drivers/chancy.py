"""Chancy with its asyncio executor and eager polling; it writes completions once a second."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any

import uvloop
from chancy import Chancy, Queue, Worker
from chancy.job import job

from benchmarks.compare.notes import note

URL = os.environ["COMPARE_URL"]
EXECUTOR = "chancy.executors.asyncex.AsyncExecutor"
app: Any = None


@job(queue="default")
async def noop(*, argument: dict) -> None:  # type: ignore[type-arg]
    note(argument["t"])


def setup() -> None:
    async def migrated() -> None:
        async with Chancy(URL) as opened:
            await opened.migrate()

    asyncio.run(migrated())


async def open() -> None:
    global app  # noqa: PLW0603
    app = Chancy(URL)
    await app.__aenter__()
    await app.declare(Queue("default", concurrency=1, executor=EXECUTOR), upsert=False)


async def enqueue(argument: dict[str, Any]) -> None:
    await app.push(noop.job.with_kwargs(argument=argument))


async def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    jobs = [noop.job.with_kwargs(argument=argument) for argument in arguments]
    async for _ in app.push_many(jobs, batch_size=1_000):
        pass


async def main() -> None:
    logging.disable(logging.WARNING)
    queue = Queue("default", concurrency=1_000, executor=EXECUTOR, polling_interval=1, eager_polling=True)
    async with Chancy(URL) as opened:
        await opened.declare(queue, upsert=True)
        async with Worker(opened) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    # The jobs name the function by its module, and that is not the one that runs as a program.
    uvloop.run(main())
