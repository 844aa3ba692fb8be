"""Sample app of `make run`: a worker in this program, and the service with its dashboard, until Ctrl-C.

Sample tasks: a blocking one, a coroutine, one that fails now and then and is retried, a long one with
progress, one that fails for good, a workflow and two schedules. Ctrl-C lets running jobs finish. Jobs that
were not started stay in the store for the next run.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from forebay import Forebay, RetryPolicy, chain, current_job, group
from forebay.app.job_context import JobContext
from forebay.domain.job import Job, NewJob
from forebay.domain.outcome import AttemptError

FILE = Path(".forebay-sample/jobs.db")
URL = f"sqlite:///{FILE}"
PEOPLE = ("ada", "grace", "edsger", "barbara", "tony", "margaret")
JOBS_A_SECOND = 4
PORT = 8_080
ANSWER_SECONDS = 10  # Ctrl-C has no effect while the program waits for the service
LINES_BETWEEN = 20  # less than a terminal shows, so the address of the dashboard stays visible
SHORT_ID = slice(6, 15)  # ids of one SQLite file differ in this part within a quarter of an hour

app = Forebay(URL)


@app.task
def greet(name: str) -> str:
    """Blocking task: runs on a thread."""
    time.sleep(random.uniform(0.01, 0.2))
    return f"hello, {name}"


@app.task
async def fetch(url: str) -> int:
    """Coroutine task: runs on an event loop with other coroutines."""
    await asyncio.sleep(random.uniform(0.05, 0.4))
    return 200


@app.task(queue="money", retry_policy=RetryPolicy(base_ms=500, ceiling_ms=2_000, max_retries=5))
def charge(name: str, cents: int, card_token: str) -> None:
    """Fails in one of three attempts, and is retried."""
    time.sleep(0.05)
    if random.random() < 1 / 3:
        raise ConnectionError("the bank does not answer")


@app.task(queue="mail", retry_policy=RetryPolicy(base_ms=300, max_retries=1))
def deliver(address: str) -> None:
    """Fails twice for some addresses: the job becomes a dead letter, which the dashboard shows."""
    if address.startswith("tony"):
        raise ValueError(f"no mailbox is called {address}")


@app.task(queue="reports")
async def count_words(page: str) -> int:
    """Takes a while, and reports progress."""
    for done in range(10):
        current_job().progress(done, 10, f"reading {page}")
        await asyncio.sleep(random.uniform(0.1, 0.5))
    return random.randrange(1_000)


@app.task(queue="reports")
def total() -> int:
    """Last step of a workflow: sums the counts of all pages."""
    found: int = sum(current_job().parent_results())
    return found


@app.cron("* * * * *", name="tidy")
@app.task
def tidy() -> None:
    """Scheduled task: runs once a minute."""


class Screen:
    """Event printer. It repeats the address of the dashboard before that scrolls away."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._lines = 0
        self.reminder = ""

    def event(self, what: str, task: str, job_id: str, detail: str = "") -> None:
        line = f"  {what:9}  {task.rpartition('.')[2]:11}  {job_id[SHORT_ID]}  {detail}"
        with self.lock:
            print(line.rstrip(), flush=True)
            self._lines += 1
            if self.reminder and self._lines % LINES_BETWEEN == 0:
                print(self.reminder, flush=True)


screen = Screen()


@app.middleware
@contextmanager
def report(context: JobContext) -> Iterator[None]:
    """Print the outcome of each attempt."""
    job, began = context.job, time.monotonic()
    try:
        yield
    except Exception as exc:
        screen.event("failed", job.task, job.id, f"attempt {job.attempt}: {exc}")
        raise
    screen.event(
        "completed", job.task, job.id, f"attempt {job.attempt}, {(time.monotonic() - began) * 1_000:.0f} ms"
    )


