"""RQ with its SimpleWorker, which runs jobs in its own process (its default forks for each); no results."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import redis
from rq import Queue, SimpleWorker

from benchmarks.compare.notes import note

NOOP = "benchmarks.compare.drivers.rq.noop"
client = redis.Redis.from_url(os.environ["COMPARE_URL"])
queue = Queue("default", connection=client)


def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


def enqueue(argument: dict[str, Any]) -> None:
    queue.enqueue(NOOP, argument, result_ttl=0)


def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    queue.enqueue_many([Queue.prepare_data(NOOP, (argument,), result_ttl=0) for argument in arguments])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    SimpleWorker([queue], connection=client).work(logging_level="ERROR")
