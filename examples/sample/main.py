"""An app with a worker inside it, and the service with its dashboard beside it, until Ctrl-C: `make run`.

Sample tasks: a blocking one, a coroutine, one that fails now and then and is tried again, one that takes long
and says how far it is, one that fails for good, a workflow and two schedules. The worker runs in this
program. Ctrl-C lets the jobs that run come to their end; what was not started stays in the store, and the
next run begins with it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay import Forebay, RetryPolicy, chain, current_job, group

FILE = Path(".forebay-sample/jobs.db")
URL = f"sqlite:///{FILE}"
PEOPLE = ("ada", "grace", "edsger", "barbara", "tony", "margaret")
JOBS_A_SECOND = 4
PORT = 8_080

app = Forebay(URL)


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
def charge(name: str, cents: int, card_token: str) -> None:
    """Fails in one of three attempts, and is tried again."""
    time.sleep(0.05)
    if random.random() < 1 / 3:
        tell(f"charging {name} fails, to be tried again")
        raise ConnectionError("the bank does not answer")
    tell(f"charged {name} {cents / 100:.2f}")


@app.task(queue="mail", retry=RetryPolicy(base_ms=300, max_retries=1))
def deliver(address: str) -> None:
    """Fails twice for some, and goes to the dead letters: look for them in the dashboard."""
    if address.startswith("tony"):
        raise ValueError(f"no mailbox is called {address}")
    tell(f"delivered to {address}")


@app.task(queue="reports")
async def count_words(page: str) -> int:
    """Takes a while, and says how far it is."""
    for done in range(10):
        current_job().progress(done, 10, f"reading {page}")
        await asyncio.sleep(random.uniform(0.1, 0.5))
    return random.randrange(1_000)


@app.task(queue="reports")
def total() -> int:
    """The end of a workflow: all pages have been counted."""
    found: int = sum(current_job().results())
    tell(f"{found} words")
    return found


@app.cron("* * * * *", name="tidy")
@app.task
def tidy() -> None:
    """By the clock: once a minute."""
    tell("tidy")


def tell(text: str) -> None:
    job = current_job()
    print(f"  ran      {job.id}  attempt {job.attempt}  {text}", flush=True)


def enqueue_one() -> str:
    name = random.choice(PEOPLE)
    choices: tuple[Callable[[], Any], ...] = (
        lambda: greet.enqueue(name),
        lambda: greet.using(delay=2, priority=5, tags=["later"]).enqueue(f"{name}, two seconds later"),
        lambda: fetch.enqueue(f"https://example.com/{name}"),
        lambda: charge.enqueue(
            name, cents=random.randrange(100, 9_900), card_token=f"{random.randrange(10_000):04}"
        ),
        lambda: deliver.using(tags=["newsletter"]).enqueue(f"{name}@example.com"),
    )
    return str(random.choice(choices)().id)


def enqueue_report() -> None:
    pages = [count_words.job(f"page {number}") for number in range(1, random.randrange(3, 7))]
    app.workflow(chain(group(*pages), total.job())).enqueue()


def run(seconds: float | None, asked: list[int]) -> None:
    """Enqueue until somebody asks for a stop, or the time is over."""
    ends = None if seconds is None else time.monotonic() + seconds
    with app.working(threads=4):
        enqueue_report()
        while not asked and (ends is None or time.monotonic() < ends):
            time.sleep(1 / JOBS_A_SECOND)
            print(f"  enqueued {enqueue_one()}", flush=True)
            if random.random() < 1 / 40:
                enqueue_report()
        print("stopping: what runs may end", flush=True)


@contextmanager
def serving(port: int) -> Iterator[str]:
    """The service beside this program, as somebody would start it; its address."""
    command = [sys.executable, "-m", "forebay", "server", "--url", URL, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    with server:
        try:
            line = server.stdout.readline() if server.stdout else b""
            yield line.decode().rpartition(" ")[2].strip()
        finally:
            server.terminate()


def free(port: int) -> int:
    """This port, or 0 for any if somebody has it."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return port if trial.connect_ex(("127.0.0.1", port)) else 0


def count(what: str) -> int:
    return sum(getattr(counts, what) for counts in app.client.counts().values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, help="stop after this long (at Ctrl-C)")
    parser.add_argument("--port", type=int, default=PORT, help="where the dashboard is (8080)")
    options = parser.parse_args()
    # A handler interrupts this very thread, so it must take no lock that the loop may hold, as an Event does.
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: asked.append(received))
    FILE.parent.mkdir(exist_ok=True)
    with app:
        completed, dead = count("completed"), count("dead")
        app.schedules.save("weekly-digest", deliver, ["all@example.com"], cron="30 6 * * 1")
        print(f"jobs are kept in {FILE}, {count('live')} wait from the last time; Ctrl-C stops", flush=True)
        with serving(free(options.port)) as address:
            where = f"{address}/dashboard/" if address else "not there: pip install 'forebay[server]'"
            print(f"the dashboard is {where}", flush=True)
            run(options.seconds, asked)
        print(
            f"stopped; {count('completed') - completed} completed, {count('dead') - dead} dead, "
            f"{count('live')} wait for the next time"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
