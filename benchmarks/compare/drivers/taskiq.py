"""taskiq on Redis streams, without a result backend, which is its default."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from taskiq_redis import RedisStreamBroker

from benchmarks.compare.notes import note

broker = RedisStreamBroker(os.environ["COMPARE_URL"], consumer_id="0")


@broker.task
async def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


@broker.task
def noop_sync(argument: dict[str, Any]) -> None:
    note(argument["t"])


async def open() -> None:
    await broker.startup()


async def enqueue(argument: dict[str, Any]) -> None:
    await noop.kiq(argument)


async def mixed(arguments: Sequence[dict[str, Any]]) -> None:
    for number, argument in enumerate(arguments):
        await (noop, noop_sync)[number % 2].kiq(argument)
