"""PgQueuer with asyncpg and uvloop, batches of 100; a log of completions is its default."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.compare.notes import argument, note

URL = os.environ["COMPARE_URL"]
queries: Any = None


def setup() -> None:
    program = Path(sys.executable).with_name("pgq")
    subprocess.run([program, "--pg-dsn", URL, "install"], check=True, stdout=subprocess.DEVNULL)


async def open() -> None:
    global queries  # noqa: PLW0603
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))


async def enqueue(given: dict[str, Any]) -> None:
    await queries.enqueue("noop", json.dumps(given).encode())


async def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    payloads = [json.dumps(given).encode() for given in arguments]
    await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


async def fill(jobs: int) -> None:
    for _ in range(0, jobs, 10_000):
        await bulk([argument()] * 10_000)
    await (await asyncpg.connect(URL)).execute("vacuum analyze pgqueuer")


async def mixed(arguments: Sequence[dict[str, Any]]) -> None:
    payloads = [json.dumps(given).encode() for given in arguments]
    names = [("noop", "noop_sync")[number % 2] for number in range(len(payloads))]
    await queries.enqueue(names, payloads, [0] * len(payloads))


def noop_blocking(job: Any) -> None:
    note(json.loads(job.payload)["t"])


async def main() -> None:
    logging.disable(logging.WARNING)
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))

    @worker.entrypoint("noop")
    async def noop(job: Any) -> None:
        note(json.loads(job.payload)["t"])

    @worker.entrypoint("noop_sync")
    async def noop_sync(job: Any) -> None:  # it takes no blocking functions, and says to do this
        await asyncio.to_thread(noop_blocking, job)

    await worker.run(batch_size=100)


if __name__ == "__main__":
    uvloop.run(main())
