"""How many jobs go in and through, beside what SQLite alone can do, in one run: `make bench`.

Enqueue is measured through the public API, from a task and its argument to a stored job. Drain is measured
with one worker process of four threads and jobs that do nothing, from its start until the last completion is
stored. Raw is a bare table in the same folder: inserts, and a loop that completes the last hundred and claims
the next hundred in one transaction. Ours and raw take turns, and the median of the rounds counts.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeAlias

import msgspec

from benchmarks.measurements import ARGUMENT, Measurement, compared, machine, parser, show, write
from benchmarks.store import Bare, Progress, per_second
from forebay import Forebay
from forebay.app.task import Task

Noop: TypeAlias = Task[[dict[str, Any]], None]
Enqueue: TypeAlias = Callable[[Forebay, Noop, int], None]

BULK: Final = 1_000
BATCH: Final = 100
BACKLOG: Final = 1_000_000
BACKLOG_SECONDS: Final = 20.0
DRAIN_DEADLINE_SECONDS: Final = 300.0
# What the drain of each durability is held against: settlements sync only when it is full.
SYNCHRONOUS: Final = {"default": "normal", "full": "full"}

RAW_CLAIM: Final = """
update jobs set state = 1, attempts = attempts + 1
where id in (
  select id from jobs where state = 0 and queue = 'd' and run_at <= 2.0
  order by priority, run_at, id limit ?
)
returning id, payload
"""
RAW_COMPLETE: Final = "update jobs set state = 2, finished = 3.0 where id in (select value from json_each(?))"


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
        yield Path(name)


def address(where: Path, durability: str) -> str:
    return f"sqlite:///{where}/jobs.db?durability={durability}"


def nothing(argument: dict[str, Any]) -> None:
    pass


@contextmanager
def opened(url: str, call: Callable[[dict[str, Any]], None] = nothing) -> Iterator[tuple[Forebay, Noop]]:
    """An app with the one task of this benchmark, under a name that every process gives it."""
    with Forebay(url) as app:
        yield app, app.task(name="bench.noop")(call)


# Enqueue


def one_by_one(app: Forebay, noop: Noop, jobs: int) -> None:
    for _ in range(jobs):
        noop.enqueue(ARGUMENT)


def in_bulk(app: Forebay, noop: Noop, jobs: int) -> None:
    for _ in range(jobs // BULK):
        app.enqueue_many([noop.job(ARGUMENT) for _ in range(BULK)])


def enqueue_pair(work: Enqueue, durability: str, synchronous: str, jobs: int) -> tuple[float, float]:
    with folder() as where:
        with opened(address(where, durability)) as (app, noop):
            in_bulk(app, noop, BULK)  # warm
            ours = per_second(lambda: work(app, noop, jobs), jobs)
        bare = BareQueue(where, synchronous)
        bare.in_bulk(BULK)
        raw = per_second(lambda: getattr(bare, work.__name__)(jobs), jobs)
        bare.close()
    return ours, raw


def measure_enqueue(rounds: int, scale: int) -> list[Measurement]:
    def pairs(work: Enqueue, durability: str, synchronous: str, jobs: int) -> list[tuple[float, float]]:
        return [enqueue_pair(work, durability, synchronous, jobs // scale) for _ in range(rounds)]

    return [
        compared("enqueue one by one", pairs(one_by_one, "default", "full", 4_000), of_raw=0.85),
        compared(
            "enqueue one by one, relaxed",
            pairs(one_by_one, "relaxed", "normal", 20_000),
            of_raw=0.5,
            each_second=14_000,
        ),
        compared(
            "enqueue 1,000 a call", pairs(in_bulk, "default", "full", 100_000), of_raw=0.4, each_second=80_000
        ),
    ]


# Drain


def fill(where: Path, jobs: int) -> None:
    """Add waiting jobs, quickly and without measuring anything."""
    with opened(address(where, "relaxed")) as (app, noop), Progress("filling", jobs) as progress:
        for done in range(0, jobs, BULK):
            in_bulk(app, noop, BULK)
            progress.at(done)


def completed(app: Forebay) -> int:
    return sum(counts.completed for counts in app.client.counts().values())


def drain_here(url: str, jobs: int, seconds: float) -> float:
    """In a process of its own: run this many jobs, or as many as the seconds allow; answers jobs a second."""
    last = Event()
    numbers = itertools.count(1)

    def noop(argument: dict[str, Any]) -> None:
        if next(numbers) == jobs:
            last.set()

    with opened(url, noop) as (app, _):
        before = completed(app)
        began = time.perf_counter()
        with app.run_worker(threads=4):
            if last.wait(seconds):
                # The last one has run; it counts when its completion can be read from the store.
                while completed(app) - before < jobs:
                    time.sleep(0.001)
            done, took = completed(app) - before, time.perf_counter() - began
    return done / took


def drain(where: Path, durability: str, jobs: int, seconds: float = DRAIN_DEADLINE_SECONDS) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(drain_here, address(where, durability), jobs, seconds).result()


class BareQueue(Bare):
    """The lifecycle of jobs on the bare table."""

    def __init__(self, where: Path, synchronous: str) -> None:
        super().__init__(where, synchronous)
        self._raw.execute("pragma cache_size = -65536")

    def drain(self, jobs: int) -> None:
        """Complete the last hundred and claim the next in one transaction; decode and call in between."""
        decode = msgspec.json.decode
        ended = "[]"
        for _ in range(jobs // BATCH):
            self._raw.execute("begin immediate")
            self._raw.execute(RAW_COMPLETE, (ended,))
            rows = self._raw.execute(RAW_CLAIM, (BATCH,)).fetchall()
            self._raw.execute("commit")
            for _, payload in rows:
                nothing(decode(payload))
            ended = json.dumps([job_id for job_id, _ in rows])
        self._raw.execute(RAW_COMPLETE, (ended,))

    def close(self) -> None:
        self._raw.close()


def raw_drain(where: Path, synchronous: str, jobs: int, waiting: int) -> float:
    bare = BareQueue(where, synchronous)
    bare.in_bulk(waiting)
    speed = per_second(lambda: bare.drain(jobs), jobs)
    bare.close()
    return speed


def drain_pair(durability: str, jobs: int) -> tuple[float, float]:
    with folder() as where:
        fill(where, jobs)
        ours = drain(where, durability, jobs)
        raw = raw_drain(where, SYNCHRONOUS[durability], jobs, waiting=jobs)
    return ours, raw


def measure_drain(rounds: int, scale: int) -> list[Measurement]:
    jobs = 50_000 // scale
    pairs: dict[str, list[tuple[float, float]]] = {durability: [] for durability in SYNCHRONOUS}
    for _, durability in itertools.product(range(rounds), SYNCHRONOUS):
        pairs[durability].append(drain_pair(durability, jobs))
    return [
        compared(f"drain, {jobs:,} waiting", pairs["default"], of_raw=0.15, each_second=23_000),
        compared(f"drain, {jobs:,} waiting, full", pairs["full"], each_second=15_500),
    ]


def measure_backlog() -> list[Measurement]:
    """One run each: filling takes longer than measuring."""
    measurements = []
    with folder() as where:
        missing = BACKLOG
        for durability, synchronous in SYNCHRONOUS.items():
            fill(where, missing)
            ours = drain(where, durability, BACKLOG, BACKLOG_SECONDS)
            missing = round(ours * BACKLOG_SECONDS) // BULK * BULK
            with folder() as against:
                raw = raw_drain(against, synchronous, jobs=BACKLOG // 5, waiting=BACKLOG)
            name = f"drain, {BACKLOG:,} waiting, {BACKLOG_SECONDS:.0f} s"
            measurements.append(compared(name + (", full" if durability == "full" else ""), [(ours, raw)]))
    return measurements


def main() -> None:
    chosen = parser(__doc__).parse_args()
    rounds, scale = (2, 10) if chosen.quick else (chosen.rounds, 1)
    before = machine()
    measurements = measure_enqueue(rounds, scale) + measure_drain(rounds, scale)
    if not chosen.quick:
        measurements += measure_backlog()
    show("Throughput", measurements)
    write(chosen.json, before, measurements)


if __name__ == "__main__":
    main()
