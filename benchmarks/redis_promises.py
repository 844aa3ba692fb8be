"""Promises of the Redis engine that need numbers: memory, how long a server is busy, how soon work goes on.

The first part enqueues and finishes a hundred thousand jobs and asks the server what they take.

The second part finishes a million jobs, lowers `keep` to 1 and prunes, while a thread enqueues and completes
jobs one by one. The server itself says how long each script took. Where the machine has no core left for it,
even single commands take long; the longest of those stands beside.

The third part stops a server for some seconds under a worker and a program that enqueues, several times, and
measures from its return to the next job done.

    python -m benchmarks.redis_promises           the full size: some four minutes
    python -m benchmarks.redis_promises --quick   a hundred thousand jobs, and two outages
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import redis

from benchmarks.measurements import Measurement, at_most, machine, parser, show, write
from forebay import Forebay
from forebay.domain.job import DEFAULT_QUEUE, NewJob, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.redis import pruner
from forebay.stores.redis.lua_scripts import load_scripts
from tests.redis_server import RedisServer

WORKER: Final = WorkerId("w")
BATCH: Final = 100
JOB: Final = NewJob(task="t", payload=b"x" * 100)
WEIGHED: Final = 100_000
MOST_BYTES: Final = 700.0
STEP: Final = pruner.JOBS_AT_ONCE
SLOW_US: Final = 500
LONGEST_MS: Final = 10.0
RETURN_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0


def main() -> None:
    options = parser(__doc__).parse_args()
    before = machine()
    jobs, outages = (100_000, (0.5, 3.0)) if options.quick else (1_000_000, (0.5, 3.0, 10.0) * 3)
    measurements = [*memory(), *history(jobs), *returns(outages)]
    show("Redis: promises", measurements)
    write(options.json, before, measurements)


# What jobs take


def memory() -> Iterator[Measurement]:
    server = RedisServer()
    try:
        url = f"{server.url()}?persistence=none&max_finished=0"
        with redis.Redis(port=server.port) as admin, closing(open_engine(url).store()) as store:
            store.insert([JOB])
            complete_some(store, 1)
            empty = used(admin)
            for _ in range(0, WEIGHED, BATCH):
                store.insert([JOB] * BATCH)
            waiting = (used(admin) - empty) / WEIGHED
            while complete_some(store, BATCH):
                pass
            finished = (used(admin) - empty) / WEIGHED
    finally:
        server.close()
    goals = (at_most(waiting, MOST_BYTES, " bytes"),)
    yield Measurement(measure="a waiting job with 100 bytes takes", ours=waiting, unit=" bytes", goals=goals)
    yield Measurement(measure="a completed job with 100 bytes takes", ours=finished, unit=" bytes")


def used(admin: redis.Redis) -> int:
    return int(admin.info("memory")["used_memory"])


# How long the server is busy


def history(jobs: int) -> Iterator[Measurement]:
    server = RedisServer(**{"slowlog-log-slower-than": str(SLOW_US), "slowlog-max-len": "100000"})
    try:
        with closing(open_engine(f"{server.url()}?persistence=none&max_finished=0").store()) as store:
            finish(store, jobs)
        with redis.Redis(port=server.port) as admin, closing(lowered(server)) as store:
            yield cpu_of_a_step(admin, store)
            with load(server) as done:
                admin.slowlog_reset()
                started, first = time.monotonic(), len(done)
                gone = 0
                while went := store.prune():
                    gone += went
                seconds = time.monotonic() - started
                against = f"{(len(done) - first) / seconds:,.0f} jobs/s done beside"
            scripts, plain = longest(admin)
    finally:
        server.close()
    yield Measurement(
        measure=f"history of {jobs:,} goes, jobs", ours=gone / seconds, unit="/s", against=against
    )
    for name, ms in scripts:
        goals = (at_most(ms, LONGEST_MS, " ms"),)
        against = f"{plain:.3g} ms one command"
        yield Measurement(
            measure=f"longest {name} meanwhile", ours=ms, unit=" ms", against=against, goals=goals
        )


def cpu_of_a_step(admin: redis.Redis, store: Store) -> Measurement:
    """By the processor's time, which a busy machine does not change much."""
    before = cpu_ms(admin)
    gone = sum(store.prune() for _ in range(20))
    ms = (cpu_ms(admin) - before) / (gone / STEP)
    goals = (at_most(ms, LONGEST_MS, " ms"),)
    return Measurement(measure=f"{STEP} jobs go, CPU of the server", ours=ms, unit=" ms", goals=goals)


