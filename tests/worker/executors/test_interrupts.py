"""Interrupts at random moments of very short jobs: none is lost, none hits a job it was not meant for.

Why it should hold. A thread hears an interrupt (CPython calls it an asynchronous exception) only where the
interpreter looks for one: when a Python function begins, after a call, and when a loop goes round. At the same
places, and in calls that wait, threads change places. So these are the cases:

1. `interrupt` comes before the thread has written `assignment.seat`: it finds no seat and drops the request;
   the coordinator asks again. Nothing is raised.
2. It comes while the job's call runs: it is heard there, or, if the call is just returning, in the first
   `try` of `_run`. Either way the attempt was stopped, and that is its outcome.
3. The thread has left the first `try`, but `seat.assignment` still names the job: up to the line that clears
   it there is no call and no loop, so nothing is heard and no other thread runs.
4. `seat.assignment` is cleared: `interrupt` compares it under the lock, so nothing new is raised. One that
   had compared before is still under the lock; the thread waits for the lock, and from then on there is at
   most one interrupt on its way. It is heard inside the second `try`, or taken back there.

After the second `try` nothing is on its way any more, so the next job starts clean, and the outcome is
written down undisturbed. What would break it: a call between the two blocks, a seat that is published
outside of the first, or a look at `seat.assignment` without the lock. Each of these was tried, and each made
this test fail.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from threading import Semaphore

import pytest

from forebay import Forebay
from forebay.clock import SystemClock
from forebay.domain.job import JobId
from forebay.domain.outcome import Completed, Failed, Interrupted, Outcome
from forebay.worker.executors.threads import ThreadExecutor
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke, JobInterrupted, JobTimeout
from forebay.worker.slots import Assignment
from tests.worker.support import an_assignment, no_thread_stays

ROUNDS = 12_000


class Counted(Inbox):
    """Every outcome that was put, with its job."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[Assignment, Outcome]] = []
        self.done = Semaphore(0)

    def put(self, assignment: Assignment, outcome: Outcome) -> None:
        self.ends.append((assignment, outcome))
        self.done.release()


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    """Threads change places as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.000_001)
    yield
    sys.setswitchinterval(usual)


class Hunt:
    """Submits pairs of jobs to one thread and interrupts the first of each pair at a random moment.

    The first waits until the hunter looks, so that both run from there. The second follows at once, and an
    interrupt that comes late would hit it.
    """

    def __init__(self, executor: ThreadExecutor, inbox: Counted) -> None:
        self._executor = executor
        self._inbox = inbox
        self._dice = random.Random(1)
        self.ready, self.go = Semaphore(0), Semaphore(0)
        self.prey: list[Assignment] = []
        self.bystanders: list[Assignment] = []

    def _some(self, most: float) -> int:
        return round(2 ** self._dice.uniform(0, most))

    def round(self, number: int) -> None:
        prey = an_assignment("short", f"p{number}", self._some(14), id=JobId(f"p{number}"))
        bystander = an_assignment("short", f"b{number}", 20, id=JobId(f"b{number}"))
        self.prey.append(prey)
        self.bystanders.append(bystander)
        self._executor.submit(prey)
        self._executor.submit(bystander)
        pause = self._some(8)
        if number % 2:
            self.ready.acquire()
            self.go.release()
        else:  # at its very start
            while prey.seat is None and prey.ended_at is None:
                pass
        for _ in range(pause):
            pass
        self._executor.interrupt(prey, self._dice.choice((JobTimeout, JobInterrupted))("hunted"))
        if number % 3 == 0:  # a second one, as when a worker stops
            self._executor.interrupt(prey, JobInterrupted("again"))
        self._inbox.done.acquire()
        self._inbox.done.acquire()


@pytest.mark.shows("R-EDGE-15", "R-TEST-53")
@pytest.mark.usefixtures("_hasty_threads")
def test_every_job_has_one_outcome_and_no_job_is_hit_by_the_interrupt_of_another() -> None:
    app, inbox = Forebay("memory://"), Counted()
    hit: list[str] = []

    @app.task(name="short")
    def short(name: str, rounds: int) -> str:
        try:
            if name.startswith("p") and int(name[1:]) % 2:
                hunt.ready.release()
                hunt.go.acquire()
            for _ in range(rounds):
                pass
            if rounds % 7 == 0:
                raise ValueError(name)
        except (JobTimeout, JobInterrupted):
            hit.append(name)
            raise
        return name

    executor = ThreadExecutor(1, Invoke(app.registry), inbox, SystemClock())
    hunt = Hunt(executor, inbox)
    with no_thread_stays():
        executor.start()
        for number in range(ROUNDS):
            hunt.round(number)
        executor.close()

    ends = Counter(one.job.id for one, _ in inbox.ends)
    assert set(ends.values()) == {1}
    assert len(ends) == 2 * ROUNDS
    assert not [name for name in hit if name.startswith("b")]
    outcomes = {one.job.id: outcome for one, outcome in inbox.ends}
    assert {type(outcomes[one.job.id]) for one in hunt.bystanders} == {Completed}
    unhurt = [outcomes[one.job.id] for one in hunt.prey if one.stopped_by is None]
    assert not [one for one in unhurt if isinstance(one, Failed) and one.error.type != "ValueError"]
    assert not [one for one in unhurt if isinstance(one, Interrupted)]
    print(
        Counter(
            outcomes[one.job.id].error.type
            if isinstance(outcomes[one.job.id], Failed)
            else type(outcomes[one.job.id])
            for one in hunt.prey
            if one.stopped_by is not None
        ),
        len(unhurt),
    )
    hurt = Counter(type(outcomes[one.job.id]) for one in hunt.prey if one.stopped_by is not None)
    assert sum(hurt.values()) > ROUNDS // 50, hurt  # else nothing was tried