@app.on_error
def report_dead(job: Job | None, error: AttemptError) -> None:
    if job is not None:
        screen.event("dead", job.task, job.id, "revive it in the dashboard")


def enqueue_one() -> None:
    job = random.choice(jobs_for(random.choice(PEOPLE)))
    with screen.lock:  # the worker may be faster than this thread; its line must come second
        screen.event("enqueued", job.task, app.enqueue_many([job])[0].id)


def jobs_for(name: str) -> list[NewJob]:
    return [
        greet.job(name),
        greet.using(delay=2, priority=5, tags=["later"]).job(f"{name}, two seconds later"),
        fetch.job(f"https://example.com/{name}"),
        charge.job(name, cents=random.randrange(100, 9_900), card_token=f"{random.randrange(10_000):04}"),
        deliver.using(tags=["newsletter"]).job(f"{name}@example.com"),
    ]


def enqueue_report() -> None:
    pages = [count_words.job(f"page {number}") for number in range(1, random.randrange(3, 7))]
    end = total.job()
    [last] = app.workflow(chain(group(*pages), end)).enqueue().last
    screen.event("enqueued", end.task, last.id, f"a workflow, after {len(pages)} times count_words")


def run(seconds: float | None, stop_signals: list[int]) -> None:
    """Enqueue until a stop signal, or until the time is over."""
    ends = None if seconds is None else time.monotonic() + seconds
    with app.run_worker(threads=4):
        enqueue_report()
        while not stop_signals and (ends is None or time.monotonic() < ends):
            time.sleep(1 / JOBS_A_SECOND)
            enqueue_one()
            if random.random() < 1 / 40:
                enqueue_report()
        print("stopping: what runs may end", flush=True)


@contextmanager
def serving(port: int) -> Iterator[str]:
    """Start the service in a child process; yield its address, or nothing if it does not start."""
    command = [sys.executable, "-m", "forebay", "server", "--url", URL, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    with server:
        try:
            line = server.stdout.readline() if server.stdout else b""
            yield line.decode().rpartition(" ")[2].strip()
        finally:
            server.terminate()


def free(port: int) -> int:
    """Return this port, or 0 for any if it is taken."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return port if trial.connect_ex(("127.0.0.1", port)) else 0


def greeting(address: str) -> str:
    """Return the address of the dashboard, or why there is none and the remedy."""
    if not address:
        return "there is no dashboard, because the service did not start: pip install 'forebay[server]'"
    page = f"{address}/dashboard/"
    try:
        urlopen(page, timeout=ANSWER_SECONDS).close()  # noqa: S310 - our own service
    except HTTPError as exc:
        return f"there is no dashboard. {exc.read().decode().strip()} The API is at {address}"
    except (URLError, TimeoutError) as exc:
        return f"there is no dashboard: {address} does not answer ({getattr(exc, 'reason', exc)})"
    return f"the dashboard is at {page}"


def count(what: str) -> int:
    return sum(getattr(counts, what) for counts in app.client.counts().values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, help="stop after this long (at Ctrl-C)")
    parser.add_argument("--port", type=int, default=PORT, help="where the dashboard is (8080)")
    options = parser.parse_args()
    # A signal handler interrupts this thread, so it must not take a lock that the loop may hold, as an
    # Event does.
    stop_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    FILE.parent.mkdir(exist_ok=True)
    with app:
        completed, dead = count("completed"), count("dead")
        app.schedules.save("weekly-digest", deliver, ["all@example.com"], cron="30 6 * * 1")
        print(f"jobs are kept in {FILE}, {count('live')} wait from the last time; Ctrl-C stops", flush=True)
        with serving(free(options.port)) as address:
            where = greeting(address)
            if "/dashboard/" in where:
                screen.reminder = where
            print(where, flush=True)
            run(options.seconds, stop_signals)
        print(
            f"stopped; {count('completed') - completed} completed, {count('dead') - dead} dead, "
            f"{count('live')} wait for the next time"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
