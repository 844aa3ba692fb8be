"""Tasks that say how far they are, do steps and hand back new jobs, in a worker that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from forebay import Forebay, JobHandle, LeaseLost, RetryPolicy, current_job
from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import JobContext
from forebay.clock import SystemClock
from forebay.domain.outcome import Cancelled, Completed, Failed, Lost
from forebay.domain.progress import LogLine, Progress, StepResult
from forebay.domain.settlement import decide
from forebay.stores.contract.store import Store
from forebay.worker.executors.event_loop_executor import EventLoopExecutor
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.task_invoker import Invoker, JobInterrupted, JobTimeout
from tests.stores.support import SWEEPER
from tests.worker.support import DEADLINE, Collected, an_assignment, eventually

AT_ONCE = RetryPolicy(base_ms=1, floor_ms=1)
Taken = Callable[[JobHandle[Any]], None]


@pytest.mark.shows("R-LEASE-38")
def test_progress_and_lines_of_a_running_job_can_be_seen(app: Forebay) -> None:
    go_on = Event()

    @app.task(name="count")
    def count() -> None:
        job = current_job()
        job.log("first")
        job.progress(1, 2, "half way")
        assert go_on.wait(DEADLINE)
        job.progress(2, 2)

    with app.run_worker(threads=1):
        handle = count.enqueue()
        seen = eventually(handle.progress)
        assert seen is not None
        eventually(handle.log_lines)
        state = handle.refresh().state
        go_on.set()
        handle.wait(timeout=DEADLINE)

    assert (state, seen.done, seen.total, seen.message, seen.attempt) == ("running", 1, 2, "half way", 1)
    last = handle.progress()
    assert last is not None
    assert last.done == 2
    assert [(line.text, line.level) for line in handle.log_lines()] == [("first", "INFO")]


def test_coroutines_can_look_at_progress_too(app: Forebay) -> None:
    @app.task(name="count")
    async def count() -> None:
        current_job().progress(1)
        current_job().log("hi")

    async def look() -> tuple[Any, Any]:
        handle = count.enqueue()
        await handle.wait_async(timeout=DEADLINE)
        return await handle.progress_async(), await handle.log_lines_async()

    with app.run_worker(threads=1):
        progress, lines = asyncio.run(look())

    assert (progress.done, [line.text for line in lines]) == (1, ["hi"])


def test_a_job_that_has_said_nothing_has_no_progress_and_no_lines(app: Forebay) -> None:
    handle = app.task(name="quiet")(lambda: None).enqueue()

    assert (handle.progress(), handle.log_lines()) == (None, [])


def _middle() -> None:
    if current_job().attempt == 1:
        raise OSError("between the steps")


def steps(done: list[str]) -> list[int]:
    def do(name: str, number: int) -> int:
        done.append(name)
        return number

    job = current_job()
    first = job.step("first", do, "first", 1)
    _middle()
    return [first, job.step("second", do, "second", 2)]


async def steps_async(done: list[str]) -> list[int]:
    async def do(name: str, number: int) -> int:
        done.append(name)
        return number

    job = current_job()
    first = await job.step_async("first", do, "first", 1)
    _middle()
    return [first, await job.step_async("second", do, "second", 2)]


@pytest.fixture(params=["thread", "loop"])
def twice(request: pytest.FixtureRequest, app: Forebay) -> Callable[[list[str]], JobHandle[Any]]:
    """A job of two steps; its first attempt fails between them."""

    def enqueue(done: list[str]) -> JobHandle[Any]:
        async def run_async() -> list[int]:
            return await steps_async(done)

        func = run_async if request.param == "loop" else lambda: steps(done)
        return app.task(name="t", retry_policy=AT_ONCE)(func).enqueue()

    return enqueue


@pytest.mark.shows("R-IDEM-06")
def test_a_later_attempt_skips_the_steps_that_are_done(
    app: Forebay, twice: Callable[[list[str]], JobHandle[Any]]
) -> None:
    done: list[str] = []
    with app.run_worker(threads=1):
        handle = twice(done)
        result = handle.result(timeout=DEADLINE)

    assert (result, done, handle.refresh().attempt) == ([1, 2], ["first", "second"], 2)
    assert [(step.name, step.attempt) for step in handle.history().progress.steps] == [
        ("first", 1),
        ("second", 2),
    ]


@pytest.fixture
def take_over(app: Forebay) -> Taken:
    """A sweeper has found the job's worker dead, and puts the job back."""

    def take_over(handle: JobHandle[Any]) -> None:
        worker = handle.refresh().worker
        assert worker is not None

        def sweep(store: Store) -> None:
            [job] = store.sweep(SWEEPER, dead=[worker])
            store.settle_and_claim(SWEEPER, [decide(job, Lost("it seemed dead"), 0)])

        app.client.write(sweep)

    return take_over


