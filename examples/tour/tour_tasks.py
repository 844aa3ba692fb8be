"""The app of the tour and its tasks, as the workers and the tour itself import them.

Every task writes to an effects file when it starts and when it ends: this stands for what jobs do in the
world, outside of the store, and the tour compares the two at its end.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from forebay import Forebay, RetryPolicy, current_job

app = Forebay(os.environ.get("TOUR_STORE", "sqlite:///tour.db"))
effects = os.open(os.environ.get("TOUR_EFFECTS", "tour-effects.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

SOON = RetryPolicy(base_ms=300, ceiling_ms=2_000)


@app.task(queue="mail")
def letter(to: str, ms: int) -> str:
    """Blocking task."""
    with in_the_effects():
        time.sleep(ms / 1_000)
        return f"sent to {to}"


@app.task(queue="mail")
async def ping(ms: int) -> None:
    """Coroutine task."""
    with in_the_effects():
        await asyncio.sleep(ms / 1_000)


@app.task(queue="reports")
def report(pages: int, ms: int) -> int:
    """Task of the second queue."""
    with in_the_effects():
        time.sleep(ms / 1_000)
        return pages


@app.task(queue="reports", retry_policy=SOON)
def flaky(ms: int) -> str:
    """Fails twice, then works."""
    with in_the_effects():
        time.sleep(ms / 1_000)
        if current_job().job.failures < 2:
            raise ConnectionError("the other side hung up")
        return "at last"


@app.task(queue="mail", retries=2, retry_policy=SOON)
def hopeless() -> None:
    """Fails in every attempt, and becomes a dead letter after its second retry."""
    with in_the_effects():
        raise LookupError("there is no such address")


@contextmanager
def in_the_effects() -> Iterator[None]:
    _write("start")
    try:
        yield
    except BaseException:
        _write("fail")
        raise
    _write("end")


def _write(what: str) -> None:
    # One write to a file opened for appending is one line, however many processes write.
    job = current_job()
    os.write(effects, f"{what} {job.id} {job.attempt} {os.getpid()}\n".encode())
