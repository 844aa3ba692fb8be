"""Store example: insert a few jobs into a SQLite file, run them, and print the result.

It uses the store without app, tasks or worker: a producer inserts jobs, a loop claims, runs and settles
them. One job fails twice before it succeeds, one can never succeed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import random

import msgspec

from forebay.domain.job import Job, NewJob, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Outcome
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import Settlement, decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

QUEUE = QueueName("mail")
WORKER = WorkerId("hello")
QUICK = RetryPolicy(base_ms=100, ceiling_ms=400)
PEOPLE = ("ada", "grace", "edsger", "barbara", "missing", "tony")


def accept(store: Store) -> None:
    jobs = [
        NewJob(task="greet", queue=QUEUE, payload=msgspec.json.encode(name), priority=rank, policy=QUICK)
        for rank, name in enumerate(PEOPLE)
    ]
    for receipt, name in zip(store.insert(jobs), PEOPLE, strict=True):
        print(f"accepted  {receipt.id}  greet {name}")


def greet(job: Job) -> Outcome:
    """Run one job and return its outcome."""
    name = msgspec.json.decode(job.payload, type=str)
    if name == "missing":
        return Discarded(AttemptError(type="LookupError", message="there is no one to greet"))
    if name == "grace" and job.failures < 2:
        return Failed(AttemptError(type="TimeoutError", message="the line was busy"))
    return Completed(msgspec.json.encode(f"Hello, {name}!"))


def work(store: Store) -> None:
    """Settle finished jobs, claim pending ones and wait as long as the store says, until no job is left."""
    settlements: list[Settlement] = []
    while True:
        answer = store.settle_and_claim(WORKER, settlements, [QueueClaim(QUEUE, 4)], room=4)
        settlements = []
        for job in answer.jobs:
            outcome = greet(job)
            settlements.append(decide(job, outcome, random()))
            print(f"ran       {job.id}  attempt {job.attempt}: {type(outcome).__name__.lower()}")
        if not answer.jobs:
            if answer.next_due_ms is None:
                return
            time.sleep(answer.next_due_ms / 1_000)


def report(reader: Reader) -> None:
    print()
    for job in reversed(reader.search(JobQuery()).jobs):
        end = job.reason or ""
        print(f"{job.state:10} {job.id}  {job.attempt} attempt(s), {job.failures} failure(s)  {end}")
    counts = reader.counts()[QUEUE]
    print(
        f"\n{counts.completed} completed, {counts.dead} dead, {counts.live} live; the store is in order: ",
        end="",
    )
    print("yes" if not reader.health().problems else "no")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", help="a database file to use and keep (a temporary one)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(chosen.file or Path(folder) / "jobs.db").resolve()
        engine = open_engine(f"sqlite:///{path}")
        store, reader = engine.store(), engine.reader()
        accept(store)
        work(store)
        report(reader)
        reader.close()
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
