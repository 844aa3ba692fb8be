"""What more workers bring, how long a job takes from end to end, and what a long history takes in the store.

    python -m benchmarks.scale                      on SQLite; --engine postgres, redis
    python -m benchmarks.scale --quick              small sizes, for a look in a minute

Throughput is that of 1, 2 and 4 worker processes of four threads that drain jobs that do nothing, from the
moment when all are ready until the last completion is stored. End to end is from the begin of an enqueue call
until its caller has the result, one job after the other, with a worker in another process. The history is
lived through in rounds of as many jobs: first all are kept, and a job takes so many bytes of the store; then
each round forgets the jobs of the one before, as retention does, and the store stays as large as it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path
from statistics import quantiles
from typing import Final

import psycopg

from benchmarks.compare.servers import Server, server
from benchmarks.explorer import QUEUES, live_through
from benchmarks.measurements import ARGUMENT, Measurement, at_most, machine, parser, show, write
from benchmarks.throughput import in_bulk, opened
from forebay.domain.job import QueueName
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

WORKERS: Final = (1, 2, 4)
JOBS: Final = 20_000
END_TO_END: Final = 300
ROUND: Final = 10_000
ROUNDS: Final = 4
PATIENCE_SECONDS: Final = 300.0
# What stays after jobs were forgotten is room that is used again: no more than another round would take.
MOST_GROWTH: Final = 1.5


def work(url: str, ready: ProcessEvent, go: ProcessEvent, over: ProcessEvent) -> None:
    """In a process of its own: run jobs from `go` on until it is over."""
    with opened(url) as (app, _):
        app.counts()  # whatever is loaded late is loaded now
        ready.set()
        go.wait(PATIENCE_SECONDS)
        with app.run_worker(threads=4):
            over.wait(PATIENCE_SECONDS)


@contextmanager
def workers(url: str, number: int) -> Iterator[Callable[[], None]]:
    """So many worker processes, which begin when they are told to."""
    spawn = get_context("spawn")
    with spawn.Manager() as shared, ProcessPoolExecutor(number, mp_context=spawn) as pool:
        ready = [shared.Event() for _ in range(number)]
        go, over = shared.Event(), shared.Event()
        running = [pool.submit(work, url, one, go, over) for one in ready]  # type: ignore[arg-type]  # proxies
        for one in ready:
            one.wait(PATIENCE_SECONDS)
        try:
            yield go.set
        finally:
            go.set()
            over.set()
        for done in running:
            done.result()


def drained(url: str, number: int, jobs: int) -> float:
    """Jobs a second with so many workers."""
    with opened(url) as (app, noop), workers(url, number) as go:
        in_bulk(app, noop, jobs)
        began = time.perf_counter()
        go()
        # Not by how many have completed: on Redis the oldest are forgotten meanwhile.
        _wait(lambda: not any(one.live for one in app.counts().values()))
        return jobs / (time.perf_counter() - began)


def _wait(is_over: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_over():
        if time.monotonic() > until:
            raise SystemExit(f"the jobs were not done within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.005)


def end_to_end(url: str, jobs: int) -> list[float]:
    """The seconds from an enqueue to its result, of each job."""
    took = []
    with opened(url) as (_, noop), workers(url, 1) as go:
        go()
        noop.enqueue(ARGUMENT).result(timeout=PATIENCE_SECONDS)  # warm
        for _ in range(jobs):
            began = time.perf_counter()
            noop.enqueue(ARGUMENT).result(timeout=PATIENCE_SECONDS)
            took.append(time.perf_counter() - began)
    return took


def size_of(engine: str, url: str) -> int:
    """Bytes that the store takes: of a file, of a database, or of a server's memory."""
    if engine == "sqlite":
        file = Path(url.removeprefix("sqlite://").partition("?")[0])
        return sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))
    if engine == "postgres":
        with psycopg.connect(url) as connection:
            [found] = connection.execute("select pg_database_size(current_database())").fetchone() or (0,)
            return int(found)
    with closing(open_engine(url).reader()) as reader:
        return reader.server_usage().memory or 0


def history(engine: str, url: str, jobs: int) -> tuple[float, list[int]]:
    """Bytes of a finished job that is kept, and the sizes after rounds that forget the ones before."""
    with closing(open_engine(url).store()) as store:
        live_through(store, jobs)
        first = size_of(engine, url)
        live_through(store, jobs)
        kept = (size_of(engine, url) - first) / jobs
        _forget_at_once(store)
        sizes = []
        for _ in range(ROUNDS):
            forgotten = sum(iter(store.prune, 0))
            if forgotten < jobs // 2:
                raise SystemExit(f"only {forgotten} of {jobs} jobs were forgotten")
            live_through(store, jobs)
            sizes.append(size_of(engine, url))
    return kept, sizes


def _forget_at_once(store: Store) -> None:
    for name in QUEUES:
        store.save_queue(QueueName(name), {"keep_finished_ms": 1})


def measurements(engine: str, made: Server, scale: int) -> Iterator[Measurement]:
    alone = 0.0
    for number in WORKERS:
        made.empty()
        speed = drained(made.url, number, JOBS // scale)
        alone = alone or speed
        yield Measurement(f"drain by {number} worker processes", speed, "/s", "one process", speed / alone)
    made.empty()
    cuts = quantiles(end_to_end(made.url, END_TO_END // scale), n=100)
    yield Measurement("end to end, p50", cuts[49] * 1e3, " ms")
    yield Measurement("end to end, p99", cuts[98] * 1e3, " ms")
    made.empty()
    kept, sizes = history(engine, made.url, ROUND // scale)
    yield Measurement("a finished job that is kept", kept, " bytes")
    yield grown(sizes)


def grown(sizes: Sequence[int]) -> Measurement:
    """How the store grows while as many are forgotten as finish."""
    growth = sizes[-1] / sizes[0]
    words = f"{sizes[0] / 1e6:,.1f} to {sizes[-1] / 1e6:,.1f} MB"
    goals = (at_most(growth, MOST_GROWTH, " x"),)
    return Measurement(f"after {len(sizes)} rounds of forgetting", growth, " x", words, None, goals)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--engine", choices=("sqlite", "postgres", "redis"), default="sqlite")
    options = arguments.parse_args()
    before = machine()
    with server(options.engine) as made:
        found = list(measurements(options.engine, made, 10 if options.quick else 1))
    show(f"Workers, end to end and history on {options.engine}", found)
    write(options.json, before, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
