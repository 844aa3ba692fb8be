"""How soon a job on Redis starts, what a long backlog costs, and a restart of the server: part of
`make bench WHAT=redis`.

Pick-up as in `latency.py`: one process enqueues a job every 20 ms, a worker in another process runs it. Raw
is LPUSH, and a process that waits with BLPOP. Claims beside a backlog are measured by the time that the
server itself takes for their scripts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import redis

from benchmarks.latency import (
    DEADLINE_SECONDS,
    EVERY_SECONDS,
    WARM,
    WARM_NUMBER,
    Delays,
    Starts,
    delays,
    in_another_process,
    now_ns,
    paced,
    pick_up_measurements,
)
from benchmarks.measurements import Measurement, at_most
from benchmarks.places import progress
from benchmarks.postgres import BATCH, JOB, LANES, QUEUE
from benchmarks.postgres_pickup import ours
from forebay import Forebay
from forebay.domain.job import WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer

GOALS: Final = {50: 1.2, 99: 2.4}
LIST: Final = "{bare}:picked"
READY: Final = "{bare}:ready_to_pick"
FEW: Final = 1_000
CLAIMS: Final = 20
NAP_SECONDS: Final = 0.002
LOAD: Final = 10_000


# Pick-up


def raw_here(port: int, jobs: int) -> Starts:
    """In a process of its own: wait for each, note the time."""
    starts: Starts = []
    with redis.Redis(port=port) as waiting:
        waiting.lpush(READY, "1")
        while len(starts) < jobs:
            found = waiting.blpop([LIST], timeout=DEADLINE_SECONDS)
            starts.append((int(found[1][:12]), now_ns()))
    return starts


def raw(port: int, jobs: int) -> Delays:
    padding = b" " * 97  # 109 bytes with the number
    with redis.Redis(port=port) as sending, in_another_process() as process:
        starts = process.submit(raw_here, port, WARM + jobs)
        sending.blpop([READY], timeout=DEADLINE_SECONDS)

        def send(number: int) -> None:
            sending.lpush(LIST, b"%12d" % number + padding)

        paced(WARM, lambda _: send(WARM_NUMBER))
        sent = paced(jobs, send)
        return delays(sent, starts.result())


def pick_up(urls: Iterator[str], port: int, rounds: int, seconds: float) -> Iterator[Measurement]:
    """From the begin of the enqueue call, and from its return, to the first line of the task."""
    jobs = round(seconds / EVERY_SECONDS)
    found = []
    for number in range(rounds):
        found.append((ours(next(urls), jobs), raw(port, jobs)))
        progress("pick-up", number + 1, rounds)
    begins = [(mine.from_begin, bare.from_begin) for mine, bare in found]
    returns = [(mine.from_return, bare.from_return) for mine, bare in found]
    yield from pick_up_measurements("from the call", begins, GOALS)
    yield from pick_up_measurements("from its return", returns, GOALS)


# A long backlog


def filled(store: Store, jobs: int) -> None:
    for done in range(0, jobs, 1_000):
        store.insert([JOB] * 1_000)
        progress("waiting", done + 1_000, jobs)


def turns(store: Store) -> None:
    """Claim a hundred and settle the hundred before, some times."""
    ended: list[Settlement] = []
    for _ in range(CLAIMS):
        answer = store.settle_and_claim(
            WorkerId("bench"), ended, [QueueClaim(QUEUE, BATCH, None, LANES)], BATCH
        )
        ended = [decide(job, Completed(b"1"), 0.0) for job in answer.jobs]
    store.settle_and_claim(WorkerId("bench"), ended)


def scripted_us(admin: redis.Redis, work: Callable[[], object]) -> float:
    """What scripts took the server meanwhile, in microseconds."""
    admin.config_resetstat()
    work()
    return float(admin.info("commandstats")["cmdstat_evalsha"]["usec"])


def backlog(url: str, admin: redis.Redis, jobs: int, rounds: int) -> Iterator[Measurement]:
    """What a waiting job takes, and a round trip beside many of them and beside few."""
    long, short = open_engine(f"{url}-long").store(), open_engine(f"{url}-short").store()
    long.insert([JOB])
    before = admin.info("memory")["used_memory"]
    filled(long, jobs)
    each = (admin.info("memory")["used_memory"] - before) / jobs
    yield Measurement(
        measure=f"memory of a waiting job, {jobs:,} wait",
        ours=each,
        unit=" bytes",
        against=f"{len(JOB.payload)} bytes payload",
        goals=(at_most(each, 700, " bytes"),),
    )
    moved = CLAIMS * BATCH
    pairs = []
    for number in range(rounds):
        filled(short, FEW + moved)
        pairs.append((scripted_us(admin, lambda: turns(long)), scripted_us(admin, lambda: turns(short))))
        while short.settle_and_claim(
            WorkerId("rest"), (), [QueueClaim(QUEUE, BATCH, None, LANES)], BATCH
        ).jobs:
            pass
        progress("claims", number + 1, rounds)
    ratio = median(many / few for many, few in pairs)
    yield Measurement(
        measure=f"round trip of a job, {jobs:,} wait",
        ours=median(many for many, _ in pairs) / moved,
        unit=" us",
        against=f"{median(few for _, few in pairs) / moved:.3g} us, {FEW:,} wait",
        ratio=ratio,
        goals=(at_most(ratio, 1.5, "x"),),
        rounds=tuple(many / moved for many, _ in pairs),
        against_rounds=tuple(few / moved for _, few in pairs),
    )
    long.close()
    short.close()


# A restart


def work_here(url: str) -> None:
    """In a process of its own: run jobs until none is left."""
    with Forebay(url) as app:
        app.task(name="bench.nap")(nap)
        with app.run_worker(threads=4):
            while counted(app, "completed") < LOAD:
                time.sleep(0.1)


def nap() -> None:
    time.sleep(NAP_SECONDS)


def counted(app: Forebay, state: str) -> int:
    try:
        return sum(getattr(counts, state) for counts in app.client.counts().values())
    except StoreUnavailable:
        return 0


def restart(rounds: int, **settings: str) -> Iterator[Measurement]:
    """From when the server answers again until a worker has written the next completion."""
    logging.getLogger("forebay").setLevel(logging.ERROR)  # it is away on purpose
    server = RedisServer(**settings)
    url, waits = f"{server.url()}?max_finished=0", []
    with Forebay(url) as app, in_another_process() as process:
        task = app.task(name="bench.nap")(nap)
        app.enqueue_many([task.job() for _ in range(LOAD)])
        working = process.submit(work_here, url)
        for number in range(rounds):
            more_than(app, counted(app, "completed") + 100)
            server.stop()
            server.start()
            began = time.monotonic()
            more_than(app, counted(app, "completed"))
            waits.append(time.monotonic() - began)
            progress("restarts", number + 1, rounds)
        working.result(DEADLINE_SECONDS)
    server.close()
    yield Measurement(
        measure="restart until work goes on",
        ours=median(waits),
        unit=" s",
        against=f"{max(waits):.2g} s at most",
        goals=(at_most(max(waits), 5.0, " s"),),
        rounds=tuple(waits),
    )


def more_than(app: Forebay, jobs: int) -> None:
    ends = time.monotonic() + DEADLINE_SECONDS
    while counted(app, "completed") <= jobs:
        if time.monotonic() > ends:
            raise SystemExit(f"nothing was completed for {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.005)
