"""Several processes insert, claim and settle on one store under full load: `make evidence WHAT=crowd`.

Each process writes down which jobs were accepted, claimed and completed, and how long each of its store
calls took. When the time is over they drain the store, and the papers are compared with it. The run fails
if a promise is broken: no call finds the store locked or busy, none takes 2 s on a file, nothing is lost or
claimed or completed twice, there was no deadlock, and the store finds no problem with itself.

    python -m evidence.crowd                                    4 processes on a SQLite file, for a minute
    python -m evidence.crowd --engine postgres --processes 8    on a server of its own; redis for Redis
    python -m evidence.crowd --seconds 5                        a small one; --json FILE writes the numbers
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.outages import ENGINES, deadlocks, server_of_our_own, url_of
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Failed, Interrupted, Lost
from forebay.domain.settlement import Settlement, decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

T = TypeVar("T")

QUEUES: Final = (QueueName("default"), QueueName("mail"))
PAYLOAD: Final = b'{"v":1,"args":["' + b"x" * 80 + b'"],"kwargs":{}}'
LONGEST_WAIT_SECONDS: Final = 2.0
LONGEST_ON_A_SERVER: Final = 30.0  # where a statement is ended, or an answer no longer waited for
BATCH: Final = 100
LOOK: Final = 500
BACKLOG: Final = 3_000  # how far one process may be ahead with inserting
DRAIN_SECONDS: Final = 120.0
PAPERS: Final = ("accepted", "claimed", "completed")


@dataclass
class Counters:
    """What one process has seen."""

    process: int
    accepted: int = 0
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    handed_back: int = 0
    renewed: int = 0
    swept: int = 0
    refused: int = 0
    locked: int = 0
    calls: int = 0
    longest_seconds: float = 0.0
    longest_call: str = ""
    drained: bool = False
    by_call: dict[str, float] = field(default_factory=dict)


class Player:
    """One process: its papers, its counters and its turns."""

    def __init__(self, number: int, folder: Path, store: Store, reader: Reader, stack: ExitStack) -> None:
        self.counters = Counters(process=number)
        self._store = store
        self._reader = reader
        self._worker = WorkerId(f"crowd-{number}")
        self._dice = random.Random(number)
        self._held: list[Job] = []
        self._papers = {
            name: stack.enter_context((folder / f"{name}-{number}").open("w", encoding="ascii"))
            for name in PAPERS
        }

    def play(self, seconds: float) -> None:
        """Full load for some time, then work off what is left."""
        self._timed("heartbeat", lambda: self._store.heartbeat(WorkerInfo(id=self._worker)))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.counters.accepted - self.counters.completed < BACKLOG:
                self._insert()
            self._work()
            self._now_and_then()
        self._drain(time.monotonic() + DRAIN_SECONDS)

    def _timed(self, name: str, call: Callable[[], T]) -> T | None:
        """The answer of a call, which must not keep us waiting; None if the store was locked."""
        counters = self.counters
        began = time.perf_counter()
        try:
            return call()
        except StoreUnavailable:
            counters.locked += 1
            return None
        finally:
            took = time.perf_counter() - began
            counters.calls += 1
            counters.by_call[name] = max(took, counters.by_call.get(name, 0.0))
            if took > counters.longest_seconds:
                counters.longest_seconds, counters.longest_call = took, name

    def _write(self, paper: str, lines: Iterable[str]) -> int:
        written = [f"{line}\n" for line in lines]
        self._papers[paper].writelines(written)
        return len(written)

    def _insert(self) -> None:
        """Mostly single jobs, sometimes many at once, a few of them for later."""
        size = self._dice.choice((1, 1, 1, 1, 10, 300))
        jobs = [self._new_job() for _ in range(size)]
        receipts = self._timed(f"insert {size}", lambda: self._store.insert(jobs))
        self.counters.accepted += self._write("accepted", (one.id for one in receipts or () if one.id))

    def _new_job(self) -> NewJob:
        delay_ms = self._dice.randrange(20, 200) if self._dice.random() < 0.1 else 0
        priority = self._dice.choice((None, None, -5, 5))
        queue = self._dice.choice(QUEUES)
        return NewJob(task="noop", payload=PAYLOAD, queue=queue, delay_ms=delay_ms, priority=priority)

    def _work(self) -> int | None:
        """Settle what is held and claim as much; answers how long there is nothing to do, in ms."""
        if self._held and self._dice.random() < 0.1:
            self._renew()
        ends = [self._ended(job) for job in self._held]
        claims = [QueueClaim(queue, BATCH) for queue in self._dice.sample(QUEUES, len(QUEUES))]
        answer = self._timed(
            "settle_and_claim", lambda: self._store.settle_and_claim(self._worker, ends, claims, BATCH)
        )
        if answer is None:
            return 0
        self._count(ends, {*answer.settled})
        self.counters.refused += len(answer.refused)
        self._held = list(answer.jobs)
        self.counters.claimed += self._write("claimed", (f"{job.id} {job.attempt}" for job in self._held))
        return 0 if self._held else answer.next_due_ms

    def _count(self, ends: list[Settlement], settled: set[JobId]) -> None:
        counters = self.counters
        done = [end for end in ends if end.job_id in settled]
        completed = (end.job_id for end in done if end.state is JobState.COMPLETED)
        counters.completed += self._write("completed", completed)
        counters.failed += sum(end.state is JobState.RETRYING for end in done)
        counters.handed_back += sum(end.state is JobState.PENDING for end in done)

    def _ended(self, job: Job) -> Settlement:
        """Most attempts end well; a job fails or is handed back three times at most."""
        roll = self._dice.random()
        if job.attempt <= 3 and roll < 0.05:
            error = AttemptError(type="Boom", message="on purpose")
            return decide(job, Failed(error, self._dice.randrange(10, 200)), 0.0)
        if job.attempt <= 3 and roll < 0.07:
            return decide(job, Interrupted(), 0.0)
        return decide(job, Completed(b"null"), 0.0)

    def _renew(self) -> None:
        leases = [Lease(job.id, job.attempt) for job in self._held]
        answer = self._timed("renew", lambda: self._store.renew(self._worker, leases))
        if answer is not None:
            self.counters.renewed += len(answer.renewed)
            self.counters.refused += len(answer.refused)

    def _now_and_then(self) -> None:
        """The maintenance tasks that every worker does by the clock, spaced out among all."""
        store = self._store
        tasks: dict[str, Callable[[], object]] = {
            "promote": store.promote,
            "sweep": self._sweep,
            "rescore": store.rescore,
            "prune": store.prune,
        }
        name = self._dice.choice(tuple(tasks))
        if self._dice.random() < 0.05 and self._timed(
            "acquire_maintenance", lambda: store.acquire_maintenance(name, 100)
        ):
            self._timed(name, tasks[name])

    def _sweep(self) -> None:
        jobs = self._store.sweep(self._worker)
        self.counters.swept += len(jobs)
        self._store.settle_and_claim(self._worker, [decide(job, Lost("swept"), 0.0) for job in jobs])

    def _drain(self, until: float) -> None:
        while time.monotonic() < until:
            wait_ms = self._work()
            if not self._held:
                if not any(counts.live for counts in self._reader.counts().values()):
                    self.counters.drained = True
                    return
                time.sleep(min(20 if wait_ms is None else wait_ms, 20) / 1_000)


def play(number: int, folder: str, seconds: float, url: str) -> None:
    """What each process runs."""
    engine = open_engine(url)
    store, reader = engine.store(), engine.reader()
    with ExitStack() as stack:
        player = Player(number, Path(folder), store, reader, stack)
        player.play(seconds)
    reader.close()
    store.close()
    Path(folder, f"counters-{number}").write_text(json.dumps(asdict(player.counters)), encoding="ascii")


def lines(folder: Path, paper: str) -> Iterator[str]:
    for file in sorted(folder.glob(f"{paper}-*")):
        yield from file.read_text(encoding="ascii").splitlines()


def repeated(words: Iterable[str]) -> int:
    return sum(times > 1 for times in Counter(words).values())


def judge(
    folder: Path, all_counters: list[Counters], processes: int, url: str
) -> dict[str, tuple[object, bool]]:
    """Each promise with what was found and whether it was kept."""
    accepted, claimed = list(lines(folder, "accepted")), list(lines(folder, "claimed"))
    completed = list(lines(folder, "completed"))
    reader = open_engine(url).reader()
    unfinished = sum(unfinished_of(reader, accepted[at : at + LOOK]) for at in range(0, len(accepted), LOOK))
    stored = sum(counts.completed for counts in reader.counts().values())
    total = sum(counts.total for counts in reader.counts().values())
    problems = reader.health().problems
    reader.close()
    allowed = LONGEST_WAIT_SECONDS if url.startswith("sqlite") else LONGEST_ON_A_SERVER
    longest = max((counters.longest_seconds for counters in all_counters), default=0.0)
    return {
        "processes that came to their end": (len(all_counters), len(all_counters) == processes),
        "all drained": (all(one.drained for one in all_counters), all(one.drained for one in all_counters)),
        "jobs accepted": (len(accepted), bool(accepted)),
        "calls that found the store locked": count_of(counters.locked for counters in all_counters),
        "longest wait of a call, s": (round(longest, 3), longest < allowed),
        "accepted jobs that are not completed": (unfinished, not unfinished),
        "accepted jobs that no process completed": none_in(set(accepted) - set(completed)),
        "completed jobs that no process accepted": none_in(set(completed) - set(accepted)),
        "jobs completed twice": (repeated(completed), not repeated(completed)),
        "attempts claimed twice": (repeated(claimed), not repeated(claimed)),
        "ids given twice": (repeated(accepted), not repeated(accepted)),
        "jobs in the store beyond the accepted": (total - len(accepted), total == stored == len(accepted)),
        "settlements and renewals refused": count_of(counters.refused for counters in all_counters),
        "deadlocks": count_of([deadlocks(url)] if url.startswith("postgresql") else []),
        "problems in the store": none_in(problems),
    }


def count_of(numbers: Iterable[int]) -> tuple[object, bool]:
    total = sum(numbers)
    return total, not total


def none_in(found: Iterable[str]) -> tuple[object, bool]:
    some = sorted(found)
    return (", ".join(some[:3]) or 0), not some


def unfinished_of(reader: Reader, ids: list[str]) -> int:
    jobs = reader.jobs([JobId(one) for one in ids])
    return sum(job is None or job.state is not JobState.COMPLETED for job in jobs)


def run(folder: Path, processes: int, seconds: float, url: str) -> list[Counters]:
    """Let the processes loose and wait for them; those that do not come back are ended."""
    spawn = get_context("spawn")
    players = [spawn.Process(target=play, args=(one, str(folder), seconds, url)) for one in range(processes)]
    try:
        for player in players:
            player.start()
        until = time.monotonic() + seconds + DRAIN_SECONDS + 60
        for player in players:
            player.join(max(0.0, until - time.monotonic()))
    finally:
        for player in players:
            if player.is_alive():
                player.kill()
                player.join()
    return [Counters(**json.loads(file.read_text())) for file in sorted(folder.glob("counters-*"))]


def show(all_counters: list[Counters], results: dict[str, tuple[object, bool]], seconds: float) -> None:
    columns = ("process", "calls", "accepted", "claimed", "completed", "failed", "renewed", "swept", "locked")
    print("".join(f"{name:>10}" for name in columns), "  longest wait")
    for one in all_counters:
        values = "".join(f"{getattr(one, name):>10}" for name in columns)
        print(f"{values}   {one.longest_seconds * 1_000:7.1f} ms in {one.longest_call}")
    completed = sum(one.completed for one in all_counters)
    print(f"\n{completed:,} jobs completed, {completed / seconds:,.0f} for each second of load\n")
    for promise, (found, kept) in results.items():
        print(f"  {promise:42} {found!s:>12}  {'kept' if kept else 'BROKEN'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the load lasts (60)")
    parser.add_argument("--processes", type=int, default=4, help="how many processes there are (4)")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite", help="where the jobs are (sqlite)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    chosen = parser.parse_args()
    own = server_of_our_own(ENGINES[chosen.engine])
    with tempfile.TemporaryDirectory(prefix="forebay-crowd-") as name, own as server:
        url = url_of(server) if server else f"sqlite:///{name}/crowd.db"
        all_counters = run(Path(name), chosen.processes, chosen.seconds, url)
        results = judge(Path(name), all_counters, chosen.processes, url)
    show(all_counters, results, chosen.seconds)
    if chosen.json:
        promises = {promise: {"found": found, "kept": kept} for promise, (found, kept) in results.items()}
        counters = {"processes": [asdict(one) for one in all_counters], "promises": promises}
        chosen.json.write_text(json.dumps(counters, indent=2) + "\n", encoding="utf-8")
    return 0 if all(kept for _, kept in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
