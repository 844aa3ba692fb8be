"""Ten thousand clients that wait for jobs at one server: `make bench WHAT=polls`.

Each holds a connection on which a claim waits for 20 s, and asks again when it is over. Shown are the memory
of the server for each of them, the processor time that it takes while nothing happens, and how many
transactions the database sees a second without them and with them. Then as many jobs are enqueued as there
are clients, and it is shown how long it takes until each has one. Clients that cannot connect in time, or get
no job, are counted and reported; whatever happens there is a report within some minutes. What it does not
show: a network, TLS, API keys.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.measurements import Measurement, at_least, at_most, machine, parser, show, write
from benchmarks.service import QUEUE, Connection, Server, a_job
from forebay.service.server import allow_connections
from tests.servers import Postgres

CLIENTS: Final = 10_000
AT_ONCE: Final = 100  # connections that are opened together; the server lets more wait than that
CONNECTS_WITHIN_SECONDS: Final = 20.0  # each of them
ALL_CONNECT_WITHIN_SECONDS: Final = 120.0
ALL_SERVED_WITHIN_SECONDS: Final = 120.0
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


async def connected(port: int) -> Connection | None:
    """A connection; None if there is none in time."""
    try:
        return await asyncio.wait_for(Connection.to(port), CONNECTS_WITHIN_SECONDS)
    except (OSError, TimeoutError):
        return None


async def polls_of(port: int, clients: int) -> list[asyncio.Task[str]]:
    """Clients that wait, as many as have found their way in."""
    polls: list[asyncio.Task[str]] = []
    until = time.monotonic() + ALL_CONNECT_WITHIN_SECONDS
    for first in range(0, clients, AT_ONCE):
        if time.monotonic() > until:
            break
        # The next ones come when these are in, so the rate is the server's own.
        opened = await asyncio.gather(*(connected(port) for _ in range(min(AT_ONCE, clients - first))))
        polls += [asyncio.create_task(waiting(one)) for one in opened if one is not None]
    return polls


async def served(port: int, polls: Sequence[asyncio.Task[str]]) -> list[str]:
    """Enqueue a job for each; the ids that clients have got in time."""
    producer = await Connection.to(port)
    for first in range(0, len(polls), 1_000):
        await producer.post("/v1/jobs/batch", {"jobs": [a_job()] * min(1_000, len(polls) - first)})
    done, late = await asyncio.wait(polls, timeout=ALL_SERVED_WITHIN_SECONDS)
    for one in late:
        one.cancel()
    return [one.result() for one in done if one.exception() is None]


async def measured(server: Server, watched: Watched, clients: int, seconds: float) -> list[Measurement]:
    cpu_alone, transactions_alone = await watched.each_second(seconds)
    before = memory_kb(server)
    polls = await polls_of(server.port, clients)
    if not polls:
        raise AssertionError("no client could connect")
    await asyncio.sleep(seconds / 4)
    cpu, transactions = await watched.each_second(seconds)
    each_kb = (memory_kb(server) - before) / len(polls)
    began = time.monotonic()
    ids = await served(server.port, polls)
    took = time.monotonic() - began
    if len(set(ids)) != len(ids):
        raise AssertionError("a job was given to two clients")
    share = len(ids) / clients
    return [
        Measurement(
            "memory for each client that waits",
            each_kb,
            "KB",
            goals=(at_most(each_kb, MEMORY_GOAL_KB, "KB"),),
        ),
        Measurement("clients that got a job", share * 100, "%", goals=(at_least(share * 100, 100, "%"),)),
        Measurement("processor of the server, no claim waits", cpu_alone * 100, "%"),
        Measurement(f"processor of the server, {len(polls):,} wait", cpu * 100, "%"),
        Measurement("transactions, no claim waits", transactions_alone, "/s"),
        Measurement(f"transactions, {len(polls):,} wait", transactions, "/s"),
        Measurement("a job for each of them, from the first enqueue", took, "s"),
    ]


def main() -> int:
    options = parser(__doc__).parse_args()
    clients, seconds = (500, 5.0) if options.quick else (CLIENTS, WATCHED_SECONDS)
    before = machine()
    allow_connections()
    postgres = Postgres()
    try:
        server = Server(postgres.url("postgres"))
        try:
            with psycopg.connect(postgres.url("postgres"), autocommit=True) as database:
                measurements = asyncio.run(measured(server, Watched(server, database), clients, seconds))
        finally:
            server.close()
    finally:
        postgres.close()
    show(f"{clients:,} clients that wait, one server on PostgreSQL", measurements)
    write(options.json, before, measurements)
    return 0 if all(goal.is_met for one in measurements for goal in one.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
