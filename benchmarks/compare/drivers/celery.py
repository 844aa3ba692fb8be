"""Celery on Redis: no result backend, early acknowledgement (its default), so a crash loses jobs."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from benchmarks.compare.notes import note

app = Celery("b", broker=os.environ["COMPARE_URL"])
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=64,
)


@app.task(name="noop")
def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])


def enqueue(argument: dict[str, Any]) -> None:
    noop.apply_async((argument,))
