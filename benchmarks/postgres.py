"""What the PostgreSQL store costs, beside a bare job table on the same server: `make bench-postgres`.

A server of its own is started, with fsync and synchronous_commit on. Each pair is measured alternately and
the median of the rounds counts. The bare table has a state column, one index and no promises; its drain
completes the last hundred jobs and claims the next hundred in one transaction, from the head, with SKIP
LOCKED. `--json FILE` writes the figures, `--quick` uses a tenth of the sizes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from statistics import quantiles
from typing import Final

import psycopg

from benchmarks.figures import Figure, at_least, at_most, compared, machine, parser, show, write
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.stores.opening import open_engine
from forebay.stores.protocol import Store, Want
from tests.servers import Postgres

QUEUE: Final = QueueName("default")
JOB: Final = NewJob(task="send", payload=b"x" * 109)
GATES: Final = frozenset(["task:send"])
BATCH: Final = 100
DURABLE: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}

BARE_TABLE: Final = """
drop table if exists bare;
create table bare (
  id bigint generated always as identity primary key, queue text not null, state text not null default 'p',
  rank bigint not null, payload bytea not null
);
create index on bare (queue, rank, id) where state = 'p';
"""
BARE_INSERT: Final = "insert into bare (queue, rank, payload) values ('d', 1, %s)"
BARE_MANY: Final = "copy bare (queue, rank, payload) from stdin (format binary)"
BARE_TURN: Final = """
with done as (update bare set state = 'd' where id = any(%s) returning 1)
update bare set state = 'r' where id = any(array(
  select id from bare where queue = 'd' and state = 'p' order by rank, id limit 100 for update skip locked
)) returning id, payload
"""


class Stores:
    """Stores on one server, each in a schema of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made = 0

    def new(self) -> str:
        self._made += 1
        return f"{self._url}?schema=bench_{self._made}"


def fill(store: Store, jobs: int) -> None:
    for start in range(0, jobs, 1_000):
        store.insert([JOB] * min(1_000, jobs - start))


def drain(url: str, name: str, most: float = 1e9) -> tuple[int, float, list[float]]:
    """Work until nothing is left or the time is up: jobs, seconds, and how long each exchange took."""
    store = open_engine(url).store()
    done: list[Settlement] = []
    jobs, times, began = 0, [], time.perf_counter()
    while time.perf_counter() - began < most:
        before = time.perf_counter()
        answer = store.exchange(WorkerId(name), done, [Want(QUEUE, BATCH, None, GATES)], BATCH)
        times.append(time.perf_counter() - before)
        jobs += len(answer.settled)
        if not answer.jobs and not done:
            break
        done = [decide(job, Completed(b"1"), 0.0) for job in answer.jobs]
    store.close()
    return jobs, time.perf_counter() - began, times


def speed_of_ours(stores: Stores, jobs: int, processes: int = 1) -> float:
    url = stores.new()
    store = open_engine(url).store()
    fill(store, jobs)
    store.close()
    if processes == 1:
        done, seconds, _ = drain(url, "w0")
        return done / seconds
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, range(processes)))  # started and loaded
        began = time.perf_counter()
        answers = list(pool.map(drain, [url] * processes, [f"w{n}" for n in range(processes)]))
        return sum(answer[0] for answer in answers) / (time.perf_counter() - began)


def speed_of_bare(connection: psycopg.Connection, jobs: int) -> float:
    connection.execute(BARE_TABLE)
    copied(connection, jobs)
    connection.execute("analyze bare")
    ids: list[int] = []
    done, began = 0, time.perf_counter()
    while rows := connection.execute(BARE_TURN, [ids]).fetchall():
        ids = [row[0] for row in rows]
        done += len(ids)
    return done / (time.perf_counter() - began)


def copied(connection: psycopg.Connection, jobs: int) -> None:
    with connection.cursor().copy(BARE_MANY) as copy:
        copy.set_types(["text", "int8", "bytea"])
        for _ in range(jobs):
            copy.write_row(("d", 1, JOB.payload))


