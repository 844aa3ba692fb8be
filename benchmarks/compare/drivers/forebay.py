"""Forebay as installed: the public API and default settings, with results, checks and history."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.compare.notes import note
from forebay import Forebay

QUEUES: Final = tuple(f"q{number}" for number in range(1, 9))
app = Forebay(os.environ["COMPARE_URL"])


@app.task(name="noop")
def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


@app.task(name="noop_async")
async def noop_async(argument: dict[str, Any]) -> None:
    note(argument["t"])


def setup() -> None:
    app.counts()  # the first call makes the tables


def enqueue(argument: dict[str, Any]) -> None:
    noop.enqueue(argument)


def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    app.enqueue_many([noop.job(argument) for argument in arguments])


def fill(jobs: int) -> None:
    for _ in range(0, jobs, 1_000):
        bulk([{"t": 0.0}] * 1_000)


def mixed(arguments: Sequence[dict[str, Any]]) -> None:
    kinds = (noop, noop_async)
    app.enqueue_many([kinds[number % 2].job(argument) for number, argument in enumerate(arguments)])


def unfinished() -> int:
    """How many jobs are not final. Those that are completed cannot be counted instead: not all are kept."""
    return sum(
        counts.scheduled + counts.blocked + counts.pending + counts.running + counts.retrying
        for counts in app.counts().values()
    )


def queues(arguments: Sequence[dict[str, Any]]) -> None:
    calls = [noop.using(queue=queue) for queue in QUEUES]
    app.enqueue_many([calls[number % len(calls)].job(one) for number, one in enumerate(arguments)])
