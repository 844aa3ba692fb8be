"""persist-queue: a bare queue with acknowledgements in SQLite (synchronous FULL); its worker is a loop with a
sleep of 5 ms."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

from persistqueue import Empty, SQLiteAckQueue

from benchmarks.compare.notes import note


@cache
def queue() -> Any:
    folder = f"{os.path.dirname(os.environ['COMPARE_URL'].removeprefix('sqlite:///'))}/persist"
    return SQLiteAckQueue(folder, auto_commit=True, multithreading=False)


def setup() -> None:
    queue()


def enqueue(argument: dict[str, Any]) -> None:
    queue().put(argument)


def main() -> None:
    while True:
        try:
            argument = queue().get(block=False)
        except Empty:
            time.sleep(0.005)
            continue
        note(argument["t"])
        queue().ack(argument)


if __name__ == "__main__":
    main()
