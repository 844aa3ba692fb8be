"""litequeue: a bare queue in SQLite (WAL, synchronous NORMAL); its worker is a loop with a sleep of 5 ms."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any

from litequeue import LiteQueue

from benchmarks.compare.notes import note


@cache
def queue() -> Any:
    return LiteQueue(f"{os.path.dirname(os.environ['COMPARE_URL'].removeprefix('sqlite:///'))}/lite.db")


def setup() -> None:
    queue()


def enqueue(argument: dict[str, Any]) -> None:
    queue().put(json.dumps(argument))


def main() -> None:
    while True:
        message = queue().pop()
        if message is None:
            time.sleep(0.005)
            continue
        note(json.loads(message.data)["t"])
        queue().done(message.message_id)


if __name__ == "__main__":
    main()
