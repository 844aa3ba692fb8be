"""What the Redis store costs, beside bare keys on the same server: `make bench WHAT=redis`.

A server of its own is started, with an append-only file that is synced every second. Each pair is measured
alternately and the median of the rounds counts. The bare keys are a hash of payloads, a sorted set of what
waits and one of what runs, with no promises; their drain completes the last jobs and claims the next in one
script. `--json FILE` writes the measurements, `--quick` uses a tenth of the sizes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import redis

from benchmarks.measurements import ARGUMENT, Measurement, compared, machine, parser, show, write
from benchmarks.places import progress
from benchmarks.postgres import BATCH, JOB, SLICE, Span, against_last, alternating, speed, speed_of_ours
from benchmarks.redis_load import backlog, pick_up, restart
from forebay import Forebay
from forebay.domain.job import NewJob
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer

DURABLE: Final = {"appendonly": "yes", "appendfsync": "everysec"}
LOOK_SECONDS: Final = 0.005

KEYS: Final = ("{bare}:jobs", "{bare}:ready", "{bare}:seq", "{bare}:running")
BARE_INSERT: Final = """
local id = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], id, ARGV[1])
redis.call('ZADD', KEYS[2], 1, id)
return id
"""
BARE_SETTLE_AND_CLAIM: Final = """
if #ARGV > 1 then
  redis.call('ZREM', KEYS[4], unpack(ARGV, 2))
  redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
end
local found = redis.call('ZPOPMIN', KEYS[2], ARGV[1])
if #found == 0 then
  return {{}, {}}
