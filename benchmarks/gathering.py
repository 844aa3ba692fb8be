"""What it takes to gather metrics, in processor time for each job: `python -m benchmarks.gathering`.

A claim and an end of batches of 100, as a coordinator tells them, and the rows at the end; the best of some
rounds,
since others may use the machine too. What it does not show is the write of a few rows every ten seconds.
"""

from __future__ import annotations

import time
from random import Random

from forebay.clock import SystemClock
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.stores.memory.store import MemoryEngine
from forebay.stores.protocol import Want
from forebay.telemetry.gathering import Gathering

BATCH = 100
BATCHES = 200
ROUNDS = 20


def main() -> None:
    store, queue, worker = MemoryEngine().store(), QueueName("q"), WorkerId("w")
    store.insert([NewJob(task="t", queue=queue, payload=b"{}") for _ in range(BATCH)])
    jobs = store.exchange(worker, wants=[Want(queue, BATCH)], room=BATCH).jobs
    dice = Random(1)
    ends = [(job, decide(job, Completed(b"1"), 0.0), dice.random() / 1_000) for job in jobs]
    now = SystemClock().monotonic()
    took = []
    for _ in range(ROUNDS):
        gathering, began = Gathering(worker), time.process_time()
        for _ in range(BATCHES):
            gathering.claimed(jobs, now)
            gathering.ended(ends, now)
        gathering.take_all()
        took.append(time.process_time() - began)
    print(f"{min(took) / BATCH / BATCHES * 1e6:.2f} us of processor time a job")


if __name__ == "__main__":
    main()