def cpu_ms(admin: redis.Redis) -> float:
    info = admin.info("cpu")
    return 1_000 * float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])


def lowered(server: RedisServer) -> Store:
    return open_engine(f"{server.url()}?persistence=none&max_finished=1").store()


def finish(store: Store, jobs: int) -> None:
    for _ in range(0, jobs, BATCH):
        store.insert([JOB] * BATCH)
        complete_some(store, BATCH)


def complete_some(store: Store, most: int) -> int:
    claimed = store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT_QUEUE, most)], room=most).jobs
    return len(store.settle_and_claim(WORKER, [decide(job, Completed(b"1"), 0.0) for job in claimed]).settled)


@contextmanager
def load(server: RedisServer) -> Iterator[list[int]]:
    """A client that enqueues and completes one job after the other; a line for each in what is given."""
    done: list[int] = []
    is_over = threading.Event()

    def work() -> None:
        with closing(lowered(server)) as store:
            while not is_over.is_set():
                store.insert([JOB])
                done.append(complete_some(store, 1))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        is_over.set()
        thread.join()


def longest(admin: redis.Redis) -> tuple[list[tuple[str, float]], float]:
    """The longest run of each script that was ever slow, in milliseconds by the server's clock, and that of
    any one command: on a machine that has no time for the server, it is not short either."""
    names = {script.digest.encode(): name for name, script in load_scripts().items()}
    scripts: dict[str, float] = {}
    plain = 0.0
    slow: list[dict[str, Any]] = admin.slowlog_get(100_000)
    for one in slow:
        words, ms = one["command"].split(), one["duration"] / 1_000
        name = names.get(words[1]) if words[0].upper() == b"EVALSHA" else None
        if name is not None:
            scripts[name] = max(scripts.get(name, 0.0), ms)
        elif words[0].upper() not in (b"SLOWLOG", b"SCRIPT"):
            plain = max(plain, ms)
    return sorted(scripts.items(), key=lambda pair: -pair[1]), plain


# How soon work goes on


def returns(outages: tuple[float, ...]) -> Iterator[Measurement]:
    server = RedisServer(appendonly="yes", appendfsync="always")
    try:
        with Forebay(server.url()) as app:
            done: list[float] = []

            @app.task(name="note")
            def note() -> None:
                done.append(time.monotonic())

            is_over = threading.Event()

            def produce() -> None:
                while not is_over.wait(0.005):
                    try:
                        note.enqueue()
                    except StoreUnavailable:
                        continue

            producer = threading.Thread(target=produce)
            with app.run_worker(threads=2):
                producer.start()
                waits = [after_return(server, seconds, done) for seconds in outages]
                is_over.set()
                producer.join()
    finally:
        server.close()
    yield Measurement(
        measure=f"next job after {len(waits)} outages, longest",
        ours=max(waits),
        unit=" s",
        goals=(at_most(max(waits), RETURN_SECONDS, " s"),),
        rounds=tuple(waits),
    )


def after_return(server: RedisServer, seconds: float, done: list[float]) -> float:
    """How long a server that was away so long had been back when the next job was done."""
    wait_for_more(done, 50)
    server.stop()
    time.sleep(seconds)
    server.start()
    back, before = time.monotonic(), len(done)
    wait_for_more(done, 1)
    return done[before] - back


def wait_for_more(done: list[float], jobs: int) -> None:
    until, enough = time.monotonic() + PATIENCE_SECONDS, len(done) + jobs
    while len(done) < enough:
        if time.monotonic() > until:
            raise RuntimeError("work does not go on")
        time.sleep(0.002)


if __name__ == "__main__":
    main()
