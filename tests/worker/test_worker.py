"""A whole worker at work, in this program."""

from __future__ import annotations

import asyncio
from dataclasses import InitVar, dataclass
from threading import Barrier, Event

import pytest

from forebay import Forebay, Retry, RetryPolicy, current_job
from forebay.domain.job import JobId, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import OutcomeKind, decide
from tests.worker.support import DEADLINE, eventually, no_thread_stays

SWEEPER = WorkerId("the sweeper of another")


def spin() -> None:
    while True:
        pass


@dataclass
class Endless:
    """A record that cannot be made from what was stored."""

    number: int
    is_made_here: InitVar[bool] = False

    def __post_init__(self, is_made_here: bool) -> None:
        if not is_made_here:
            spin()


# ------------------------------------------------------------------ running


@pytest.mark.shows("R-TEST-42", "R-TEST-17", "R-WORK-10", "R-WORK-09", "R-WORK-02")
def test_jobs_are_run_once_while_the_block_lasts_and_no_thread_stays(app: Forebay) -> None:
    ran: list[int] = []

    @app.task(name="note")
    def note(number: int) -> int:
        ran.append(number)
        return number * 2

    with no_thread_stays(), app.run_worker(threads=5):
        jobs = [note.enqueue(number) for number in range(100)]
        results = [job.result(DEADLINE) for job in jobs]

    assert results == [number * 2 for number in range(100)]
    assert sorted(ran) == list(range(100))


@pytest.mark.shows("R-TEST-17", "R-CONC-11")
def test_as_many_blocking_jobs_run_at_once_as_there_are_threads(app: Forebay) -> None:
    barrier = Barrier(5)

    @app.task(name="meet")
    def meet() -> bool:
        barrier.wait(DEADLINE)
        return True

    with app.run_worker(threads=5):
        jobs = app.enqueue_many([meet.job() for _ in range(10)])

        assert all(job.result(DEADLINE) for job in jobs)


def test_as_many_coroutines_run_at_once_as_are_allowed_whatever_the_number_of_threads(app: Forebay) -> None:
    here = 0

    @app.task(name="meet")
    async def meet() -> bool:
        nonlocal here
        here += 1
        while here < 50:
            await asyncio.sleep(0.001)
        return True

    with app.run_worker(threads=1, coroutines=50):
        jobs = app.enqueue_many([meet.job() for _ in range(50)])

        assert all(job.result(DEADLINE) for job in jobs)


def test_a_worker_wakes_up_for_a_job_that_comes_while_it_sleeps(app: Forebay) -> None:
    @app.task(name="add")
    def add(a: int) -> int:
        return a + 1

    with app.run_worker(threads=1):
        for number in range(5):
            assert add.enqueue(number).result(DEADLINE) == number + 1


@pytest.mark.shows("R-RETRY-01")
def test_a_job_that_fails_is_tried_again_when_it_is_due(app: Forebay) -> None:
    @app.task(name="shaky")
    def shaky() -> int:
        if current_job().attempt < 3:
            raise Retry("not yet", after=0.05)
        return current_job().attempt

    with app.run_worker(threads=1):
        assert shaky.enqueue().result(DEADLINE) == 3


@pytest.mark.shows("R-TEST-21", "R-RETRY-44", "R-RETRY-40", "R-RETRY-43")
def test_a_job_that_dies_keeps_what_went_wrong_and_what_was_behind_it(app: Forebay) -> None:
    @app.task(name="fail", retries=1, retry_policy=RetryPolicy(base_ms=1))
    def fail() -> None:
        try:
            raise ConnectionError("the line is dead")
        except ConnectionError as exc:
            raise ValueError("no price") from exc

    with app.run_worker(threads=1):
        job = fail.enqueue()
        assert job.wait(DEADLINE).reason == "ValueError: no price"

    attempts = job.history().attempts
    assert [(one.attempt, one.error.type, one.error.message) for one in attempts] == [
        (1, "ValueError", "no price"),
        (2, "ValueError", "no price"),
    ]
    assert all("the line is dead" in one.error.traceback for one in attempts)


@pytest.mark.shows("R-WORK-18", "R-BUG-03", "R-BUG-20")
def test_a_job_that_runs_too_long_is_stopped_and_has_failed(app: Forebay) -> None:
    stopped = Event()

    @app.task(name="endless", timeout=1, retries=0)
    def endless() -> None:
        try:
            spin()
        finally:
            stopped.set()

    @app.task(name="quick")
    def quick() -> int:
        return 7

    with app.run_worker(threads=1):
        handle = endless.enqueue()
        job = handle.wait(DEADLINE)
        assert quick.enqueue().result(DEADLINE) == 7

    assert stopped.is_set()
    assert (job.state, job.reason) == (JobState.DEAD, "Timeout: ran longer than 1 s")
    [attempt] = handle.history().attempts
    assert (attempt.outcome, attempt.error.type) == (OutcomeKind.FAILED, "Timeout")


