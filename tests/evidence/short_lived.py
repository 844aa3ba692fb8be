"""Programs that open a store, take what they find and end: as cron or a cloud function starts them.

    python -m tests.evidence.short_lived WAY URL FOLDER [die]

WAY is `queue` (a `WorkQueue`) or `consumer` (`Forebay.consumer`). The program writes the ids of what it has
taken. With `die` it is killed while it holds that, visible to others after a second.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from forebay import Forebay
from forebay.compat.work_queue.queue import WorkQueue
from tests.evidence.papers import SkewedClock
from tests.evidence.store_clocks import use_stepped_scripts


def main(way: str, url: str, folder: str, *options: str) -> None:
    use_stepped_scripts()
    clock = SkewedClock(Path(folder) / "clock-store")
    if way == "queue":
        queue = WorkQueue(url, clock=clock)
        ids = [task.id for task in queue.dequeue(1, visibility_timeout=1)]
    else:
        consumer = Forebay(url, clock=clock).consumer()
        ids = [job.id for job in consumer.claim(1, lease=1)]
    sys.stdout.write(f"{' '.join(ids)}\n")
    sys.stdout.flush()
    if options:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
