"""A mover that is killed right after jobs have come to the new store, before that is recorded."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from forebay.clock import SystemClock
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.operations.store_move_sentinels import KIND, TASK
from forebay.stores.factory import open_engine
from tests.stores.support import WORKER, claim, new_job
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

MAIL: Final = QueueName("mail")
DEADLINE: Final = 120.0
# Killed before or after the call of the store that is named.
DYING: Final = """
import os, signal, sys
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.clock import SystemClock
from forebay.stores.factory import open_engine

old_url, new_url, moment, operation = sys.argv[1:]

class Dying:
    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        method = getattr(self._store, name)
        return (lambda *args, **more: die(method, *args, **more)) if name == operation else method

def die(method, *args, **more):
    if moment == "after":
        method(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)

def opened(url, wrap):
    engine = open_engine(url)
    return MoveEndpoint(engine.features.name, engine.location, wrap(engine.store()), engine.reader())

old, new = opened(old_url, lambda store: store), opened(new_url, Dying)
StoreMover(old, new, SystemClock(), settle=lambda: None).move()
"""


class Stores:
    """An old store with three jobs, and a new one in which their queue is already, with a short retention."""

    def __init__(self, stack: ExitStack, folder: Path, engine: str, *, has_queue: bool = True) -> None:
        (folder / "new").mkdir()
        self._urls = url_of("sqlite", folder), url_of(engine, folder / "new")
        self.old, self.new = (self._open(stack, url) for url in self._urls)
        if has_queue:
            self.new.store.save_queue(MAIL, {"keep_finished_ms": 1})
        self.ids = [JobId(str(one.id)) for one in self.old.store.insert([new_job(queue=MAIL)] * 3)]

    def _open(self, stack: ExitStack, url: str) -> MoveEndpoint:
        engine = open_engine(url)
        store, reader = engine.store(), engine.reader()
        stack.callback(store.close)
        stack.callback(reader.close)
        return MoveEndpoint(engine.features.name, engine.location, store, reader)

    def kill_a_mover(self, moment: str, operation: str) -> None:
        command = [sys.executable, "-c", DYING, *self._urls, moment, operation]
        ended = subprocess.run(command, timeout=DEADLINE, check=False)
        assert ended.returncode == -signal.SIGKILL

    def run_and_forget(self) -> list[JobId]:
        """Run what is in the new store, and wait until its retention has removed all that has ended."""
        jobs = claim(self.new.store, 10, MAIL)
        self.new.store.settle_and_claim(WORKER, [decide(job, Completed(b"1"), 0.0) for job in jobs])

        def is_forgotten() -> bool:
            self.new.store.prune()
            return not any(self.new.reader.jobs([job.id for job in jobs]))

        if jobs:
            eventually(is_forgotten, DEADLINE)
        return [job.id for job in jobs]

    def move(self) -> int:
        mover = StoreMover(self.old, self.new, SystemClock(), settle=lambda: None)
        jobs = mover.move().jobs
        mover.finish(mover.compare())
        return jobs

    def leftovers(self) -> tuple[int, int]:
        """Witness jobs in the new store, and intents in the old one."""
        witnesses = self.new.reader.search(JobQuery(tasks=(TASK,)), limit=10).jobs
        return len(witnesses), len(self.old.reader.documents(KIND))


@pytest.mark.parametrize("engine", SHARED)
@pytest.mark.parametrize(
    ("moment", "operation", "come"),
    [("before", "import_jobs", 0), ("after", "import_jobs", 3), ("after", "delete", 3)],
)
def test_what_was_done_and_forgotten_after_a_mover_was_killed_does_not_run_again(
    tmp_path: Path, engine: str, moment: str, operation: str, come: int
) -> None:
    with ExitStack() as stack:
        stores = Stores(stack, tmp_path, engine)
        stores.kill_a_mover(moment, operation)
        first = stores.run_and_forget()
        moved = stores.move()
        second = stores.run_and_forget()

        assert (len(first), moved, sorted([*first, *second])) == (come, 3 - come, sorted(stores.ids))
        assert stores.leftovers() == (0, 0)
        assert stores.new.reader.health().problems == ()
        assert sum(counts.total for counts in stores.old.reader.counts().values()) == 0


@pytest.mark.parametrize("has_queue", [True, False])
def test_only_a_queue_that_the_move_has_not_made_gets_a_witness(tmp_path: Path, has_queue: bool) -> None:
    with ExitStack() as stack:
        stores = Stores(stack, tmp_path, "sqlite", has_queue=has_queue)

        assert stores.move() == 3
        deleted = [event for _, event in stores.new.reader.audit(limit=100) if event.kind == "deleted"]
        assert [event.queue for event in deleted] == [MAIL] * has_queue
