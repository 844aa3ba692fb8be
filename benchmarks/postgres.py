"""What the PostgreSQL store costs, beside a bare job table on the same server: `make bench WHAT=postgres`.

A server of its own is started, with fsync and synchronous_commit on. Each pair is measured alternately and
the median of the rounds counts. The bare table has a state column, one index and no promises; its rows carry
the payloads that ours do, its drain completes the last jobs and claims the next in one transaction, from the
head, with SKIP LOCKED. `--json FILE` writes the measurements, `--quick` uses a tenth of the sizes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any, Final, NamedTuple

import psycopg

from benchmarks.measurements import ARGUMENT, Measurement, at_least, compared, machine, parser, show, write
from benchmarks.postgres_pickup import pick_up
from benchmarks.workers import measure_idle
from forebay import Forebay
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine
from tests.servers import Postgres

QUEUE: Final = QueueName("default")
JOB: Final = NewJob(task="send", payload=b"x" * 109)
LANES: Final = frozenset(["task:send"])
BATCH: Final = 100
IDLE_MB: Final = 45
SLICE: Final = 10  # calls of one kind before it is the other's turn
DURABLE: Final[dict[str, Any]] = {
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
BARE_SETTLE_AND_CLAIM: Final = """
with done as (update bare set state = 'd' where id = any(%s) returning 1)
update bare set state = 'r' where id = any(array(
  select id from bare where queue = 'd' and state = 'p' order by rank, id limit {batch} for update skip locked
)) returning id, payload
"""


class Span(NamedTuple):
    """What one process has done, and from when to when."""

    jobs: int
    began: float
    ended: float


class Stores:
    """Stores on one server, each in a schema of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made = 0

    def __iter__(self) -> Stores:
        return self

    def __next__(self) -> str:
        self._made += 1
        return f"{self._url}?schema=bench_{self._made}"


# Inserts


