"""An app whose store, time and workers are in the hand of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from forebay import Forebay, Retry, RetryPolicy, Snooze, current_job
from forebay.app.job_context import JobContext
from forebay.app.task import Task
from forebay.clock import Clock
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError
from forebay.domain.queue import QueueSettings, QueueState
from forebay.domain.worker import WorkerInfo
from forebay.errors import ConfigError, StoreError, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing import ManualClock, Trial, WorkerStep
from forebay.testing.fault_injection import inject_faults
from tests.urls import ENGINES, SHARED, lent_url

DAY = 86_400
ON_COMMAND = ("memory", "sqlite")  # time moves there when a test says so


class Shop:
    """A program with some tasks, and what they have done."""

    def __init__(self) -> None:
        self.app = Forebay("sqlite:////nowhere/at/all.db")
        self.done: list[str] = []
        self.mail = self.app.task(name="mail", queue="mail")(self.send)
        self.order = self.app.task(name="order")(self.take_order)
        self.fail: Task[[], None] = self.app.task(
            name="fail", retry_policy=RetryPolicy(max_retries=1, base_ms=60_000)
        )(self.break_down)

    def do(self, what: str) -> None:
        self.done.append(what)

    def send(self, to: str, subject: str = "hello") -> str:
        self.do(f"{subject} to {to}")
        return to

    def take_order(self, number: int) -> None:
        self.do(f"order {number}")
        self.mail.enqueue(f"customer {number}")

    def break_down(self) -> NoReturn:
        raise ValueError("broken")

    def pause(self, queue: str) -> None:
        self.app.client.write(lambda store: store.save_queue(QueueName(queue), state=QueueState.PAUSED))


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture(params=ON_COMMAND)
def trial(request: pytest.FixtureRequest, shop: Shop, tmp_path: Path, clock: ManualClock) -> Iterator[Trial]:
    with lent_url(request.param, tmp_path) as url, Trial(shop.app, url, clock=clock) as trial:
        yield trial


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_run_when_the_test_says_so_with_those_that_they_enqueue(
    engine: str, shop: Shop, tmp_path: Path
) -> None:
    with lent_url(engine, tmp_path) as url, Trial(shop.app, url) as trial:
        job = shop.order.enqueue(7)
        assert shop.done == []

        assert trial.drain() == 2

        assert shop.done == ["order 7", "hello to customer 7"]
        assert job.refresh().state is JobState.COMPLETED


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("step", WorkerStep)
def test_a_worker_that_dies_after_a_step_has_its_job_run_again_unless_it_was_settled(
    engine: str, step: WorkerStep, shop: Shop, tmp_path: Path
) -> None:
    with lent_url(engine, tmp_path) as url, Trial(shop.app, url) as trial:
        job = shop.mail.enqueue("ada")

        assert trial.crash(step) == job.refresh()
        was_settled = job.refresh().is_final
        trial.recover()

        assert was_settled is (step is WorkerStep.SETTLED)
        assert job.refresh().state is JobState.COMPLETED
        assert shop.done == ["hello to ada"] * (2 if step is WorkerStep.RAN else 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_is_left_empty_and_the_app_as_it_was(engine: str, shop: Shop, tmp_path: Path) -> None:
    before = shop.app.engine, shop.app.clock
    with lent_url(engine, tmp_path) as url:
        with Trial(shop.app, url) as trial:
            shop.mail.enqueue("ada")
            shop.mail.enqueue("bob")
            trial.crash("claimed")
            assert shop.app.engine is not before[0]

        assert (shop.app.engine, shop.app.clock) == before
        if engine != "memory":
            with Forebay(url) as app:
                assert app.search().jobs == ()


@pytest.mark.shows("R-TEST-65")
def test_a_store_with_jobs_is_refused_and_not_touched(shop: Shop, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Forebay(url) as app:
        job = app.enqueue("precious")
        engine = shop.app.engine

        with pytest.raises(ConfigError, match="holds 1 jobs; a trial needs a store without any"):
            Trial(shop.app, url).start()

        assert job.refresh().state is JobState.PENDING
        assert shop.app.engine is engine


@pytest.mark.shows("R-TEST-65")
def test_a_store_with_schedules_or_workers_is_refused_and_not_touched(shop: Shop, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Forebay(url) as app:
        app.schedules.save("precious", app.task(name="mail")(shop.send), ["ada"], every=60)
        with closing(app.engine.store()) as store:
            store.heartbeat(WorkerInfo(id=WorkerId("w1")))

        with pytest.raises(ConfigError, match="holds 1 schedules, 1 workers; a trial needs"):
            Trial(shop.app, url).start()

        assert app.schedules.get("precious") is not None


@pytest.mark.parametrize("engine", SHARED)
def test_what_a_trial_has_set_is_as_it_was(
    engine: str, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.testing.scratch_store.MAX_PAGE", 1)
    with lent_url(engine, tmp_path) as url, Forebay(url) as other:
        other.configure_queue("mail", weight=3)
        other.limits.set("queue:mail", concurrency=2)
        shop.app.every(60, name="declared", args=["ada"])(shop.mail)
        with Trial(shop.app, url) as trial:
            shop.app.schedules.save("saved", shop.mail, ["ada"], every=60)
            shop.app.configure_queue("mail", weight=5, mode="strict")
            shop.app.limits.set("queue:mail", concurrency=4)
            shop.app.limits.set("task:mail", concurrency=1)
            shop.pause("default")
            shop.mail.enqueue("ada")
            shop.app.task(name="count", queue="other")(lambda: None).enqueue()
            trial.crash("claimed")
            trial.crash("claimed")
            other.schedules.save("of another", other.task(name="mail")(shop.send), ["ada"], every=60)

        assert [schedule.name for schedule in other.schedules.list()] == ["of another"]
        assert [(limit.scope, limit.concurrency) for limit in other.limits.list()] == [("queue:mail", 2)]
        with closing(other.engine.reader()) as reader:
            [default, mail] = reader.queues([QueueName("default"), QueueName("mail")])
        assert (mail.settings, mail.state) == (QueueSettings(weight=3), QueueState.ACTIVE)
        assert default.state is QueueState.ACTIVE
        assert other.search().jobs == ()


def test_a_store_that_cannot_be_opened_leaves_the_app_as_it_was(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(url: str, clock: Clock) -> Engine:
        return inject_faults(open_engine(url, clock=clock), away)

    def away(store: Store) -> NoReturn:
        raise StoreUnavailable("away")

    before = shop.app.engine, shop.app.clock
    monkeypatch.setattr("forebay.testing.trial.open_engine", opened)
    trial = Trial(shop.app)

    with pytest.raises(StoreUnavailable, match="away"):
        trial.start()
    trial.stop()

    assert (shop.app.engine, shop.app.clock) == before


def test_nothing_runs_before_the_trial_begins_or_after_its_end(shop: Shop) -> None:
    trial = Trial(shop.app)

    with pytest.raises(ConfigError, match="has not begun"):
        trial.drain()
    trial.stop()
    trial.start()
    with pytest.raises(ConfigError, match="begun already"):
        trial.start()
    trial.stop()
    trial.stop()
    with pytest.raises(ConfigError, match="is over"):
        trial.drain()


# Failures


def test_a_task_that_fails_is_settled_and_its_exception_raised_at_the_end(trial: Trial, shop: Shop) -> None:
    failing = shop.fail.enqueue()
    other = shop.mail.enqueue("ada")

    with pytest.raises(ValueError, match="broken"):
        trial.drain()

    assert failing.refresh().state is JobState.RETRYING
    assert other.refresh().state is JobState.COMPLETED


def test_failures_can_be_looked_at_instead(trial: Trial, shop: Shop) -> None:
    heard: list[tuple[Job | None, AttemptError]] = []
    shop.app.on_error(lambda job, error: heard.append((job, error)))
    failing = shop.fail.enqueue()

    assert trial.pass_time(timedelta(hours=1), raises=False) == 2

    assert failing.refresh().state is JobState.DEAD
    assert [(job, error.message) for job, error in heard] == [(failing.refresh(), "broken")]


def test_a_signal_is_no_failure(trial: Trial, shop: Shop) -> None:
    @shop.app.task(name="wait")
    def wait() -> int:
        if current_job().attempt == 1:
            raise Snooze(60)
        if current_job().attempt == 2:
            raise Retry("not yet", after=30)
        return current_job().attempt

    job = wait.enqueue()

    assert trial.drain() == 1
    assert trial.pass_time(59) == 0
    assert trial.pass_time(31) == 2
    assert job.result(0) == 3


def test_a_task_that_always_enqueues_itself_does_not_hang_a_test(
    trial: Trial, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.testing.trial_worker.MAX_ATTEMPTS", 20)

    @shop.app.task(name="again")
    def again() -> None:
        again.enqueue()

    again.enqueue()

    with pytest.raises(AssertionError, match="21 attempts were made, and there is always another job"):
        trial.drain()


def test_a_job_of_a_task_that_the_app_does_not_know_waits(trial: Trial, shop: Shop) -> None:
    job = shop.app.enqueue("elsewhere")

    assert trial.drain() == 0
    assert job.refresh().state is JobState.PENDING


# Time


def test_delayed_jobs_run_at_their_time_and_not_before(trial: Trial, shop: Shop, clock: ManualClock) -> None:
    shop.mail.using(delay=3_600).enqueue("ada")
    began = clock.now_ms()

    assert (trial.drain(), trial.pass_time(3_599)) == (0, 0)
    assert trial.pass_time(10) == 1

    assert clock.now_ms() == began + 3_609_000
    assert trial.jobs()[0].started_at == began + 3_600_000


def test_time_can_be_moved_by_the_clock_too(trial: Trial, shop: Shop) -> None:
    shop.mail.using(delay=0.5).enqueue("ada")

    trial.clock.advance(seconds=0.5)

    assert trial.drain() == 1


def test_schedules_that_the_program_declares_are_fired(trial: Trial, shop: Shop) -> None:
    shop.app.every(60, name="by the minute", args=["ada"])(shop.mail)

    assert trial.pass_time(600) == 10


def test_what_a_limit_holds_back_runs_when_it_lets_go(trial: Trial, shop: Shop) -> None:
    shop.app.limits.set("queue:mail", rate=1, per=10, burst=1)
    for name in ("ada", "bob", "cyd"):
        shop.mail.enqueue(name)

    assert trial.drain() == 1
    assert trial.pass_time(30) == 2


class CountingTrial(Trial):
    """Counts how often it looks for work."""

    looks = 0

    def drain(self, *, raises: bool = True) -> int:
        self.looks += 1
        return super().drain(raises=raises)


def test_a_week_costs_no_more_looks_than_there_are_things_to_do(shop: Shop) -> None:
    with CountingTrial(shop.app) as trial:
        flow = shop.app.workflow()
        first = flow.add(shop.mail.using(delay=6 * DAY).job("ada"))
        flow.add(shop.mail.job("bob"), after=first)
        flow.enqueue()
        shop.pause("default")
        shop.order.enqueue(7)

        assert trial.pass_time(7 * DAY) == 2

        assert trial.looks <= 5


def test_what_is_held_for_long_is_looked_at_less_and_less_often(shop: Shop) -> None:
    with CountingTrial(shop.app) as trial:
        shop.app.enqueue("elsewhere")

        assert trial.pass_time(7 * DAY) == 0

        assert trial.looks <= 250


def test_a_rate_is_met_nearly_on_time(shop: Shop) -> None:
    with Trial(shop.app) as trial:
        shop.app.limits.set("queue:mail", rate=1, per=60, burst=1)
        shop.app.enqueue_many([shop.mail.job(str(number)) for number in range(40)])

        assert trial.pass_time(1_800) in range(29, 32)


def test_a_job_that_no_worker_may_start_expires_at_its_time(
    trial: Trial, shop: Shop, clock: ManualClock
) -> None:
    shop.pause("default")
    job = shop.order.using(expires=3_600).enqueue(7)
    expires_at = clock.now_ms() + 3_600_000

    trial.pass_time(7_200)

    assert job.refresh().state is JobState.CANCELLED
    assert job.refresh().finished_at == expires_at


@pytest.mark.parametrize("engine", ["postgresql", "redis"])
def test_the_time_of_a_server_is_its_own(engine: str, shop: Shop, tmp_path: Path) -> None:
    with lent_url(engine, tmp_path) as url, Trial(shop.app, url) as trial:
        shop.mail.using(delay=0.3).enqueue("ada")

        with pytest.raises(ConfigError, match="has a clock of its own"):
            trial.clock.advance(seconds=1)
        assert trial.pass_time(2) == 1


# What tasks may be and do


@pytest.mark.parametrize("within_a_loop", [False, True])
def test_coroutines_run_too_and_have_steps(within_a_loop: bool, trial: Trial, shop: Shop) -> None:
    async def one(number: int) -> int:
        shop.do(f"one {number}")
        return number + 1

    @shop.app.task(name="count")
    async def count(number: int) -> int:
        return await current_job().step_async("one", one, number)

    job = count.enqueue(4)

    async def drain() -> int:
        return trial.drain()

    attempts = asyncio.run(drain()) if within_a_loop else trial.drain()
    assert attempts == 1
    assert (job.result(0), shop.done) == (5, ["one 4"])


def test_what_a_job_says_is_kept(trial: Trial, shop: Shop) -> None:
    @shop.app.task(name="talk")
    def talk() -> None:
        current_job().progress(1, 2, "half")
        current_job().log("a line")
        current_job().follow_up(shop.mail.job("ada"))

    job = talk.enqueue()

    assert trial.drain() == 2
    progress = job.progress()
    assert progress is not None
    assert (progress.message, [line.text for line in job.log_lines()]) == ("half", ["a line"])


def test_hooks_and_middleware_are_called_as_by_a_worker(shop: Shop) -> None:
    @shop.app.on_start
    async def start() -> None:
        shop.do("start")

    shop.app.on_stop(lambda: shop.do("stop"))

    with Trial(shop.app) as trial:
        shop.mail.enqueue("ada")
        trial.drain()
        trial.drain()

    assert shop.done == ["start", "hello to ada", "stop"]


def test_there_is_no_current_job_when_the_drain_is_over(trial: Trial, shop: Shop) -> None:
    contexts: list[JobContext] = []
    task = shop.app.task(name="who")(lambda: contexts.append(current_job()))
    job = task.enqueue()

    trial.drain()

    assert [context.id for context in contexts] == [job.id]
    with pytest.raises(LookupError):
        current_job()


# Inline


def test_inline_a_job_has_run_when_enqueue_returns(shop: Shop) -> None:
    with Trial(shop.app, inline=True):
        assert shop.mail.enqueue("ada").result(0) == "ada"
        shop.order.enqueue(7)

    assert shop.done == ["hello to ada", "order 7", "hello to customer 7"]


def test_inline_a_task_may_wait_for_the_job_that_it_enqueues(shop: Shop) -> None:
    @shop.app.task(name="outer")
    def outer() -> str:
        return shop.mail.enqueue("ada").result(timeout=30)

    with Trial(shop.app, inline=True):
        assert outer.enqueue().result(0) == "ada"


def test_inline_a_failure_is_raised_where_the_job_is_enqueued(shop: Shop) -> None:
    with Trial(shop.app, inline=True), pytest.raises(ValueError, match="broken"):
        shop.fail.enqueue()


def test_inline_works_for_coroutines_workflows_and_batches(shop: Shop) -> None:
    async def enqueue() -> str:
        job = await shop.mail.enqueue_async("ada")
        return await job.result_async(0)

    with Trial(shop.app, inline=True):
        assert asyncio.run(enqueue()) == "ada"
        shop.app.enqueue_many([shop.mail.job("bob"), shop.mail.job("cyd")])
        flow = shop.app.workflow()
        first = flow.add(shop.mail.job("dee"))
        flow.add(shop.mail.job("eve"), after=first)
        flow.enqueue()

    assert shop.done == [f"hello to {name}" for name in ("ada", "bob", "cyd", "dee", "eve")]


def test_a_closed_app_stays_closed(shop: Shop) -> None:
    shop.app.close()

    with Trial(shop.app) as trial, pytest.raises(StoreError, match="closed"):
        trial.drain()
