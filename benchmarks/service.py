"""The service over HTTP, one server process and its clients on this machine: `make bench WHAT=service`.

- Batches: four connections, each of which enqueues 100 jobs, claims as many and settles them, and so on.
- Single enqueues: as many as 32 connections get answered; then 750 a second, each sent at its time whatever
  became of the one before, and how long the answers take.
- Pick-up: a client waits in a long poll, another enqueues one job, and what is measured is the time from the
  beginning of the enqueue to the moment at which the first has the job in its hand.

Beside each the processor time of the server for a job. The client is a bare socket, because the libraries for
HTTP would take as much of the machine as the server. What it does not show: a network, TLS, API keys.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, Self

import msgspec

from benchmarks.measurements import ARGUMENT, Measurement, at_least, at_most, machine, parser, show, write
from tests.servers import Postgres

QUEUE: Final = "bench"
BATCH: Final = 100
BATCHES_GOAL: Final = 5_000
SINGLES_GOAL: Final = 1_500
SINGLE_GOAL_MS: Final = 10.0
PICKUP_GOAL_MS: Final = 15.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Connection:
    """One connection that is kept, and one request at a time on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: Any) -> Any:
        data = msgspec.json.encode(body)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        if not answered.startswith(b"HTTP/1.1 20"):
            raise AssertionError(answer.decode())
        return msgspec.json.decode(answer)

    def close(self) -> None:
        self._writer.close()


class Server:
    """`forebay server` as a process."""

    def __init__(self, url: str) -> None:
        forebay = [sys.executable, "-m", "forebay"]
        subprocess.run([*forebay, "migrate", "--url", url], check=True, stdout=subprocess.DEVNULL)
        create = [*forebay, "queues", "create", QUEUE, "--url", url]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        self._process = subprocess.Popen(
            [*forebay, "server", "--port", "0", "--url", url], stdout=subprocess.PIPE, text=True
        )
        if self._process.stdout is None:
            raise AssertionError
        self.port = int(self._process.stdout.readline().rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """What it has used of the processor so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


class Span:
    """How long something took, by the clock and by the server's processor."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began, self._cpu = time.monotonic(), server.cpu_seconds()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def cpu_us(self, jobs: int) -> float:
        return (self._server.cpu_seconds() - self._cpu) * 1_000_000 / jobs


def a_job() -> dict[str, Any]:
    return {"task": "noop", "queue": QUEUE, "args": [ARGUMENT]}


async def circle(connection: Connection, rounds: int) -> None:
    """Enqueue, claim and settle batches."""
    for _ in range(rounds):
        await connection.post("/v1/jobs/batch", {"jobs": [a_job()] * BATCH})
        claim = {"queues": [QUEUE], "limit": BATCH}
        jobs = (await connection.post("/v1/claim", claim))["jobs"]
        outcomes = [{"id": job["id"], "lease": job["lease"], "result": None} for job in jobs]
        settled = (await connection.post("/v1/settle", {"outcomes": outcomes}))["settled"]
        if not all(one["is_kept"] for one in settled):
            raise AssertionError("a lease was lost")


async def batches(server: Server, rounds: int) -> list[Measurement]:
    connections = [await Connection.to(server.port) for _ in range(4)]
    await circle(connections[0], 3)
    span = Span(server)
    await asyncio.gather(*(circle(one, rounds) for one in connections))
    jobs = len(connections) * rounds * BATCH
    speed = jobs / span.seconds()
    for one in connections:
        one.close()
    return [
        Measurement(
            "batches of 100: enqueue, claim, settle",
            speed,
            "jobs/s",
            goals=(at_least(speed, BATCHES_GOAL, "jobs/s"),),
        ),
        Measurement("  processor time of the server", span.cpu_us(jobs), "us/job"),
    ]


async def singles(server: Server, count: int) -> list[Measurement]:
    connections = [await Connection.to(server.port) for _ in range(32)]

    async def enqueue(connection: Connection, times: int) -> None:
        for _ in range(times):
            await connection.post("/v1/jobs", a_job())

    span = Span(server)
    await asyncio.gather(*(enqueue(one, count // len(connections)) for one in connections))
    speed = count / span.seconds()
    cpu = span.cpu_us(count)
    took = await paced(connections, SINGLES_GOAL / 2, count // 2)
    p99 = quantiles(took, n=100)[98] * 1_000
    for one in connections:
        one.close()
    return [
        Measurement("single enqueues", speed, "jobs/s", goals=(at_least(speed, SINGLES_GOAL, "jobs/s"),)),
        Measurement("  processor time of the server", cpu, "us/job"),
        Measurement("single enqueues at 750/s, p99", p99, "ms", goals=(at_most(p99, SINGLE_GOAL_MS, "ms"),)),
    ]


async def paced(connections: list[Connection], rate: float, count: int) -> list[float]:
    """The seconds that requests take which are sent at their times; one that finds no connection waits for
    it, and that counts."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for one in connections:
        free.put_nowait(one)
    took: list[float] = []

    async def enqueue(at: float) -> None:
        connection = await free.get()
        await connection.post("/v1/jobs", a_job())
        took.append(time.monotonic() - at)
        free.put_nowait(connection)

    async with asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(count):
            at = began + number / rate
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            group.create_task(enqueue(at))
    return took


async def pickups(server: Server, count: int) -> list[Measurement]:
    waiting, enqueuing = await Connection.to(server.port), await Connection.to(server.port)
    while jobs := (await waiting.post("/v1/claim", {"queues": [QUEUE], "limit": 1_000, "wait_seconds": 0}))[
        "jobs"
    ]:
        outcomes = [{"id": job["id"], "lease": job["lease"]} for job in jobs]
        await waiting.post("/v1/settle", {"outcomes": outcomes})
    took: list[float] = []
    for _ in range(count):
        claim = asyncio.create_task(waiting.post("/v1/claim", {"queues": [QUEUE]}))
        await asyncio.sleep(0.01)
        began = time.monotonic()
        await enqueuing.post("/v1/jobs", a_job())
        [job] = (await claim)["jobs"]
        took.append(time.monotonic() - began)
        await waiting.post("/v1/settle", {"outcomes": [{"id": job["id"], "lease": job["lease"]}]})
    p99 = quantiles(took, n=100)[98] * 1_000
    waiting.close()
    enqueuing.close()
    return [Measurement("pick-up by long poll, p99", p99, "ms", goals=(at_most(p99, PICKUP_GOAL_MS, "ms"),))]


async def measured(server: Server, *, quick: bool) -> list[Measurement]:
    part = 5 if quick else 1
    return [
        *await batches(server, 50 // part),
        *await singles(server, 6_400 // part),
        *await pickups(server, 300 // part),
    ]


@contextmanager
def addresses() -> Iterator[dict[str, str]]:
    """A store of each engine."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = Postgres(fsync="on", synchronous_commit="on", full_page_writes="on")
        stack.callback(postgres.close)
        yield {"SQLite": f"sqlite:///{folder}/jobs.db", "PostgreSQL": postgres.url("postgres")}


def main() -> int:
    options = parser(__doc__).parse_args()
    before = machine()
    measurements: list[Measurement] = []
    with addresses() as urls:
        for engine, url in urls.items():
            server = Server(url)
            try:
                found = asyncio.run(measured(server, quick=options.quick))
            finally:
                server.close()
            show(f"The service on {engine}", found)
            measurements += found
    write(options.json, before, measurements)
    return 0 if all(goal.is_met for one in measurements for goal in one.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
