"""dramatiq on Redis, without a result backend, which is its default."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.compare.notes import note

broker = RedisBroker(url=os.environ["COMPARE_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


def enqueue(argument: dict[str, Any]) -> None:
    noop.send(argument)


def fill(jobs: int) -> None:
    """What its script does for each message: the message into a hash, its id onto a list."""
    for _ in range(0, jobs, 1_000):
        pipe = broker.client.pipeline(transaction=False)
        for _ in range(1_000):
            message = noop.message({"t": 0.0})
            message = message.copy(options={"redis_message_id": message.message_id})
            pipe.hset("dramatiq:default.msgs", message.message_id, message.encode())
            pipe.rpush("dramatiq:default", message.message_id)
        pipe.execute()
