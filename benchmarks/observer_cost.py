"""What it costs to be watched, in processor time for each job: `python -m benchmarks.observer_cost`.

First metrics alone, without a store: a claim and an end of batches of 100, as a coordinator tells them, and
the rows at the end; the best of some rounds, since others may use the machine too.

Then a drain of jobs that do nothing, by a worker in this process: with metrics, and with a viewer who looks
on as the dashboard does, told twice a second of queues, workers and the log; and the same without metrics and
without one. They take turns, first one and then the other, and the median of the ratios counts. The time
is that of this process and of its server, whatever else the machine does: `--engine` for one other than
SQLite, on a server of its own, or `--url` for one that is there. History is in both: the row of a finished
job is its history, and is written by its settlement.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from random import Random
from statistics import median
from threading import Event, Thread
from typing import Any

from benchmarks.cpu import taken
from benchmarks.measurements import ARGUMENT
from benchmarks.postgres import DURABLE
from forebay import Forebay
from forebay.app.task import Task
from forebay.clock import SystemClock
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.service.runtime.event_feed import EventFeed, FeedFilter
from forebay.service.runtime.store_pool import StorePool
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.memory.engine import MemoryEngine
from forebay.telemetry.metrics_collector import MetricsCollector
from tests.redis_server import RedisServer
from tests.servers import Postgres

ENGINES = ("sqlite", "memory", "postgresql", "redis")
BATCH = 100
BATCHES = 200
ROUNDS = 20
BULK = 1_000
DEADLINE_SECONDS = 300.0
ALL = FeedFilter(queue=lambda _: True, workers=True, audit=True, names_other_jobs=True)


def gathering_us() -> float:
    """Microseconds for the metrics of a job."""
    store, queue, worker = MemoryEngine().store(), QueueName("q"), WorkerId("w")
    store.insert([NewJob(task="t", queue=queue, payload=b"{}") for _ in range(BATCH)])
    jobs = store.settle_and_claim(worker, claims=[QueueClaim(queue, BATCH)], room=BATCH).jobs
    dice = Random(1)
    ends = [(job, decide(job, Completed(b"1"), 0.0), dice.random() / 1_000) for job in jobs]
    now = SystemClock().monotonic()
    took = []
    for _ in range(ROUNDS):
        gathering, began = MetricsCollector(worker), time.process_time()
        for _ in range(BATCHES):
            gathering.on_claimed(jobs, now)
            gathering.on_settled(ends, now)
        gathering.take_all_rows()
        took.append(time.process_time() - began)
    return min(took) / BATCH / BATCHES * 1e6


@contextmanager
def observed(engine: Engine) -> Iterator[None]:
    """A viewer of the event feed looks on while the block lasts."""
    is_over, looks = Event(), Event()

    async def look_on() -> None:
        pool = StorePool(engine, SystemClock())
        watching = EventFeed(pool)
        with watching.listen(ALL) as listener:
            while not is_over.is_set():
                if await listener.next(0.1) is not None:
                    looks.set()
        await watching.stop()
        await pool.close()

    thread = Thread(target=lambda: asyncio.run(look_on()), name="bench-looking-on")
    thread.start()
    try:
        if not looks.wait(DEADLINE_SECONDS):
            raise TimeoutError("the viewer could not look on")
        yield
    finally:
        is_over.set()
        thread.join(DEADLINE_SECONDS)


class Draining:
    """An app whose jobs do nothing."""

    def __init__(self, app: Forebay, url: str, jobs: int) -> None:
        self._app = app
        self._url = url
        self._jobs = jobs
        self._left = 0
        self._last = Event()
        self._noop: Task[[dict[str, Any]], None] = app.task(name="bench.noop")(self._run)

    def _run(self, argument: dict[str, Any]) -> None:
        self._left -= 1  # by the one thread that runs jobs
        if not self._left:
            self._last.set()

    def us(self, *, watched: bool) -> float:
        """Microseconds of processor time for each job of a drain."""
        for _ in range(self._jobs // BULK):
            self._app.enqueue_many([self._noop.job(ARGUMENT) for _ in range(BULK)])
        self._left = self._jobs
        self._last.clear()
        observer = observed(self._app.engine) if watched else nullcontext()
        with observer, self._app.run_worker(threads=1, metrics=watched):
            seconds = taken(self._url)
            began = seconds()
            if not self._last.wait(DEADLINE_SECONDS):
                raise TimeoutError(f"{self._left} jobs have not run")
            took = seconds() - began
        return took / self._jobs * 1e6


def own(engine: str, kept: ExitStack) -> str:
    """The address of a store that no other program uses."""
    if engine == "memory":
        return "memory://"
    if engine == "sqlite":
        return f"sqlite:///{kept.enter_context(tempfile.TemporaryDirectory(prefix='forebay-bench-'))}/jobs.db"
    server = Postgres(**DURABLE) if engine == "postgresql" else RedisServer(appendonly="yes")
    kept.callback(server.close)
    return server.url()


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to be watched.")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite", help="on a server of its own")
    parser.add_argument("--url", help="a store that is there and may be filled, instead")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of a drain, in thousands")
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    print(f"metrics alone: {gathering_us():.2f} us of processor time a job")
    with ExitStack() as kept:
        url = chosen.url or own(chosen.engine, kept)
        app = kept.enter_context(Forebay(url))
        draining = Draining(app, url, chosen.jobs)
        draining.us(watched=True)  # warm
        pairs = []
        for number in range(chosen.rounds):
            order = (True, False) if number % 2 else (False, True)
            took = {watched: draining.us(watched=watched) for watched in order}
            pairs.append((took[True], took[False]))
    watched, alone = (median(side) for side in zip(*pairs, strict=True))
    more = median(one / other for one, other in pairs) - 1
    print(
        f"drain on {url.partition(':')[0]}: {watched:.1f} us a job watched, {alone:.1f} us alone: "
        f"{more:+.1%} (at most +10 %)"
    )


if __name__ == "__main__":
    main()
