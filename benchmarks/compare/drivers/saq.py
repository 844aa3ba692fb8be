"""saq, on Redis and on PostgreSQL; it keeps each result for ten minutes, which is its default."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from saq import Queue

from benchmarks.compare.notes import note

URL = os.environ["COMPARE_URL"]
queue = Queue.from_url(URL, **({"max_size": 20} if URL.startswith("postgres") else {}))


async def noop(_context: Any, *, argument: dict[str, Any]) -> None:
    note(argument["t"])


settings = {
    "queue": queue,
    "functions": [noop],
    "concurrency": int(os.environ.get("COMPARE_CONCURRENCY", "10")),
}


def setup() -> None:
    async def connected() -> None:
        await queue.connect()
        await queue.disconnect()

    asyncio.run(connected())


async def open() -> None:
    await queue.connect()


async def enqueue(argument: dict[str, Any]) -> None:
    await queue.enqueue("noop", argument=argument)