end
local ids, leases = {}, {}
for i = 1, #found, 2 do
  ids[#ids + 1] = found[i]
  leases[#leases + 1] = 9
  leases[#leases + 1] = found[i]
end
redis.call('ZADD', KEYS[4], unpack(leases))
return {ids, redis.call('HMGET', KEYS[1], unpack(ids))}
"""


class Stores:
    """Stores on one server, each in a namespace of its own; one is emptied when the next is asked for."""

    def __init__(self, server: RedisServer) -> None:
        self._url = server.url()
        self._admin = redis.Redis(port=server.port)
        self._numbers = count(1)

    def __iter__(self) -> Stores:
        return self

    def __next__(self) -> str:
        self._admin.flushall()
        return f"{self._url}?namespace=bench-{next(self._numbers)}"


# Inserts


def inserts(url: str, admin: redis.Redis, calls: int, rounds: int) -> Iterator[Measurement]:
    """One by one and in thousands, through a task and at the store. The bare values are the same payload."""

    def send(argument: dict[str, object]) -> None:
        """No worker runs it."""

    with Forebay(url) as app:
        task = app.task(name="send")(send)
        job = NewJob(task="send", payload=task.job(ARGUMENT).payload)
        store = open_engine(url).store()
        store.insert([job])
        bare = admin.register_script(BARE_INSERT)
        one: list[Callable[[], object]] = [
            lambda: task.enqueue(ARGUMENT),
            lambda: store.insert([job]),
            lambda: bare(keys=KEYS[:3], args=[job.payload]),
        ]
        many: list[Callable[[], object]] = [
            lambda: app.enqueue_many([task.job(ARGUMENT) for _ in range(1_000)]),
            lambda: store.insert([job] * 1_000),
            lambda: pushed(admin, 1_000, job.payload),
        ]
        singles, bulks = [], []
        for number in range(rounds):
            singles.append(alternating(one, calls, SLICE))
            bulks.append([1_000 * speed for speed in alternating(many, calls // 50, 1)])
            progress("inserts", number + 1, rounds)
        store.close()
    yield compared("enqueue one by one", against_last(singles, 0), of_raw=0.85)
    yield compared("insert one by one, at the store", against_last(singles, 1), of_raw=0.85)
    yield compared("enqueue by 1,000 (raw: LPUSH)", against_last(bulks, 0), of_raw=0.4, each_second=45_000)
    yield compared("insert by 1,000, at the store", against_last(bulks, 1), of_raw=0.4)


def pushed(admin: redis.Redis, jobs: int, payload: bytes) -> None:
    """One LPUSH for each, sent together."""
    with admin.pipeline(transaction=False) as pipeline:
        for _ in range(jobs):
            pipeline.lpush("{bare}:list", payload)
        pipeline.execute()


# Drains


def drains(stores: Stores, port: int, jobs: int, rounds: int) -> Iterator[Measurement]:
    """Settle what was claimed and claim the next, again and again, until nothing is left: at the store, and
    by worker processes of four threads with jobs that do nothing."""
    ways: dict[str, Callable[[], float]] = {}
    for processes in (1, 2):
        by = f"by {processes} process{'es' if processes > 1 else ''}"
        ways[f"drain {by}, at the store"] = partial(drained, stores, jobs, processes)
        ways[f"drain {by}"] = partial(worked, stores, jobs, processes)
        ways[f"raw {by}"] = partial(bare, port, stores, jobs, processes)
    speeds: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for way, work in ways.items():
            speeds[way].append(work())
        progress("drains", number + 1, rounds)
    for way in ways:
        if way.startswith("drain"):
            raw = speeds["raw by 1 process"]
            goal = 27_000 if way == "drain by 2 processes" else 0
            pairs = list(zip(speeds[way], raw, strict=True))
            yield compared(way, pairs, of_raw=0.35, each_second=goal)
    yield compared(
        "raw by 2 processes", list(zip(speeds["raw by 2 processes"], speeds["raw by 1 process"], strict=True))
    )


def drained(stores: Stores, jobs: int, processes: int) -> float:
    return speed_of_ours(next(stores), jobs, processes, BATCH)


def worked(stores: Stores, jobs: int, processes: int) -> float:
    url = next(stores)
    with Forebay(url) as app:
        task = app.task(name="bench.noop")(nothing)
        for _ in range(0, jobs, 1_000):
            app.enqueue_many([task.job(ARGUMENT) for _ in range(1_000)])
    return speed(processes, partial(span_of_worker, url))


def nothing(argument: dict[str, Any]) -> None:
    pass


def span_of_worker(url: str, _: int) -> Span:
    """From the first line of the first job here until the last completion of all is written. History goes
    meanwhile, as it does by default."""
    began: list[float] = []
    mine = count()

    def noop(argument: dict[str, Any]) -> None:
        if next(mine) == 0:
            began.append(time.monotonic())

    with Forebay(url) as app:
        app.task(name="bench.noop")(noop)
        with app.run_worker(threads=4):
            while any(counts.pending or counts.running for counts in app.client.counts().values()):
                time.sleep(LOOK_SECONDS)
            ended = time.monotonic()
    return Span(next(mine), began[0] if began else ended, ended)


def bare(port: int, stores: Stores, jobs: int, processes: int) -> float:
    next(stores)
    admin = redis.Redis(port=port)
    insert = admin.register_script(BARE_INSERT)
    for _ in range(0, jobs, 1_000):
        with admin.pipeline(transaction=False) as pipeline:
            for _ in range(1_000):
                insert(keys=KEYS[:3], args=[JOB.payload], client=pipeline)
            pipeline.execute()
    return speed(processes, partial(span_of_bare, port))


def span_of_bare(port: int, _: int) -> Span:
    admin = redis.Redis(port=port)
    turn = admin.register_script(BARE_SETTLE_AND_CLAIM)
    ids: list[bytes] = []
    jobs, began = 0, time.monotonic()
    while True:
        ids, payloads = turn(keys=KEYS, args=[BATCH, *ids])
        if not ids:
            return Span(jobs, began, time.monotonic())
        jobs += len(payloads)


def main() -> int:
    options = parser(__doc__).parse_args()
    scale, rounds = (10, 2) if options.quick else (1, options.rounds)
    before = machine()
    server = RedisServer(**DURABLE)
    try:
        stores = Stores(server)
        with redis.Redis(port=server.port) as admin:
            measurements = [*inserts(next(stores), admin, 2_000 // scale, rounds)]
            measurements += drains(stores, server.port, 50_000 // scale, rounds)
            measurements += pick_up(stores, server.port, rounds, 5.0 / scale)
            measurements += backlog(next(stores), admin, 1_000_000 // scale, rounds)
    finally:
        server.close()
    measurements += restart(rounds, **DURABLE)
    show("Redis", measurements)
    write(options.json, before, measurements)
    return 0


if __name__ == "__main__":
    sys.exit(main())
