"""arq on Redis: results are off, it looks for jobs every half second, which is its default."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, ClassVar

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import run_worker

from benchmarks.compare.notes import note

SETTINGS = RedisSettings.from_dsn(os.environ["COMPARE_URL"])
pool: Any = None


async def noop(_context: Any, argument: dict[str, Any]) -> None:
    note(argument["t"])


class WorkerSettings:
    functions: ClassVar = [noop]
    redis_settings = SETTINGS
    keep_result = 0
    max_jobs = 100


async def open() -> None:
    global pool  # noqa: PLW0603
    pool = await create_pool(SETTINGS)


async def enqueue(argument: dict[str, Any]) -> None:
    await pool.enqueue_job("noop", argument)


def main() -> None:
    logging.disable(logging.WARNING)
    asyncio.set_event_loop(uvloop.new_event_loop())
    run_worker(WorkerSettings)


if __name__ == "__main__":
    main()