def test_a_job_whose_arguments_take_too_long_to_make_is_stopped_by_its_timeout(app: Forebay) -> None:
    @app.task(name="take", timeout=0.1, retries=0)
    def take(order: Endless) -> None: ...

    with no_thread_stays(), app.run_worker(threads=1):
        job = take.enqueue(Endless(1, is_made_here=True)).wait(DEADLINE)

    assert (job.state, job.reason) == (JobState.DEAD, "Timeout: ran longer than 0.1 s")


@pytest.mark.shows("R-RETRY-37", "R-BUG-03")
def test_a_job_that_runs_too_long_is_tried_again_unless_its_task_says_otherwise(app: Forebay) -> None:
    @app.task(name="slow once", timeout=0.1, retry_policy=RetryPolicy(base_ms=1))
    def slow_once() -> int:
        if current_job().attempt == 1:
            spin()
        return current_job().attempt

    @app.task(name="once", timeout=0.1, retry_on_timeout=False)
    async def once() -> None:
        await asyncio.Event().wait()

    with app.run_worker(threads=1):
        again, never = slow_once.enqueue(), once.enqueue()
        tries = again.result(DEADLINE)
        dead = never.wait(DEADLINE)

    assert (dead.state, dead.attempt) == (JobState.DEAD, 1)
    assert dead.reason == "Timeout: ran longer than 0.1 s"
    assert [one.outcome for one in never.history().attempts] == [OutcomeKind.DISCARDED]
    # A machine that is busy may stop the second one too.
    assert [one.error.type for one in again.history().attempts] == ["Timeout"] * (tries - 1)
    assert tries > 1


def test_a_running_job_can_be_cancelled_although_all_slots_are_taken(app: Forebay) -> None:
    @app.task(name="endless")
    def endless() -> None:
        spin()

    with app.run_worker(threads=1):
        job = endless.enqueue()
        eventually(lambda: job.refresh().state is JobState.RUNNING)
        assert job.cancel("no need")

        assert job.wait(DEADLINE).reason == "no need"


@pytest.mark.shows("R-WORK-15")
def test_tasks_that_try_to_end_the_program_do_not_end_the_worker(app: Forebay) -> None:
    @app.task(name="leave", retries=0)
    def leave() -> None:
        raise SystemExit(3)

    @app.task(name="leave_too", retries=0)
    async def leave_too() -> None:
        raise KeyboardInterrupt

    @app.task(name="stay")
    def stay() -> int:
        return 7

    with app.run_worker(threads=2):
        gone = [leave.enqueue().wait(DEADLINE), leave_too.enqueue().wait(DEADLINE)]

        assert stay.enqueue().result(DEADLINE) == 7
    assert [job.reason for job in gone] == ["SystemExit: 3", "KeyboardInterrupt"]


# ------------------------------------------------------------------ leases


@pytest.mark.shows("R-LEASE-48", "R-LEASE-35")
def test_a_job_longer_than_its_lease_is_completed_at_its_first_attempt(app: Forebay) -> None:
    ended = Event()

    @app.task(name="long", lease=6.0)
    def long() -> int:
        assert not ended.wait(7.0)
        return current_job().attempt

    with app.run_worker(threads=2), app.run_worker(threads=2):
        job = long.enqueue()

        assert job.result(DEADLINE) == 1
    assert job.history().events == ()


@pytest.mark.shows("R-LEASE-23", "R-LEASE-45", "R-LEASE-24")
def test_a_job_whose_lease_was_taken_away_is_told_and_its_result_is_refused(app: Forebay) -> None:
    begun, lost = Event(), Event()

    @app.task(name="work", lease=3.0)
    def work() -> str:
        if current_job().attempt > 1:
            return "second"
        begun.set()
        eventually(lambda: current_job().is_lease_lost)
        lost.set()
        return "first"

    with app.run_worker(threads=2):
        job = work.enqueue()
        assert begun.wait(DEADLINE)  # one that is taken away before never begins
        _take_away(app, job.id)
        assert lost.wait(DEADLINE)

        assert job.result(DEADLINE) == "second"
        eventually(lambda: EventKind.REFUSED in [event.kind for event in job.history().events])


def _take_away(app: Forebay, job_id: JobId) -> None:
    """As a sweep does that takes the worker for dead."""
    [job] = app.client.read(lambda reader: reader.jobs([job_id]))
    assert job is not None
    store = app.engine.store()
    try:
        [swept] = store.sweep(SWEEPER, dead=[job.worker or SWEEPER])
        store.settle_and_claim(SWEEPER, [decide(swept, Interrupted(), 0.0)])
    finally:
        store.close()
    assert swept.id == job_id
