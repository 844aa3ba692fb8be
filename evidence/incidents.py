"""Incidents that take more than one process or store: each is played on every engine that processes share.

    python -m evidence.incidents                    all of them: a minute
    python -m evidence.incidents --engine redis     on one engine
    python -m evidence.incidents --json FILE        the findings, for programs

- fork with the clock set back: a program makes an id, the clock goes back by two seconds, and processes are
  forked that enqueue, one job by one and in batches. Each accepted job is stored under an id of its own, and
  is claimed once.
- move with blobs: a store whose jobs have blobs is moved while workers of the new store run jobs, and collect
  blobs as fast as they can; blobs count as old at once. Each job runs once, with its own arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final
from unittest.mock import patch

import uuid_utils

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.payload import blob_garbage_collection, engine_wrapper
from forebay.payload.blob_stores import FolderBlobs
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine
from forebay.stores.id_generator import new_id
from tests.urls import url_of

SHARED: Final = ("sqlite", "postgresql", "redis")
CHILDREN: Final = 4
ROUNDS: Final = 5
BATCH: Final = 20
BACK_MS: Final = 2_000
MOVED: Final = 60
SIZE: Final = 300_000  # of arguments that go to the blobs
DEADLINE: Final = 300.0

Problems = Iterator[str]


@dataclass(kw_only=True)
class Found:
    """What came of one incident on one engine."""

    incident: str
    engine: str
    problems: list[str] = field(default_factory=list)


def fork_with_the_clock_set_back(engine: str, folder: Path) -> Problems:
    """Enqueue in forked processes whose clock is behind the last id of their parent."""
    url = url_of(engine, folder)
    open_engine(url).store().close()
    new_id()
    now = uuid_utils.uuid7
    # A test must not set the clock of its machine: uuid-utils answers as it would with such a clock.
    with patch.object(uuid_utils, "uuid7", lambda: uuid_utils.UUID(int=now().int - (BACK_MS << 80))):
        accepted = [line for child in range(CHILDREN) for line in _forked(partial(_enqueue, url, child))]
    if len(accepted) != CHILDREN * ROUNDS * (1 + BATCH):
        yield f"only {len(accepted)} jobs were accepted"
    ids = Counter(line.split()[0] for line in accepted)
    yield from (f"the id {one} was given {times} times" for one, times in ids.items() if times > 1)
    ran = Counter(_run_all(url))
    yield from _uneven({line.split()[1] for line in accepted}, ran)


def _enqueue(url: str, child: int) -> Iterator[str]:
    """Accepted ids with what is in the jobs."""
    with closing(open_engine(url).store()) as store:
        for number in range(ROUNDS):
            for size in (1, BATCH):
                texts = [f"{child}-{number}-{size}-{place}" for place in range(size)]
                receipts = store.insert([NewJob(task="t", payload=text.encode()) for text in texts])
                yield from (f"{one.id} {text}" for one, text in zip(receipts, texts, strict=True))


def _forked(work: Callable[[], Iterator[str]]) -> list[str]:
    """What a forked process says."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with os.fdopen(theirs, "w") as pipe:
                pipe.writelines(f"{line}\n" for line in work())
            status = 0
        except BaseException:  # the parent hears of it by the status
            traceback.print_exc()
        os._exit(status)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def _run_all(url: str) -> Iterator[str]:
    worker, request = WorkerId("w"), QueueClaim(QueueName("default"), 500)
    with closing(open_engine(url).store()) as store:
        while jobs := store.settle_and_claim(worker, claims=[request], room=500).jobs:
            yield from (bytes(job.payload).decode() for job in jobs)
            store.settle_and_claim(worker, [decide(job, Completed(b"1"), 0.0) for job in jobs])


def move_with_blobs(engine: str, folder: Path) -> Problems:
    """Move a store while workers of the new one run jobs and collect blobs."""
    blobs = folder / "blobs"
    blobs.mkdir()
    old, new = f"sqlite:///{folder}/old.db", url_of(engine, folder)
    with ExitStack() as stack:
        stack.enter_context(patch.object(blob_garbage_collection, "ORPHAN_AGE_MS", -60_000))
        yield from _moved(stack, old, new, blobs)


