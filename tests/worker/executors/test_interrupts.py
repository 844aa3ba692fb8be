"""Interrupts at random moments of very short jobs: none is lost, none hits a job it was not meant for.

Why it should hold. A thread hears an interrupt (an "asynchronous exception") only where CPython looks for
one: when a Python function begins, after a call returns, and when a loop goes round. So these are the cases:

1. It is raised before the thread has written `assignment.seat`: `interrupt` finds no seat and drops it; the
   coordinator asks again. Nothing is raised.
2. It is raised while the job runs: it arrives inside `invoke.here`, which makes an outcome of it, or, if
   `here` is just returning, in the first `try` of `_run`, which then answers for it.
3. The thread has left `here`, but `seat.assignment` still names the job: between the end of the first `try`
   and the line that clears it there is no call and no loop, so nothing can arrive; other threads do not even
   run there. What was raised is still on its way.
4. `seat.assignment` is cleared: `interrupt` compares it under the lock, so no new interrupt is raised. One
   that had compared before the line is under the lock; the thread waits for the lock, and after that there
   is at most one on its way. It arrives inside the second `try` or is taken back there.

After the second `try` nothing is on its way any more, so the next job starts clean. What would break it: a
call between the two blocks, the seat published outside of the first, or a look at `seat.assignment` without
the lock. Each of these makes this test fail within a few thousand jobs.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from threading import Event, Thread, active_count

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.domain.outcome import Completed, Failed, Outcome
from forebay.worker.executors.threads import Seat, ThreadExecutor
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke, JobInterrupted, JobTimeout
from forebay.worker.slots import Assignment
from tests.worker.support import DEADLINE, an_assignment, eventually

JOBS = 6_000
THREADS = 3


class Counted(Inbox):
    """Every outcome that was put, with its job."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[Assignment, Outcome]] = []

    def put(self, assignment: Assignment, outcome: Outcome) -> None:
        self.ends.append((assignment, outcome))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads change places as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.000_005)
    yield
    sys.setswitchinterval(usual)


class Hunter:
    """Interrupts whatever runs, at random moments, mostly near its end."""

    def __init__(self, executor: ThreadExecutor, jobs: list[Assignment], seed: int) -> None:
        self._executor = executor
        self._jobs = jobs
        self._dice = random.Random(seed)
        self._done = Event()
        self._thread = Thread(target=self._hunt, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(DEADLINE)

    def _hunt(self) -> None:
        place = 0
        while not self._done.is_set():
            while place < len(self._jobs) - 1 and self._jobs[place].ended_at is not None:
                place += 1
            for one in self._jobs[place : place + THREADS]:
                if isinstance(one.seat, Seat) and self._dice.random() < 0.3:
                    kind = self._dice.choice((JobTimeout, JobInterrupted))
                    self._executor.interrupt(one, kind("hunted"))


@pytest.mark.shows("R-EDGE-15", "R-TEST-53")
@pytest.mark.usefixtures("hasty_threads")
def test_every_job_has_one_outcome_and_no_job_is_hit_by_the_interrupt_of_another() -> None:
    app, inbox = Forebay("memory://"), Counted()
    hit: list[str] = []

    @app.task(name="short")
    def short(name: str, rounds: int) -> str:
        try:
            for _ in range(rounds):
                pass
            if rounds % 7 == 0:
                raise ValueError(name)
        except (JobTimeout, JobInterrupted):
            hit.append(name)
            raise
        return name

    dice = random.Random(1)
    jobs = [an_assignment("short", str(n), dice.randrange(200), id=JobId(str(n))) for n in range(JOBS)]
    executor = ThreadExecutor(THREADS, Invoke(app.registry), inbox, SystemClock())
    executor.start()
    alive = active_count()
    with Hunter(executor, jobs, seed=2):
        for one in jobs:
            executor.submit(one)
        eventually(lambda: len(inbox.ends) >= JOBS, 50.0)

    assert active_count() == alive - 0  # no thread has died of an interrupt
    executor.close()
    assert Counter(one.job.id for one, _ in inbox.ends) == Counter(one.job.id for one in jobs)
    hunted = {one.job.id for one in jobs if one.stopped_by is not None}
    foreign = [name for name in hit if name not in hunted]
    assert foreign == []
    spared = [outcome for one, outcome in inbox.ends if one.stopped_by is None]
    assert {type(outcome) for outcome in spared} <= {Completed, Failed}
    assert not [one for one in spared if isinstance(one, Failed) and one.error.type != "ValueError"]
    assert len(hunted) > JOBS // 100  # else nothing was tried