def inserts(stores: Stores, connection: psycopg.Connection, jobs: int, rounds: int) -> Iterator[Figure]:
    single: list[tuple[float, float]] = []
    bulk: list[tuple[float, float]] = []
    store = open_engine(stores.new()).store()
    connection.execute(BARE_TABLE)
    for _ in range(rounds):
        single.append(
            (
                rate(jobs // 100, lambda: store.insert([JOB])),
                rate(jobs // 100, lambda: connection.execute(BARE_INSERT, [JOB.payload])),
            )
        )
        bulk.append(
            (
                1_000 * rate(jobs // 1_000, lambda: store.insert([JOB] * 1_000)),
                1_000 * rate(jobs // 1_000, lambda: copied(connection, 1_000)),
            )
        )
    store.close()
    yield compared("enqueue one by one", single, of_raw=0.85)
    yield compared("enqueue by 1,000 (raw: COPY)", bulk, of_raw=0.5)


def rate(times: int, call: object) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()  # type: ignore[operator]
    return times / (time.perf_counter() - began)


def backlog(stores: Stores, waiting: int) -> Iterator[Figure]:
    """Claims beside a long backlog against claims beside a short one."""
    large, small = stores.new(), stores.new()
    for url, jobs in ((large, waiting), (small, 5_000)):
        store = open_engine(url).store()
        fill(store, jobs)
        store.close()
    long, short = p99(drain(large, "w", 3.0)[2]), p99(drain(small, "w", 3.0)[2])
    ratio = long / short
    measure = f"exchange p99 with {waiting:,} waiting"
    yield Figure(
        measure, long * 1e3, " ms", f"{short * 1e3:.1f} ms with 5,000", ratio, (at_most(ratio, 2, "x"),)
    )


def p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


@contextmanager
def pinned(url: str) -> Iterator[None]:
    """While another transaction keeps the vacuum from its work."""
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select 1 from pg_class limit 1")
        yield


def under_a_pin(stores: Stores, url: str, jobs: int) -> Figure:
    """The last fifth of a drain against the first, with nothing vacuumed in between."""
    address = stores.new()
    store = open_engine(address).store()
    fill(store, jobs)
    store.close()
    with pinned(url):
        _, _, times = drain(address, "w")
    fifth = len(times) // 5
    first, last = fifth * BATCH / sum(times[:fifth]), fifth * BATCH / sum(times[-fifth - 1 : -1])
    measure = f"drain of {jobs:,} with the vacuum pinned, end"
    return Figure(
        measure, last, "/s", f"{first:,.0f}/s at the start", last / first, (at_least(last / first, 0.7, "x"),)
    )


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--url", help="a server of your own instead of a new one; schemas bench_* are made there"
    )
    options = arguments.parse_args()
    jobs, rounds = (5_000, 2) if options.quick else (50_000, options.rounds)
    before = machine()
    server = None if options.url else Postgres(**DURABLE)
    url = options.url or (server.url() if server else "")
    try:
        stores = Stores(url)
        with psycopg.connect(url, autocommit=True) as connection:
            figures = [*inserts(stores, connection, jobs, rounds)]
            drains = [(speed_of_ours(stores, jobs), speed_of_bare(connection, jobs)) for _ in range(rounds)]
        figures.append(compared("drain by one process, batch 100", drains, of_raw=0.5))
        two, four = (speed_of_ours(stores, 2 * jobs, processes) for processes in (2, 4))
        figures.append(Figure("drain by 2 processes", two, "/s"))
        figures.append(
            Figure("drain by 4", four, "/s", "2 processes", four / two, (at_least(four / two, 0.85, "x"),))
        )
        figures += backlog(stores, 20 * jobs)
        figures.append(under_a_pin(stores, url, 4 * jobs))
    finally:
        if server is not None:
            server.close()
    show("PostgreSQL", figures)
    write(options.json, before, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
