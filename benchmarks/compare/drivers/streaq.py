"""streaq on Redis streams, results off."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from streaq import Worker

from benchmarks.compare.notes import note

worker = Worker(redis_url=os.environ["COMPARE_URL"], concurrency=64)


@worker.task(ttl=0)
async def noop(argument: dict) -> None:  # type: ignore[type-arg]
    note(argument["t"])


async def open() -> None:
    await worker.__aenter__()


async def enqueue(argument: dict[str, Any]) -> None:
    await noop.enqueue(argument)


async def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    await worker.enqueue_many([noop.enqueue(argument) for argument in arguments])