def inserts(url: str, connection: psycopg.Connection, calls: int, rounds: int) -> Iterator[Measurement]:
    """One by one and in thousands, through a task and at the store. The bare rows hold the same payload."""

    def send(argument: dict[str, object]) -> None:
        """No worker runs it."""

    with Forebay(url) as app:
        task = app.task(name="send")(send)
        job = NewJob(task="send", payload=task.job(ARGUMENT).payload)
        store = open_engine(url).store()
        connection.execute(BARE_TABLE)
        store.insert([job])
        one = [
            lambda: task.enqueue(ARGUMENT),
            lambda: store.insert([job]),
            lambda: connection.execute(BARE_INSERT, [job.payload]),
        ]
        many = [
            lambda: app.enqueue_many([task.job(ARGUMENT) for _ in range(1_000)]),
            lambda: store.insert([job] * 1_000),
            lambda: copied(connection, 1_000, job.payload),
        ]
        singles = [alternating(one, calls, SLICE) for _ in range(rounds)]
        bulks = [[1_000 * speed for speed in alternating(many, calls // 50, 1)] for _ in range(rounds)]
        store.close()
    yield compared("enqueue one by one", against_last(singles, 0), of_raw=0.85)
    yield compared("insert one by one, at the store", against_last(singles, 1), of_raw=0.85)
    yield compared("enqueue by 1,000 (raw: COPY)", against_last(bulks, 0), of_raw=0.5)
    yield compared("insert by 1,000, at the store", against_last(bulks, 1), of_raw=0.5)


def alternating(calls: Sequence[Callable[[], object]], times: int, in_a_row: int) -> list[float]:
    """How often a second each can be called, when they take turns."""
    seconds = [0.0] * len(calls)
    for _ in range(max(1, times // in_a_row)):
        for nth, call in enumerate(calls):
            began = time.perf_counter()
            for _ in range(in_a_row):
                call()
            seconds[nth] += time.perf_counter() - began
    return [max(in_a_row, times // in_a_row * in_a_row) / elapsed for elapsed in seconds]


def against_last(rounds: Sequence[Sequence[float]], nth: int) -> list[tuple[float, float]]:
    return [(speeds[nth], speeds[-1]) for speeds in rounds]


def copied(connection: psycopg.Connection, jobs: int, payload: bytes) -> None:
    with connection.cursor().copy(BARE_MANY) as copy:
        copy.set_types(["text", "int8", "bytea"])
        for _ in range(jobs):
            copy.write_row(("d", 1, payload))


# Drains


def drains(
    stores: Stores, url: str, connection: psycopg.Connection, jobs: int, rounds: int
) -> Iterator[Measurement]:
    """Settle what was claimed and claim the next, again and again, until nothing is left."""
    ours: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    bare: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for processes, batch, fewer in ((1, 1, 50), (1, 10, 5), (1, 100, 1), (2, 100, 1), (4, 100, 1)):
            size = jobs // fewer
            ours[processes, batch].append(speed_of_ours(next(stores), size, processes, batch))
            if processes <= 2:  # four are compared with two
                bare[processes, batch].append(speed_of_bare(connection, url, size, processes, batch))
    for processes, batch in bare:
        pairs = list(zip(ours[processes, batch], bare[processes, batch], strict=True))
        each_second = 22_000 if processes > 1 else 0
        measure = f"drain by {processes} process{'es' if processes > 1 else ''}, batch {batch}"
        yield compared(measure, pairs, of_raw=0.5 if batch == BATCH else None, each_second=each_second)
    ratio = median(four / two for four, two in zip(ours[4, BATCH], ours[2, BATCH], strict=True))
    yield Measurement(
        measure=f"drain by 4 processes, batch {BATCH}",
        ours=median(ours[4, BATCH]),
        unit="/s",
        against="2 processes",
        ratio=ratio,
        goals=(at_least(ratio, 0.85, "x"),),
        rounds=tuple(ours[4, BATCH]),
        against_rounds=tuple(ours[2, BATCH]),
    )


def speed_of_ours(url: str, jobs: int, processes: int, batch: int) -> float:
    store = open_engine(url).store()
    for start in range(0, jobs, 1_000):
        store.insert([JOB] * min(1_000, jobs - start))
    store.close()
    return speed(processes, partial(span_of_ours, url, batch))


def span_of_ours(url: str, batch: int, number: int) -> Span:
    store = open_engine(url).store()
    claims = [QueueClaim(QUEUE, batch, None, LANES)]
    done: list[Settlement] = []
    jobs, began = 0, time.monotonic()
    while (answer := store.settle_and_claim(WorkerId(f"w{number}"), done, claims, batch)).jobs or done:
        jobs += len(answer.settled)
        done = [decide(job, Completed(b"1"), 0.0) for job in answer.jobs]
    ended = time.monotonic()
    store.close()
    return Span(jobs, began, ended)


def speed_of_bare(connection: psycopg.Connection, url: str, jobs: int, processes: int, batch: int) -> float:
    connection.execute(BARE_TABLE)
    copied(connection, jobs, JOB.payload)
    connection.execute("analyze bare")
    return speed(processes, partial(span_of_bare, url, batch))


def span_of_bare(url: str, batch: int, _: int) -> Span:
    turn = BARE_SETTLE_AND_CLAIM.format(batch=batch)
    ids: list[int] = []
    with psycopg.connect(url, autocommit=True) as connection:
        jobs, began = 0, time.monotonic()
        while rows := connection.execute(turn.encode(), [ids]).fetchall():
            ids = [row[0] for row in rows]
            jobs += len(ids)
        return Span(jobs, began, time.monotonic())


def speed(processes: int, work: Callable[[int], Span]) -> float:
    """Jobs a second of several processes together, from when the first begins until the last is done."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=loaded) as pool:
        # Started and loaded before it counts: while one sleeps, the others have to take the rest.
        list(pool.map(time.sleep, [0.5] * processes))
        spans = list(pool.map(work, range(processes)))
    seconds = max(span.ended for span in spans) - min(span.began for span in spans)
    return sum(span.jobs for span in spans) / seconds


def loaded() -> None:
    """With this function comes all that the others need."""


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
            measurements = [*inserts(next(stores), connection, jobs // 100, rounds)]
            measurements += drains(stores, url, connection, jobs, rounds)
        measurements += pick_up(stores, url, rounds, 1.0 if options.quick else 5.0)
        measurements += measure_idle(3.0 if options.quick else 20.0, next(stores), IDLE_MB, IDLE_MB)
    finally:
        if server is not None:
            server.close()
    show("PostgreSQL", measurements)
    write(options.json, before, measurements)
    return 0


if __name__ == "__main__":
    sys.exit(main())
