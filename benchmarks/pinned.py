"""Whether the PostgreSQL store stays flat: a long history, a long backlog, and while nothing is vacuumed.

1. Claims and settlements with a million jobs pending and five million finished, beside a store with a
   thousand pending and no history; and the drain of both.
2. Full load for five minutes while an idle transaction of another program pins the horizon, so that not one
   dead row can be removed: two processes drain, one inserts all the time, one does the maintenance tasks, and
   every two seconds a job of the highest priority comes in. Shown by slices of time: jobs a second, p99 of
   claims and settlements, the longest pick-up of an urgent job, the longest maintenance task, and the index
   entries that were read for each job, which no other load on the machine can change.

    python -m benchmarks.pinned                 a server of its own, fsync and synchronous_commit on
    python -m benchmarks.pinned --quick         a tenth of the rows, a pin of half a minute
    python -m benchmarks.pinned --only pin      one of the two parts; --json FILE writes the measurements

FOREBAY_TEST_PG_BIN names the programs of another PostgreSQL.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from typing import Final

import psycopg

from benchmarks.measurements import Measurement, at_least, at_most, machine, parser, show, write
from benchmarks.places import BATCH, JOB, QUEUE, URGENT, Place, claimed, p99, progress, settled, timed
from benchmarks.postgres import DURABLE
from forebay.domain.job import WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.factory import open_engine
from tests.servers import Postgres

APART_EVERY: Final = 10  # so often a turn settles and claims in two calls, so that each has its own figure
URGENT_EVERY: Final = 2.0
SLICE: Final = 1_000  # jobs that are drained before it is the other store's turn
CONNECTING: Final = 3.0


@dataclass(frozen=True)
class Size:
    """How much of it."""

    waiting: int = 1_000_000
    finished: int = 5_000_000
    short: int = 1_000
    turns: int = 400
    drained: int = 20_000
    rounds: int = 3
    jobs: int = 2_000_000
    seconds: float = 300.0
    slices: int = 15


QUICK: Final = Size(
    waiting=100_000,
    finished=500_000,
    turns=150,
    drained=5_000,
    rounds=2,
    jobs=200_000,
    seconds=30.0,
    slices=10,
)


# ------------------------------------------------------------------ a long history and a long backlog


def past(url: str, size: Size) -> Iterator[Measurement]:
    """The same batches on a store with a long past and on one with none, by turns."""
    long, short = Place(url, "bench_long"), Place(url, "bench_short")
    long.remember(size.finished)
    long.wait(size.waiting)
    short.wait(size.short)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(size.turns):
        for place in (long, short):
            for name, took in turn_of(place):
                times[f"{name} {place.schema}"].append(took)
    for name in ("claim", "settle"):
        ours, against = p99(times[f"{name} {long.schema}"]), p99(times[f"{name} {short.schema}"])
        measure = f"{name} p99, {size.waiting:,} pending and {size.finished:,} finished"
        goals = (at_most(ours / against, 2, "x"),) if name == "claim" else ()
        yield Measurement(
            measure, ours, " ms", f"{against:.1f} ms with {size.short:,}", ours / against, goals
        )
    yield drains(long, short, size)
    for place in (long, short):
        place.close()


def turn_of(place: Place) -> Iterator[tuple[str, float]]:
    """Claim a batch, settle it, and let as many new jobs come: so the backlog stays as long as it is."""
    began = time.monotonic()
    jobs = claimed(place.store, WorkerId("w"))
    yield "claim", time.monotonic() - began
    done = settled(jobs)
    yield "settle", timed(lambda: place.store.settle_and_claim(WorkerId("w"), done))
    place.store.insert([JOB] * BATCH)


def drains(long: Place, short: Place, size: Size) -> Measurement:
    """By turns of a few batches each, so that what else the machine does meets both."""
    speeds: list[tuple[float, float]] = []
    for _ in range(size.rounds):
        short.wait(size.drained)
        turns = [(drain(long, SLICE), drain(short, SLICE)) for _ in range(size.drained // SLICE)]
        long_took, short_took = (sum(pair[n] for pair in turns) for n in (0, 1))
        speeds.append((size.drained / long_took, size.drained / short_took))
    ours, against = (median(pair[n] for pair in speeds) for n in (0, 1))
    ratio = median(pair[0] / pair[1] for pair in speeds)
    return Measurement(
        f"drain with {size.waiting:,} waiting",
        ours,
        "/s",
        f"{against:,.0f}/s with {size.drained:,}",
        ratio,
        (at_least(ratio, 0.9, "x"),),
        tuple(pair[0] for pair in speeds),
        tuple(pair[1] for pair in speeds),
    )


def drain(place: Place, jobs: int) -> float:
    """How long so many jobs take."""
    done: list[Settlement] = []
    began, count = time.monotonic(), 0
    while count < jobs:
        done = settled(claimed(place.store, WorkerId("w"), done))
        count += len(done)
    place.store.settle_and_claim(WorkerId("w"), done)
    return time.monotonic() - began


# ------------------------------------------------------------------ the pinned horizon


@dataclass
class Seen:
    """What one process has seen: when (since the start), and how long it took or how many it were."""

    jobs: list[tuple[float, float]] = field(default_factory=list)
    round_trip: list[tuple[float, float]] = field(default_factory=list)
    claim: list[tuple[float, float]] = field(default_factory=list)
    settle: list[tuple[float, float]] = field(default_factory=list)
    insert: list[tuple[float, float]] = field(default_factory=list)
    maintenance: list[tuple[float, float]] = field(default_factory=list)
    read: list[tuple[float, float]] = field(default_factory=list)
    urgent_in: dict[str, float] = field(default_factory=dict)
    urgent_out: dict[str, float] = field(default_factory=dict)


def work(url: str, name: str, began: float, until: float) -> Seen:
    """Claim and settle for as long as it lasts."""
    store, worker, seen = open_engine(url).store(), WorkerId(name), Seen()
    done: list[Settlement] = []
    turns = 0
    wait_for(began)
    while (now := time.monotonic()) < until:
        turns += 1
        if turns % APART_EVERY == 0:
            store.settle_and_claim(worker, done)
            between = time.monotonic()
            jobs = claimed(store, worker)
            seen.settle.append((now - began, between - now))
            seen.claim.append((now - began, time.monotonic() - between))
        else:
            jobs = claimed(store, worker, done)
            seen.round_trip.append((now - began, time.monotonic() - now))
        seen.jobs.append((now - began, len(done)))
        seen.urgent_out |= {job.id: time.monotonic() for job in jobs if job.task == URGENT.task}
        done = settled(jobs)
    store.settle_and_claim(worker, done)
    store.close()
    return seen


def feed(url: str, jobs: int, low: int, began: float, until: float) -> Seen:
    """Insert at a steady rate, and quicker when the workers would run out of jobs."""
    engine = open_engine(url)
    store, reader, seen = engine.store(), engine.reader(), Seen()
    rate, inserted, checked_at, is_low = jobs / (until - began), 0, 0.0, False
    wait_for(began)
    while (now := time.monotonic()) < until:
        if now - checked_at > 1.0:
            checked_at, is_low = now, reader.counts()[QUEUE].pending < low
        if is_low or inserted < (now - began) * rate:
            seen.insert.append((now - began, timed(lambda: store.insert([JOB] * 1_000))))
            inserted += 1_000
        else:
            time.sleep(0.01)
    for handle in (store, reader):
        handle.close()
    return seen


def be_urgent(url: str, began: float, until: float) -> Seen:
    """Every now and then a job that goes before all others."""
    store, seen = open_engine(url).store(), Seen()
    wait_for(began)
    while time.monotonic() < until - URGENT_EVERY:
        [receipt] = store.insert([URGENT])
        seen.urgent_in[str(receipt.id)] = time.monotonic()
        time.sleep(URGENT_EVERY)
    store.close()
    return seen


def run_maintenance(url: str, began: float, until: float) -> Seen:
    """What workers do by the clock."""
    store, seen = open_engine(url).store(), Seen()
    turns = 0
    wait_for(began)
    while (now := time.monotonic()) < until:
        for task in (store.promote, store.rescore, lambda: store.sweep(WorkerId("sweeper"))):
            seen.maintenance.append((now - began, timed(task)))
        if turns % 10 == 0:
            seen.maintenance.append((now - began, timed(store.prune)))
        turns += 1
        time.sleep(max(0.0, now + 1.0 - time.monotonic()))
    store.close()
    return seen


def watch(place: Place, began: float, until: float) -> Seen:
    """How many entries of indexes all of them have read, as the server counts."""
    seen, before = Seen(), place.entries_read()
    wait_for(began)
    while (now := time.monotonic()) < until:
        time.sleep(1.0)
        after = place.entries_read()
        seen.read.append((now - began, after - before))
        before = after
        progress("seconds", round(min(time.monotonic(), until) - began), round(until - began))
    return seen


def wait_for(moment: float) -> None:
    """All begin at once, when all are connected."""
    time.sleep(max(0.0, moment - time.monotonic()))


@contextmanager
def pinned(url: str) -> Iterator[None]:
    """While another transaction keeps the vacuum from its work."""
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select 1 from pg_class limit 1")
        yield


def under_a_pin(url: str, size: Size) -> tuple[list[Measurement], list[str]]:
    """The numbers of the last fifth of the time against those of the first, and the lines of all slices."""
    place = Place(url, "bench_pinned")
    place.wait(size.jobs // 2)
    with ProcessPoolExecutor(5, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, range(5)))  # started and loaded
        with pinned(url):
            began = time.monotonic() + CONNECTING
            until = began + size.seconds
            futures: list[Future[Seen]] = [
                pool.submit(work, place.url, "w1", began, until),
                pool.submit(work, place.url, "w2", began, until),
                pool.submit(feed, place.url, size.jobs // 2, size.jobs // 20, began, until),
                pool.submit(be_urgent, place.url, began, until),
                pool.submit(run_maintenance, place.url, began, until),
            ]
            seen = [watch(place, began, until), *(future.result() for future in futures)]
    place.close()
    slices = Slices(seen, began, size)
    return list(slices.measurements()), list(slices.lines())


class Slices:
    """What all processes have seen, by slices of time."""

    def __init__(self, seen: Sequence[Seen], began: float, size: Size) -> None:
        self._seen = seen
        self._size = size
        self._long = size.seconds / size.slices
        taken: dict[str, float] = {}
        for one in seen:
            taken |= one.urgent_out
        self._picked_up = [
            (put - began, taken[job_id] - put if job_id in taken else size.seconds)
            for one in seen
            for job_id, put in one.urgent_in.items()
        ]

    def _of(self, name: str, start: float, end: float) -> list[float]:
        """The values of one kind between two moments."""
        kinds = [self._picked_up] if name == "pick_up" else [getattr(one, name) for one in self._seen]
        return [value for kind in kinds for at, value in kind if start <= at < end]

    def measurements(self) -> Iterator[Measurement]:
        seconds = self._size.seconds
        fifth = seconds / 5
        first, last = (0.0, fifth), (seconds - fifth, seconds)
        done = [sum(self._of("jobs", *span)) / fifth for span in (first, last)]
        ratio = done[1] / done[0]
        jobs = round(sum(self._of("jobs", 0.0, seconds)))
        yield Measurement(
            f"{jobs:,} jobs in {seconds:.0f} s with a pin, last fifth", done[1], "/s",
            f"{done[0]:,.0f}/s first fifth", ratio, (at_least(ratio, 0.7, "x"),),
        )  # fmt: skip
        for name in ("claim", "settle", "round_trip"):
            begin, end = (p99(self._of(name, *span)) for span in (first, last))
            goals = () if name == "round_trip" else (at_most(end / begin, 3, "x"),)
            yield Measurement(
                f"{name} p99 with a pin, last fifth",
                end,
                " ms",
                f"{begin:.1f} ms first fifth",
                end / begin,
                goals,
            )
        waits = self._of("pick_up", 0.0, seconds)
        longest = max(waits, default=float("nan"))
        yield Measurement(
            f"longest pick-up of {len(waits)} urgent jobs", longest * 1e3, " ms",
            f"median {median(waits or [0.0]) * 1e3:.0f} ms", None, (at_most(longest, 1, " s"),),
        )  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield "             p99 in ms:                             longest in ms:      index entries"
        yield "from s   jobs/s  round trip   claim   settle   insert   pick-up  tasks  read per job"
        for number in range(self._size.slices):
            span = number * self._long, (number + 1) * self._long
            times = {name: self._of(name, *span) for name in ("round_trip", "claim", "settle", "insert")}
            longest = {
                name: max(self._of(name, *span), default=0.0) * 1e3 for name in ("pick_up", "maintenance")
            }
            done = sum(self._of("jobs", *span))
            yield (
                f"{span[0]:6.0f} {done / self._long:8,.0f}"
                f" {p99(times['round_trip']):9.1f} {p99(times['claim']):8.1f}"
                f" {p99(times['settle']):8.1f} {p99(times['insert']):8.1f}"
                f" {longest['pick_up']:9.0f} {longest['maintenance']:6.0f}"
                f" {sum(self._of('read', *span)) / max(done, 1):13.1f}"
            )


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--url", help="a server of your own; schemas bench_* are made there")
    arguments.add_argument("--only", choices=("past", "pin"), help="one part alone")
    arguments.add_argument("--seconds", type=float, help="how long the horizon is pinned (300)")
    options = arguments.parse_args()
    size = QUICK if options.quick else Size()
    if options.seconds:
        size = Size(**{**size.__dict__, "seconds": options.seconds})
    before = machine()
    server = None if options.url else Postgres(**DURABLE)
    url = options.url or (server.url() if server else "")
    measurements: list[Measurement] = []
    try:
        if options.only != "pin":
            measurements += past(url, size)
        if options.only != "past":
            found, lines = under_a_pin(url, size)
            measurements += found
            print("\n".join(lines))
        version = psycopg.connect(url).info.server_version
    finally:
        if server is not None:
            server.close()
    show(f"PostgreSQL {version // 10_000} with a past and with a pin", measurements)
    write(options.json, before, measurements)
    return 0


if __name__ == "__main__":
    sys.exit(main())