@pytest.mark.shows("R-CANCEL-09")
@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
def test_a_step_of_a_lost_attempt_raises_and_the_next_attempt_does_it(
    app: Forebay, take_over: Taken, is_async: bool
) -> None:
    begun, go_on, seen = Event(), Event(), list[Any]()

    def first_part() -> None:
        begun.set()
        assert go_on.wait(DEADLINE)

    def run() -> str:
        job = current_job()
        if job.attempt == 1:
            first_part()
        try:
            return job.step("only", lambda: f"by attempt {job.attempt}")
        except LeaseLost as exc:
            seen.append((job.attempt, str(exc), job.is_lease_lost))
            raise

    async def run_async() -> str:
        job = current_job()
        if job.attempt == 1:
            await asyncio.to_thread(first_part)
        try:
            return await job.step_async("only", lambda: f"by attempt {job.attempt}")
        except LeaseLost as exc:
            seen.append((job.attempt, str(exc), job.is_lease_lost))
            raise

    task = app.task(name="t")(run_async if is_async else run)
    with app.run_worker(threads=2):
        handle = task.enqueue()
        assert begun.wait(DEADLINE)
        take_over(handle)
        go_on.set()
        assert handle.result(timeout=DEADLINE) == "by attempt 2"
        eventually(lambda: seen)

    [(attempt, words, is_lost)] = seen
    assert (attempt, is_lost) == (1, True)
    assert "the result of this attempt will be refused, so stop" in words
    assert [step.attempt for step in handle.history().progress.steps] == [2]


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "loop"])
def test_follow_ups_are_enqueued_when_the_attempt_completes_and_not_before(
    app: Forebay, is_async: bool
) -> None:
    after = app.task(name="after")(lambda number: number)

    def run() -> None:
        job = current_job()
        job.follow_up(after.job(job.attempt))
        if job.attempt == 1:
            raise OSError("these follow-ups go with the attempt")

    async def run_async() -> None:
        run()

    task = app.task(name="t", retry_policy=AT_ONCE)(run_async if is_async else run)
    with app.run_worker(threads=1):
        handle = task.enqueue()
        handle.wait(timeout=DEADLINE)
        [found] = [job for job in app.search().jobs if job.task == "after"]
        child = app.job(found.id)
        assert child.result(timeout=DEADLINE) == 2

    assert child.refresh().parent_id == handle.id


class Unanswered:
    """A progress sink that never answers."""

    def __init__(self) -> None:
        self.is_requested = Event()

    def add(self, context: JobContext, what: Progress | LogLine) -> None:
        pass

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        self.is_requested.set()
        return PendingStep(on_saved)

    def steps(self, context: JobContext) -> dict[str, bytes]:
        return {}


@pytest.mark.parametrize("kind", [ThreadExecutor, EventLoopExecutor])
@pytest.mark.parametrize(
    ("reason", "outcome"),
    [(JobTimeout("ran longer than 1 s"), Failed), (JobInterrupted("not needed"), Cancelled)],
)
def test_a_job_that_waits_for_its_step_can_be_stopped(
    kind: Any, reason: BaseException, outcome: type[object]
) -> None:
    app = Forebay("memory://")
    if kind is EventLoopExecutor:

        async def step_async() -> int:
            return await current_job().step_async("a", max, 1, 2)

        app.task(name="step")(step_async)
    else:
        app.task(name="step")(lambda: current_job().step("a", max, 1, 2))
    inbox, unanswered = Collected(), Unanswered()
    executor = kind(1, Invoker(app.registry), inbox, SystemClock())
    executor.start()
    try:
        stopped, next_one = an_assignment("step"), an_assignment("step", id="next")
        stopped.context.progress_sink = unanswered
        if isinstance(reason, JobInterrupted):
            stopped.context.mark_cancelled(str(reason))
        executor.submit(stopped)
        assert unanswered.is_requested.wait(DEADLINE)
        executor.interrupt(stopped, reason)

        assert isinstance(inbox.of(stopped), outcome)
        executor.submit(next_one)  # without a progress sink: nothing of the first is in its way
        assert isinstance(inbox.of(next_one), Completed)
    finally:
        executor.close()


def test_interrupts_in_the_middle_of_a_word_leave_nothing_locked(app: Forebay) -> None:
    """Chatty jobs are cancelled at any bytecode, also between two of ours; the worker goes on."""

    @app.task(name="chat")
    def chat() -> None:
        job = current_job()
        number = 0
        while True:
            number += 1
            job.progress(number)
            job.log(str(number))
            job.step(str(number % 500), int, number)

    last = app.task(name="last")(lambda: current_job().step("say", int, 7))
    with app.run_worker(threads=4):
        handles = [chat.enqueue() for _ in range(24)]
        states = [handle.cancel("enough", wait=True, timeout=DEADLINE) for handle in handles]
        assert [last.enqueue().result(timeout=DEADLINE) for _ in range(8)] == [7] * 8

    assert set(states) == {"cancelled"}
