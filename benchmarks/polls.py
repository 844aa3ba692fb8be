"""Ten thousand clients that wait for jobs at one server: `make bench-polls`.

Each holds a connection on which a claim waits for 20 s, and asks again when it is over. Shown are the memory
of the server for each of them, the processor time that it takes while nothing happens, and how many
transactions the database sees a second without them and with them. Then as many jobs are enqueued as there
are clients, and it is shown how long it takes until each has one. What it does not show: a network, TLS, API
keys.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.figures import Figure, at_most, machine, parser, show, write
from benchmarks.service import QUEUE, Connection, Server, a_job
from tests.servers import Postgres

CLIENTS: Final = 10_000
AT_ONCE: Final = 500  # connections that are opened together; the server lets more wait than that
WATCHED_SECONDS: Final = 20.0
MEMORY_GOAL_KB: Final = 100.0


def memory_kb(server: Server) -> int:
    """What of the server is in memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


class Watched:
    """What a server and its database do in a span of time."""

    def __init__(self, server: Server, database: psycopg.Connection[tuple[int]]) -> None:
        self._server = server
        self._database = database

    async def each_second(self, seconds: float) -> tuple[float, float]:
        """Processor time and transactions a second."""
        began, cpu, done = time.monotonic(), self._server.cpu_seconds(), self._transactions()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        return (self._server.cpu_seconds() - cpu) / took, (self._transactions() - done) / took

    def _transactions(self) -> int:
        # Sessions tell what they have done about once a second.
        row = self._database.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchone()
        if row is None:
            raise AssertionError
        return row[0]


async def waiting(connection: Connection) -> str:
    """Ask until there is a job; its id."""
    while True:
        for job in (await connection.post("/v1/claim", {"queues": [QUEUE]}))["jobs"]:
            return str(job["id"])


async def measured(server: Server, watched: Watched, clients: int, seconds: float) -> list[Figure]:
    cpu_alone, transactions_alone = await watched.each_second(seconds)
    before = memory_kb(server)
    polls: list[asyncio.Task[str]] = []
    while len(polls) < clients:
        opened = await asyncio.gather(
            *(Connection.to(server.port) for _ in range(min(AT_ONCE, clients - len(polls))))
        )
        polls += [asyncio.create_task(waiting(one)) for one in opened]
    await asyncio.sleep(seconds / 4)
    cpu, transactions = await watched.each_second(seconds)
    each_kb = (memory_kb(server) - before) / clients
    began = time.monotonic()
    producer = await Connection.to(server.port)
    for first in range(0, clients, 1_000):
        await producer.post("/v1/jobs/batch", {"jobs": [a_job()] * min(1_000, clients - first)})
    ids = await asyncio.gather(*polls)
    took = time.monotonic() - began
    if len(set(ids)) != clients:
        raise AssertionError("a job was given to two clients")
    return [
        Figure(
            "memory for each client that waits",
            each_kb,
            "KB",
            goals=(at_most(each_kb, MEMORY_GOAL_KB, "KB"),),
        ),
        Figure("processor of the server, nobody waits", cpu_alone * 100, "%"),
        Figure(f"processor of the server, {clients:,} wait", cpu * 100, "%"),
        Figure("transactions, nobody waits", transactions_alone, "/s"),
        Figure(f"transactions, {clients:,} wait", transactions, "/s"),
        Figure("a job for each of them, from the first enqueue", took, "s"),
    ]


def main() -> int:
    options = parser(__doc__).parse_args()
    clients, seconds = (500, 5.0) if options.quick else (CLIENTS, WATCHED_SECONDS)
    before = machine()
    postgres = Postgres()
    try:
        server = Server(postgres.url("postgres"))
        try:
            with psycopg.connect(postgres.url("postgres"), autocommit=True) as database:
                figures = asyncio.run(measured(server, Watched(server, database), clients, seconds))
        finally:
            server.close()
    finally:
        postgres.close()
    show(f"{clients:,} clients that wait, one server on PostgreSQL", figures)
    write(options.json, before, figures)
    return 0 if all(goal.is_met for one in figures for goal in one.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
