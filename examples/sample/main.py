"""An app with a worker inside it: a few jobs every second until Ctrl-C: `make run`.

Three sample tasks: a blocking one, a coroutine, and one that fails now and then and is tried again. The
worker runs in this program. Ctrl-C lets the jobs that run come to their end; what was not started stays in
the store, and the next run begins with it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from forebay import Forebay, JobHandle, RetryPolicy, current_job

FILE = Path(".forebay-sample/jobs.db")
PEOPLE = ("ada", "grace", "edsger", "barbara", "tony", "margaret")
JOBS_A_SECOND = 4

app = Forebay(f"sqlite:///{FILE}")


@app.task
def greet(name: str) -> str:
    """A blocking task: it runs on a thread."""
    time.sleep(random.uniform(0.01, 0.2))
    tell(f"hello, {name}")
    return f"hello, {name}"


@app.task
async def fetch(url: str) -> int:
    """A coroutine task: it runs on an event loop with the others of its kind."""
    await asyncio.sleep(random.uniform(0.05, 0.4))
    tell(f"fetched {url}")
    return 200


@app.task(queue="money", retry=RetryPolicy(base_ms=500, ceiling_ms=2_000, max_retries=5))
def charge(name: str, cents: int) -> None:
    """Fails in one of three attempts, and is tried again."""
    time.sleep(0.05)
    if random.random() < 1 / 3:
        tell(f"charging {name} fails, to be tried again")
        raise ConnectionError("the bank does not answer")
    tell(f"charged {name} {cents / 100:.2f}")


def tell(text: str) -> None:
    job = current_job()
    print(f"  ran      {job.id}  attempt {job.attempt}  {text}", flush=True)


def enqueue_one() -> JobHandle[Any]:
    name = random.choice(PEOPLE)
    choices: tuple[Callable[[], JobHandle[Any]], ...] = (
        lambda: greet.enqueue(name),
        lambda: greet.using(delay=2, priority=5).enqueue(f"{name}, two seconds later"),
        lambda: fetch.enqueue(f"https://example.com/{name}"),
        lambda: charge.enqueue(name, cents=random.randrange(100, 9_900)),
    )
    return random.choice(choices)()


def run(seconds: float | None, asked: Event) -> None:
    """Enqueue until somebody asks for a stop, or the time is over."""
    ends = None if seconds is None else time.monotonic() + seconds
    with app.working(threads=4):
        while not asked.wait(1 / JOBS_A_SECOND) and (ends is None or time.monotonic() < ends):
            job = enqueue_one()
            print(f"  enqueued {job.id}", flush=True)
        print("stopping: what runs may end", flush=True)


def total(what: str) -> int:
    return sum(getattr(counts, what) for counts in app.client.counts().values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, help="stop after this long (at Ctrl-C)")
    seconds = parser.parse_args().seconds
    asked = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    FILE.parent.mkdir(exist_ok=True)
    with app:
        completed, dead = total("completed"), total("dead")
        print(f"jobs are kept in {FILE}, {total('live')} wait from the last time; Ctrl-C stops", flush=True)
        run(seconds, asked)
        print(
            f"stopped; {total('completed') - completed} completed, {total('dead') - dead} dead, "
            f"{total('live')} wait for the next time"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
