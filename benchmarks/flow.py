"""Jobs that depend on others, on one store: `make bench WHAT=flow URL=sqlite:////tmp/flow.db`.

- A fan-out: one job, 10,000 that depend on it, and one that depends on all of these, inserted by one call
  and run to the end by a loop that completes a hundred and claims the next hundred; beside as many jobs that
  depend on nothing, in the same loop, in turns. The goal is half of that speed. Where others use the machine
  too, processor time says more.
- A race (`--race`): a process inserts children while another one ends their parents, 10,000 times. None may
  stay blocked, and each runs once.

What it does not show: the time of a task, and several workers at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from statistics import median
from typing import Final, NamedTuple

from benchmarks.cpu import Seconds, taken
from benchmarks.measurements import Measurement, at_least, show
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.queue_counts import Counts
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import InsertResult, QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

QUEUE: Final = QueueName("flow")
WORKER: Final = WorkerId("bench")
BATCH: Final = 100
ROUNDS: Final = 9
GOAL: Final = 0.5
PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.001


def plain(size: int) -> list[NewJob]:
    return [NewJob(task="noop", payload=b"x" * 100, queue=QUEUE)] * size


def fan(size: int) -> list[NewJob]:
    """A root, `size` jobs that depend on it, and one that depends on them all."""
    root = NewJob(task="noop", payload=b"x" * 100, queue=QUEUE)
    middle = [
        NewJob(task="noop", payload=b"x" * 100, queue=QUEUE, depends_on=dependencies_of([at]))
        for at in range(1, size + 1)
    ]
    join = NewJob(
        task="noop", payload=b"x" * 100, queue=QUEUE, depends_on=dependencies_of(range(size, 0, -1))
    )
    return [root, *middle, join]


class Run(NamedTuple):
    """How fast jobs went, from the insert to the last end, and what each of them cost."""

    per_second: float
    cpu_us: float


def timed(store: Store, jobs: Sequence[NewJob], cpu: Seconds) -> Run:
    start, had = time.perf_counter(), cpu()
    store.insert(jobs)
    done: Sequence[Job] = ()
    left = len(jobs)
    while left:
        ends = [decide(job, Completed(b"1"), 0.0) for job in done]
        done = store.settle_and_claim(WORKER, ends, [QueueClaim(QUEUE, BATCH)], BATCH).jobs
        if not done:
            store.promote()
        left -= len(done)
    store.settle_and_claim(WORKER, [decide(job, Completed(b"1"), 0.0) for job in done])
    return Run(len(jobs) / (time.perf_counter() - start), (cpu() - had) / len(jobs) * 1e6)


def fan_out(url: str, size: int) -> list[Measurement]:
    with closing(open_engine(url).store()) as store:
        cpu = taken(url)
        timed(store, plain(BATCH), cpu)
        pairs = [(timed(store, fan(size), cpu), timed(store, plain(size + 2), cpu)) for _ in range(ROUNDS)]
    speeds = [(ours.per_second, against.per_second) for ours, against in pairs]
    costs = [(ours.cpu_us, against.cpu_us) for ours, against in pairs]
    return [
        measurement(
            f"a fan-out of {size:,} with a join", "/s", speeds, [ours / against for ours, against in speeds]
        ),
        measurement(
            "processor time of a job of it", "us", costs, [against / ours for ours, against in costs]
        ),
    ]


def measurement(
    measure: str, unit: str, pairs: Sequence[tuple[float, float]], ratios: Sequence[float]
) -> Measurement:
    ratio = median(ratios)
    return Measurement(
        measure=measure,
        ours=median(pair[0] for pair in pairs),
        unit=unit,
        against=f"{median(pair[1] for pair in pairs):,.0f}{unit} plain",
        ratio=ratio,
        goals=(at_least(ratio, GOAL, " of plain"),),
        rounds=tuple(pair[0] for pair in pairs),
        against_rounds=tuple(pair[1] for pair in pairs),
    )


# The race


def produce(url: str, times: int, is_over: Event) -> None:
    """Insert a child of the last parent, while a worker may be ending that one, and the next parent with it;
    again and again."""
    parent = NewJob(task="parent", queue=QUEUE)
    with closing(open_engine(url).store()) as store:
        [last] = store.insert([parent])
        for _ in range(times - 1):
            last, _ = reversed(store.insert([child_of(last), parent]))
        store.insert([child_of(last)])
    is_over.set()


def child_of(parent: InsertResult) -> NewJob:
    return NewJob(task="child", queue=QUEUE, depends_on=dependencies_of([parent.id or 0]))


def consume(url: str, is_over: Event) -> int:
    """End whatever comes, one by one, until there is nothing more; how many children have run."""
    children, last = 0, time.monotonic()
    with closing(open_engine(url).store()) as store:
        done: Sequence[Job] = ()
        while time.monotonic() - last < PATIENCE_SECONDS:
            was_over = is_over.is_set()
            ends = [decide(job, Completed(), 0.0) for job in done]
            done = store.settle_and_claim(WORKER, ends, [QueueClaim(QUEUE, 3)], 3).jobs
            children += sum(job.task == "child" for job in done)
            if done:
                last = time.monotonic()
            elif was_over and not store.promote():
                break
            else:
                is_over.wait(PAUSE_SECONDS)  # who asks without a pause keeps the other one from inserting
    return children


def race(url: str, times: int) -> tuple[int, Counts]:
    """How many children have run, and what is left of all jobs."""
    context = get_context("spawn")
    is_over = context.Event()
    with closing(open_engine(url).store()) as store:
        store.save_queue(QUEUE)
    producer = context.Process(target=produce, args=(url, times, is_over))
    producer.start()
    try:
        children = consume(url, is_over)
    finally:
        producer.join()
    with closing(open_engine(url).reader()) as reader:
        return children, reader.counts([QUEUE])[QUEUE]


def main() -> None:
    """Measure, or let them race; the status is 1 if a goal is missed or a promise broken."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("url", help="the address of an empty store")
    options.add_argument("--size", type=int, default=10_000)
    options.add_argument(
        "--race", type=int, metavar="TIMES", help="children inserted while their parents end"
    )
    chosen = options.parse_args()
    if chosen.race:
        children, counts = race(chosen.url, chosen.race)
        print(f"{children:,} of {chosen.race:,} children have run; {counts.live} jobs are left")
        sys.exit(children != chosen.race or counts.live != 0)
    measurements = fan_out(chosen.url, chosen.size)
    show("Jobs that depend on others", measurements)
    sys.exit(not all(goal.is_met for found in measurements for goal in found.goals))


if __name__ == "__main__":
    main()
