"""Procrastinate with psycopg."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.compare.notes import note

URL = os.environ["COMPARE_URL"]
FILL = """
insert into procrastinate_jobs (queue_name, task_name, priority, args)
select 'default', 'noop', 0, '{"argument": {"t": 0.0}}' from generate_series(1, %s)
"""
app = App(connector=PsycopgConnector(conninfo=URL))
logging.getLogger("procrastinate").setLevel(logging.ERROR)


@app.task(name="noop")
async def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


@app.task(name="noop_sync")
def noop_sync(argument: dict[str, Any]) -> None:
    note(argument["t"])


def setup() -> None:
    with App(connector=SyncPsycopgConnector(conninfo=URL)).open() as opened:
        opened.schema_manager.apply_schema()


async def open() -> None:
    await app.open_async()


async def enqueue(argument: dict[str, Any]) -> None:
    await noop.defer_async(argument=argument)


async def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    await noop.batch_defer_async(*[{"argument": argument} for argument in arguments])


async def mixed(arguments: Sequence[dict[str, Any]]) -> None:
    for start, task in enumerate((noop, noop_sync)):
        await task.batch_defer_async(*[{"argument": argument} for argument in arguments[start::2]])


async def fill(jobs: int) -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute(FILL, (jobs,))
        connection.execute("vacuum analyze procrastinate_jobs")