def _moved(stack: ExitStack, old: str, new: str, folder: Path) -> Problems:
    blobs, ran, guard = FolderBlobs(folder), Counter[str](), Lock()
    app = stack.enter_context(Forebay(new, blob_store=blobs))

    @app.task(name="take", retries=0)
    def take(number: int, text: str) -> int:
        with guard:
            ran[f"{number} {len(text)}"] += 1
        return number

    with Forebay(old, blob_store=blobs) as producer:
        jobs = [producer.enqueue("take", [number, "x" * (SIZE + number)]) for number in range(MOVED)]
    source, target = _place(stack, old), _place(stack, new)
    # From the first job on: the documents have come, and with them the id that both stores' blobs have.
    busy = _Busy(target.store, lambda: stack.enter_context(_working(app, blobs)))
    mover = StoreMover(source, target._replace(store=busy), SystemClock(), blobs=blobs, settle=lambda: None)
    mover.move()
    if not (compared := mover.compare()).agrees:
        yield f"the stores do not agree: {compared}"
    for job in jobs:
        app.job(job.id).wait(DEADLINE)
    yield from _uneven({f"{number} {SIZE + number}" for number in range(MOVED)}, ran)


class _Busy:
    """The new store as the mover sees it; something begins before the first job comes."""

    def __init__(self, store: object, begin: Callable[[], object]) -> None:
        self._store = store
        self._begin: Callable[[], object] | None = begin

    def __getattr__(self, name: str) -> Any:
        if name == "import_jobs" and self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        return getattr(self._store, name)


@contextmanager
def _working(app: Forebay, blobs: FolderBlobs) -> Iterator[None]:
    """Run jobs, and remove blobs without a job again and again; the first look at them is over at once."""
    is_over, has_scanned = Event(), Event()

    def collect() -> None:
        with closing(app.engine.store()) as store:
            while not is_over.wait(0.001):
                _payload_store(store).blob_collector.collect(blobs)
                has_scanned.set()

    thread = Thread(target=collect)
    thread.start()
    try:
        has_scanned.wait(DEADLINE)
        with app.run_worker(threads=2):
            yield
    finally:
        is_over.set()
        thread.join()


def _payload_store(store: Any) -> engine_wrapper.PayloadStore:
    found: engine_wrapper.PayloadStore = store
    return found


def _place(stack: ExitStack, url: str) -> MoveEndpoint:
    engine = open_engine(url)
    store, reader = engine.store(), engine.reader()
    stack.callback(store.close)
    stack.callback(reader.close)
    return MoveEndpoint(url, engine.location, store, reader)


def _uneven(expected: set[str], ran: Counter[str]) -> Problems:
    """Jobs that did not run once."""
    yield from (f"job {one} was lost" for one in sorted(expected - set(ran)))
    yield from (f"job {one} is unknown" for one in sorted(set(ran) - expected))
    yield from (f"job {one} ran {times} times" for one, times in sorted(ran.items()) if times > 1)


INCIDENTS: Final = (fork_with_the_clock_set_back, move_with_blobs)


def play(engines: Sequence[str]) -> Iterator[Found]:
    for engine in engines:
        for incident in INCIDENTS:
            with tempfile.TemporaryDirectory() as folder:
                name = incident.__name__.replace("_", " ")
                yield Found(incident=name, engine=engine, problems=list(incident(engine, Path(folder))))


def main() -> int:
    parser = argparse.ArgumentParser(description="Play incidents on every engine that processes share.")
    parser.add_argument("--engine", choices=SHARED)
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    found = []
    for one in play([words.engine] if words.engine else SHARED):
        found.append(one)
        print(f"{one.engine:12}{one.incident:32}{'PROBLEM' if one.problems else 'ok'}", flush=True)
        print(*(f"  {problem}" for problem in one.problems[:10]), sep="\n", end="\n" if one.problems else "")
    if words.json:
        words.json.write_text(json.dumps([asdict(one) for one in found]))
    return any(one.problems for one in found)


if __name__ == "__main__":
    sys.exit(main())
