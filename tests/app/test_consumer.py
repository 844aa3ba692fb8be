"""The pull API: claim and settle from a loop of one's own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from forebay import ConfigError, Forebay, InvalidJob, JobFailed, PayloadError, StoreError, StoreUnavailable
from forebay.app.consumer import Consumer, arguments
from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.metrics import HOUR
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed
from forebay.errors import StoreBusy, StoreRefused
from forebay.maintenance.due_job_promoter import Promoter
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.operations.maintenance_task import MaintenanceTask
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, QueueStats, queue_stats
from forebay.stores.contract.claims_and_results import BATCH, QueueClaim
from forebay.stores.contract.store import Store
from forebay.telemetry.observers import SettledAttempt
from forebay.testing.manual_clock import ManualClock
from tests.app.alert_support import put
from tests.app.watched_engine import DEADLINE, WatchedEngine
from tests.worker.support import eventually


def send(to: str, copies: int = 1) -> Any: ...


@pytest.fixture
def consumer(app: Forebay) -> Iterator[Consumer]:
    consumer = app.consumer()
    yield consumer
    consumer.close()
    consumer.close()


@pytest.fixture
def job(app: Forebay, consumer: Consumer) -> Job:
    """A job that the consumer has claimed."""
    app.task(name="send")(send).enqueue("ada", copies=2)
    [job] = consumer.claim()
    return job


@pytest.mark.shows("R-SDK-12")
def test_a_claimed_job_brings_its_arguments_and_is_completed_with_a_result(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    assert arguments(job) == (("ada",), {"copies": 2})
    assert consumer.complete(job, {"sent": 2}) is True

    assert app.job(job.id).result(timeout=0) == {"sent": 2}


def test_jobs_are_claimed_in_order_from_one_queue_up_to_the_number_asked(
    app: Forebay, consumer: Consumer
) -> None:
    task = app.task(name="send")(send)
    low, high, more = (task.using(queue="mail", priority=n).enqueue("ada") for n in (1, 9, 5))
    task.enqueue("elsewhere")

    jobs = consumer.claim(2, queue="mail")

    assert [job.id for job in jobs] == [high.id, more.id]
    assert low.refresh().state is JobState.PENDING


OUTCOMES: list[Any] = [
    (lambda consumer, job: consumer.fail(job, ValueError("it broke")), JobState.RETRYING, 1),
    (lambda consumer, job: consumer.fail(job, "it broke", after=60), JobState.RETRYING, 1),
    (lambda consumer, job: consumer.discard(job, "useless"), JobState.DEAD, 1),
    (lambda consumer, job: consumer.snooze(job, 60), JobState.SCHEDULED, 0),
    (lambda consumer, job: consumer.release(job), JobState.PENDING, 0),
]


@pytest.mark.parametrize(("end", "state", "failures"), OUTCOMES)
def test_a_job_may_end_otherwise(
    app: Forebay,
    consumer: Consumer,
    job: Job,
    end: Callable[[Consumer, Job], bool],
    state: JobState,
    failures: int,
) -> None:
    assert end(consumer, job) is True

    record = app.job(job.id).refresh()
    assert (record.state, record.failures) == (state, failures)


@pytest.mark.shows("R-DONE-02")
@pytest.mark.parametrize(("end", "state", "failures"), OUTCOMES)
def test_an_end_that_contradicts_an_earlier_one_is_answered_with_false(
    app: Forebay,
    consumer: Consumer,
    job: Job,
    end: Callable[[Consumer, Job], bool],
    state: JobState,
    failures: int,
) -> None:
    assert [end(consumer, job), consumer.complete(job), end(consumer, job)] == [True, False, True]

    record = app.job(job.id).refresh()
    assert (record.state, record.failures) == (state, failures)


def test_of_ends_that_contradict_each_other_in_one_call_the_first_counts(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    failure = Failed(AttemptError(type="Boom"))
    later = replace(job, attempt=job.attempt + 1)

    answers = consumer.settle([(job, Completed()), (job, failure), (job, Completed()), (later, Completed())])

    assert answers == [True, False, True, False]
    assert consumer.settle([(job, failure), (job, failure)]) == [False, False]
    assert app.job(job.id).refresh().state is JobState.COMPLETED


def test_an_attempt_that_failed_is_tried_again_after_a_time_of_ones_own(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    consumer.fail(job, "it broke", after=90)

    assert app.job(job.id).refresh().run_at == clock.now_ms() + 90_000


@pytest.mark.parametrize(
    "spec",
    [
        lambda consumer, job: consumer.claim(),
        lambda consumer, job: consumer.renew([job]),
        lambda consumer, job: consumer.check_leases([job]),
        lambda consumer, job: consumer.complete(job),
        lambda consumer, job: consumer.cancel("waits"),
        lambda consumer, job: consumer.revive("waits"),
    ],
)
def test_a_closed_consumer_refuses_and_nothing_is_claimed(
    app: Forebay, consumer: Consumer, job: Job, spec: Callable[[Consumer, Job], Any]
) -> None:
    app.enqueue("send", ["grace"], id="waits")
    consumer.close()

    with pytest.raises(StoreError, match="this consumer is closed; ask the app for another one"):
        spec(consumer, job)

    assert app.job("waits").refresh().state is JobState.PENDING
    assert app.job(job.id).refresh().state is JobState.RUNNING


def test_a_discarded_job_has_no_result(app: Forebay, consumer: Consumer, job: Job) -> None:
    consumer.discard(job, LookupError("no such recipient"))

    with pytest.raises(JobFailed, match="no such recipient"):
        app.job(job.id).result(timeout=0)


@pytest.mark.shows("R-DONE-19")
def test_what_a_consumer_says_about_a_lost_job_is_refused(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    app.client.cancel([job.id], force=True)

    assert consumer.complete(job, 1) is False
    assert consumer.renew([job]) == [False]
    assert app.job(job.id).refresh().state is JobState.DEAD


def test_a_lease_can_be_asked_for_and_renewed(app: Forebay, consumer: Consumer, clock: ManualClock) -> None:
    app.task(name="send")(send).enqueue("ada")
    [job] = consumer.claim(lease=10)
    clock.advance(seconds=5)

    assert consumer.renew([job], lease=60) == [True]
    assert app.job(job.id).refresh().lease_expires_at == clock.now_ms() + 60_000


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda consumer, job: consumer.claim(lease=0.5), "lease must be from 1 to 86,400 seconds"),
        (lambda consumer, job: consumer.renew([job], lease=-1), "lease must be from 1 to"),
        (lambda consumer, job: consumer.snooze(job, -1), "delay must be from 0 to"),
        (lambda consumer, job: consumer.fail(job, "x", after=-1), "after must be from 0 to"),
        (lambda consumer, job: consumer.claim(0), "limit must be a whole number"),
        (lambda consumer, job: consumer.claim(queue="my queue"), "cannot name a queue"),
    ],
)
def test_a_value_out_of_range_is_named_by_the_callers_own_word(
    app: Forebay, consumer: Consumer, job: Job, call: Callable[[Consumer, Job], Any], named: str
) -> None:
    with pytest.raises(InvalidJob, match=named):
        call(consumer, job)

    assert app.job(job.id).refresh().state is JobState.RUNNING


def test_a_length_of_time_that_is_none_is_refused(consumer: Consumer, job: Job) -> None:
    wrong: Any = "soon"

    with pytest.raises(InvalidJob, match="delay must be a timedelta"):
        consumer.snooze(job, wrong)


@pytest.mark.parametrize("most", [1, 5])
def test_without_any_worker_jobs_that_are_due_later_are_found(
    app: Forebay, consumer: Consumer, clock: ManualClock, most: int
) -> None:
    handle = app.task(name="send")(send).using(delay=60).enqueue("ada")

    before = consumer.claim(most)
    clock.advance(seconds=61)
    after = consumer.claim(most)

    assert (before, [job.id for job in after]) == ([], [handle.id])


def test_what_is_claimed_reaches_the_caller_though_a_maintenance_task_goes_wrong(
    app: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if name == "acquire_maintenance":
            raise StoreUnavailable("locked")

    handle = app.task(name="send")(send).enqueue("ada")
    watched = WatchedEngine(app.engine, trouble)
    with closing(Consumer(watched.contract, lambda **_: [Promoter()])) as consumer:
        [job] = consumer.claim()
        assert consumer.complete(job, 5) is True

    assert handle.result(timeout=0) == 5
    assert "postpones maintenance to the next claim: locked" in caplog.text


def test_a_bug_in_a_maintenance_task_costs_neither_what_was_claimed_nor_the_other_tasks(
    app: Forebay, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    class Broken:
        name = "broken"
        every_ms = 1_000
        is_ready = True

        def run(self, store: Store) -> bool:
            raise ZeroDivisionError("a bug")

    handle = app.task(name="send")(send).enqueue("ada")
    later = app.task(name="later")(send).using(delay=60, queue="elsewhere").enqueue("ada")
    clock.advance(seconds=61)
    with closing(Consumer(app.engine, lambda **_: [Broken(), Promoter()])) as consumer:
        assert [job.id for job in consumer.claim()] == [handle.id]

    assert later.refresh().state is JobState.PENDING
    assert "maintenance task 'broken' has failed" in caplog.text


@pytest.mark.parametrize("what", ["settle_and_claim", "acquire_maintenance"])
def test_after_an_outage_a_consumer_sweeps_only_when_holders_had_time_to_renew(
    app: Forebay, consumer: Consumer, clock: ManualClock, what: str
) -> None:
    is_away = False

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if is_away and name == what:
            raise StoreUnavailable("the store is away")

    def tasks(**_: Any) -> Sequence[MaintenanceTask]:
        return standard_tasks(sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.0)

    watched = WatchedEngine(app.engine, trouble)
    with closing(Consumer(watched.contract, tasks)) as other:
        other.claim()
        clock.advance(seconds=30)
        app.task(name="send")(send).enqueue("ada")
        held = consumer.claim()
        is_away = True
        for _ in range(40):
            with suppress(StoreUnavailable):
                other.claim()
            clock.advance(seconds=1)
        is_away = False
        other.claim()

    assert consumer.renew(held) == [True]


@pytest.mark.parametrize("what", ["settle_and_claim", "promote"])
@pytest.mark.parametrize(
    ("errors", "quiet_seconds"), [([StoreBusy], 0), ([StoreUnavailable, StoreBusy], 12)], ids=["busy", "both"]
)
def test_a_transaction_that_holds_up_a_consumer_is_no_outage_and_hides_none(
    app: Forebay, clock: ManualClock, what: str, errors: list[type[StoreUnavailable]], quiet_seconds: int
) -> None:
    left: list[type[StoreUnavailable]] = []

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if left and name == what:
            raise left.pop(0)("not now")

    sweepings: list[Sweeper] = []

    def tasks(**_: Any) -> Sequence[MaintenanceTask]:
        found = standard_tasks(sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.0)
        sweepings.extend(one for one in found if isinstance(one, Sweeper) and one.name != "sweep dead")
        return found

    watched = WatchedEngine(app.engine, trouble)
    with closing(Consumer(watched.contract, tasks)) as consumer:
        consumer.claim()
        clock.advance(seconds=30)
        left.extend(errors)
        while left:
            with suppress(StoreUnavailable):
                consumer.claim()
            clock.advance(seconds=1)
        consumer.claim()

    assert [one.quiet_seconds for one in sweepings] == [pytest.approx(quiet_seconds, abs=1)]


class Asking:
    """An observer that asks the consumer, from its own thread and from another one, whenever it is told."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.received: list[str] = []

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        self._ask("claimed", jobs)

    def on_settled(self, ends: Sequence[SettledAttempt]) -> None:
        self._ask("ended", [job for job, _, _ in ends])

    def on_lease_lost(self, jobs: Sequence[Job]) -> None:
        self._ask("lost", jobs)

    def _ask(self, what: str, jobs: Sequence[Job]) -> None:
        assert self.consumer is not None
        self.consumer.check_leases(jobs)
        thread = Thread(target=self.consumer.check_leases, args=(jobs,), daemon=True)
        thread.start()
        thread.join()
        self.received.append(what)


def ends_in_time(call: Callable[[], object]) -> bool:
    """Whether a call ends on a thread of its own, before the deadline of a hang."""
    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    return not thread.is_alive()


@pytest.mark.parametrize("call", [Consumer.claim, Consumer.run_maintenance], ids=["claim", "run_maintenance"])
def test_an_observer_may_call_the_consumer(
    app: Forebay, clock: ManualClock, call: Callable[[Consumer], object]
) -> None:
    asking, consumer = Asking(), app.consumer()  # closed at the end: that would hang too
    app.registry.hooks.observers.add(asking)
    asking.consumer = consumer
    task = app.task(name="send")(send)
    task.enqueue("ada")
    dead = WorkerId("dead")
    app.client.write(
        lambda store: store.settle_and_claim(dead, claims=[QueueClaim(QueueName(DEFAULT_QUEUE), 1)], room=1)
    )
    task.enqueue("bob")

    assert ends_in_time(consumer.claim)
    clock.advance(seconds=30)
    assert ends_in_time(lambda: call(consumer))

    # The claim of one job, and the end of the attempt that the sweep has settled.
    consumer.close()
    assert asking.received[:2] == ["claimed", "ended"]


def test_of_two_attempts_at_one_job_only_the_one_that_is_held_is_settled(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    clock.advance(seconds=31)
    assert app.sweep() == 1
    [again] = consumer.claim()

    assert consumer.settle([(job, Completed(b"1")), (again, Completed(b"2"))]) == [False, True]

    record = app.job(job.id).refresh()
    assert (again.id, again.attempt, record.result) == (job.id, 2, b"2")


def test_one_outcome_that_the_store_cannot_hold_does_not_hold_up_the_others(app: Forebay) -> None:
    def trouble(name: str, args: tuple[Any, ...]) -> None:
        ends = args[1] if name == "settle_and_claim" and len(args) > 1 else ()
        if any(end.job_id == handles[1].id and end.state is JobState.COMPLETED for end in ends):
            raise StoreRefused("too odd")

    task = app.task(name="send")(send)
    handles = app.enqueue_many([task.job("ada") for _ in range(3)])
    with closing(Consumer(WatchedEngine(app.engine, trouble).contract)) as consumer:
        consumer.settle([(job, Completed()) for job in consumer.claim(3)])

    states = [handle.refresh().state for handle in handles]
    assert states == [JobState.COMPLETED, JobState.RETRYING, JobState.COMPLETED]
    assert "too odd" in handles[1].refresh().errors[0].message


# ------------------------------------------------------------------ looking at a lease


@pytest.mark.shows("R-LEASE-28")
def test_a_lease_that_is_held_is_seen_without_being_changed(
    app: Forebay, consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    before = app.job(job.id).refresh()
    clock.advance(seconds=5)

    assert consumer.check_leases([job]) == [True]

    after = app.job(job.id).refresh()
    assert (after.lease_expires_at, after.updated_at) == (before.lease_expires_at, before.updated_at)


@pytest.mark.shows("R-LEASE-28")
def test_a_lease_is_not_held_from_the_moment_it_ends(
    consumer: Consumer, job: Job, clock: ManualClock
) -> None:
    assert job.lease_expires_at is not None
    clock.advance(ms=job.lease_expires_at - clock.now_ms() - 1)
    held = consumer.check_leases([job])
    clock.advance(ms=1)

    assert (held, consumer.check_leases([job])) == ([True], [False])


@pytest.mark.shows("R-LEASE-28")
def test_a_job_of_another_attempt_another_worker_or_another_state_is_not_held(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    with closing(app.consumer()) as other:
        assert other.check_leases([job]) == [False]
    assert consumer.check_leases([replace(job, attempt=2), replace(job, id=JobId("gone"))]) == [False, False]

    consumer.release(job)
    assert consumer.check_leases([job]) == [False]
    [again] = consumer.claim()
    assert (again.attempt, again.run_number) == (2, 1)
    assert consumer.check_leases([job, again]) == [False, True]
    assert consumer.check_leases([]) == []


# ------------------------------------------------------------------ cancelling and reviving


def test_a_job_that_the_consumer_holds_ends_as_cancelled(app: Forebay, consumer: Consumer, job: Job) -> None:
    assert consumer.cancel(job, "it is not wanted") is True

    record = app.job(job.id).refresh()
    assert (record.state, record.reason) == (JobState.CANCELLED, "it is not wanted")
    assert consumer.cancel(job.id) is False


def test_other_jobs_are_cancelled_if_they_wait_and_asked_to_stop_if_they_run(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    task = app.task(name="other")(send)
    waiting, running = task.enqueue("ada"), task.using(priority=9).enqueue("grace")
    with closing(app.consumer()) as other:
        [held] = other.claim()

    assert consumer.cancel_many([waiting.id, held, job, "gone"], "enough") == [True, True, True, False]

    assert held.id == running.id
    assert waiting.refresh().state is JobState.CANCELLED
    assert (running.refresh().state, running.refresh().cancel_reason) == (JobState.RUNNING, "enough")
    assert app.job(job.id).refresh().state is JobState.CANCELLED


def test_a_dead_or_cancelled_job_is_put_back(app: Forebay, consumer: Consumer, job: Job) -> None:
    consumer.discard(job, "useless")

    assert consumer.revive(job) is True

    record = app.job(job.id).refresh()
    assert (record.state, record.failures) == (JobState.PENDING, 0)
    assert consumer.revive(job.id) is False


def test_many_jobs_are_put_back_at_once(app: Forebay, consumer: Consumer) -> None:
    task = app.task(name="send")(send)
    handles = app.enqueue_many([task.job("ada") for _ in range(3)])
    jobs = consumer.claim(3)
    assert consumer.settle([(job, Discarded(AttemptError(type="Boom"))) for job in jobs[:2]]) == [True, True]

    assert consumer.revive_many([*jobs, "gone"]) == [True, True, False, False]

    states = [app.job(handle.id).refresh().state for handle in handles]
    assert states == [JobState.PENDING, JobState.PENDING, JobState.RUNNING]


# ------------------------------------------------------------------ what the dead leave behind


@pytest.mark.shows("R-SWEEP-07")
def test_one_sweep_by_hand_tells_how_many_jobs_it_has_moved(
    app: Forebay, consumer: Consumer, clock: ManualClock
) -> None:
    task = app.task(name="send")(send)
    handles = app.enqueue_many([task.job("ada") for _ in range(5)])
    with closing(app.consumer()) as lost:
        lost.claim(3, lease=10)
    [kept] = consumer.claim(1, lease=60)

    before = app.sweep()
    clock.advance(seconds=11)

    assert (before, app.sweep(), app.sweep()) == (0, 3, 0)
    states = [handle.refresh().state for handle in handles]
    assert states == [*[JobState.PENDING] * 3, JobState.RUNNING, JobState.PENDING]
    assert [handle.refresh().crashes for handle in handles] == [1, 1, 1, 0, 0]
    assert consumer.complete(kept) is True


def test_a_sweep_by_hand_goes_on_until_nothing_is_left(app: Forebay, clock: ManualClock) -> None:
    task = app.task(name="send")(send)
    app.enqueue_many([task.job("ada") for _ in range(BATCH + 5)])
    with closing(app.consumer()) as lost:
        lost.claim(BATCH + 5, lease=10)
    clock.advance(seconds=11)

    assert app.sweep() == BATCH + 5
    assert app.counts()[app.default_queue].pending == BATCH + 5


@pytest.mark.shows("R-CFG-33", "R-CFG-60")
def test_leases_that_have_ended_are_looked_for_at_least_every_thirty_seconds(
    app: Forebay, consumer: Consumer, clock: ManualClock
) -> None:
    handle = app.task(name="send")(send).enqueue("ada")
    consumer.claim(queue="elsewhere")
    with closing(app.consumer()) as lost:
        lost.claim(lease=40)

    clock.advance(seconds=40 + 30)
    consumer.claim(queue="elsewhere")

    assert handle.refresh().state is JobState.PENDING


# ------------------------------------------------------------------ in one's own transaction


def test_a_job_comes_true_with_the_callers_transaction_or_not_at_all(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with Forebay(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="send")(send)
        task.enqueue("first")

        with connection:
            connection.execute("create table orders (name text)")
            connection.execute("insert into orders values ('tea')")
            [kept] = app.enqueue_tx(connection, [task.job("ada")])
        connection.execute("insert into orders values ('milk')")
        [dropped] = app.enqueue_tx(connection, [task.job("grace")])
        connection.rollback()

        assert kept.refresh().state is JobState.PENDING
        assert app.client.job(dropped.id) is None
    connection.close()


def test_a_task_is_enqueued_within_the_callers_transaction(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with Forebay(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="send")(send)
        task.enqueue("first")

        with connection:
            connection.execute("begin")
            kept = task.enqueue_tx(connection, "ada", copies=2)
            again = task.using(priority=9, unique_key="daily").enqueue_tx(connection, "ada")
            taken = task.using(unique_key="daily").enqueue_tx(connection, "ada")
        connection.execute("begin")
        dropped = task.enqueue_tx(connection, "grace")
        connection.rollback()

        assert arguments(kept.refresh()) == (("ada",), {"copies": 2})
        assert (again.refresh().priority, taken.is_new, taken) == (9, False, again)
        assert app.client.job(dropped.id) is None
        with pytest.raises(PayloadError, match="'colour'"):
            task.enqueue_tx(connection, "ada", colour="red")  # type: ignore[call-arg]  # that is the point
    connection.close()


def test_a_store_that_has_no_transactions_of_ones_own_says_so() -> None:
    app = Forebay("memory://")

    with pytest.raises(ConfigError):
        app.enqueue_tx(object(), [app.task(name="send")(send).job("ada")])


@pytest.mark.shows("R-LEASE-38")
def test_a_consumer_says_how_far_its_job_has_come(app: Forebay, consumer: Consumer, job: Job) -> None:
    assert consumer.progress(job, 1, 3, "one of three") is True
    assert consumer.log(job, "hello", "DEBUG") is True

    handle = app.job(job.id)
    progress = handle.progress()
    assert progress is not None
    assert (progress.done, progress.total, progress.message) == (1, 3, "one of three")
    assert [(line.level, line.text, line.attempt) for line in handle.log_lines()] == [("DEBUG", "hello", 1)]


def test_what_a_consumer_says_of_a_lost_job_does_not_count(
    app: Forebay, consumer: Consumer, job: Job
) -> None:
    consumer.release(job)

    assert (consumer.progress(job, 1), consumer.log(job, "hello")) == (False, False)
    assert (app.job(job.id).progress(), app.job(job.id).log_lines()) == (None, [])


def test_progress_of_a_consumer_that_is_no_number_is_refused(consumer: Consumer, job: Job) -> None:
    with pytest.raises(InvalidJob, match="done must be a finite number"):
        consumer.progress(job, float("nan"))


def queue_stats_of(app: Forebay, window_ms: int = DEFAULT_WINDOW_MS) -> QueueStats:
    [found] = app.client.read(lambda reader: queue_stats(reader, [DEFAULT_QUEUE], window_ms))
    return found


def test_what_a_consumer_claims_and_settles_is_in_the_metrics_once_ten_seconds_are_over(
    app: Forebay, consumer: Consumer, clock: ManualClock
) -> None:
    put(app, 4)
    clock.advance(seconds=2)
    done, failed, released, _held = consumer.claim(4)
    clock.advance(seconds=3)
    assert consumer.settle([(done, Completed(b"1")), (done, Completed(b"1"))]) == [True, True]
    consumer.complete(done)
    consumer.fail(failed, ValueError("it broke"))
    consumer.release(released)
    assert queue_stats_of(app).span.stats.counts == {}

    clock.advance(seconds=10)
    consumer.claim(queue="other")

    found = queue_stats_of(app)
    assert found.span.stats.counts == {"claimed": 4, "completed": 1, "failed": 1, "retried": 1}
    assert found.span.stats.errors == {"ValueError": 1}
    assert (found.wait.count, found.wait.min_ms, found.run.count) == (4, 2_000, 2)
    assert found.run.min_ms == pytest.approx(3_000, rel=0.05)
    assert found.consumers == 1


def test_a_consumer_that_is_closed_writes_its_metrics(app: Forebay) -> None:
    app.task(name="send")(send).enqueue("ada")
    with closing(app.consumer()) as consumer:
        [job] = consumer.claim()
        consumer.complete(job)

    assert queue_stats_of(app).span.stats.counts == {"claimed": 1, "completed": 1}


def test_a_program_that_ends_without_closing_its_consumer_writes_its_metrics(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = f"""
from forebay import Forebay
app = Forebay({url!r})
app.enqueue("send")
consumer = app.consumer()
[job] = consumer.claim()
consumer.complete(job)
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    with Forebay(url) as app:
        assert queue_stats_of(app).span.stats.counts == {"claimed": 1, "completed": 1}


@pytest.mark.parametrize("renewals", [0, 40])
def test_a_job_that_takes_ten_minutes_is_counted_with_and_without_renewals(
    app: Forebay, clock: ManualClock, renewals: int
) -> None:
    put(app, 1)
    with closing(app.consumer()) as consumer:
        [job] = consumer.claim(lease=3_600)
        for _ in range(renewals):
            clock.advance(seconds=15)
            consumer.renew([job], lease=3_600)
        if not renewals:
            clock.advance(seconds=600)
        assert consumer.complete(job)

    assert queue_stats_of(app, HOUR).span.stats.counts == {"claimed": 1, "completed": 1}


def test_few_lost_attempts_among_many_completed_ones_raise_no_alert(
    app: Forebay, consumer: Consumer, clock: ManualClock
) -> None:
    put(app, 206)
    with closing(app.consumer()) as gone:
        gone.claim(6)
    consumer.settle([(job, Completed(b"1")) for job in consumer.claim(200)])

    for _ in range(2):  # the first one reads the store's clock, the second one sweeps
        clock.advance(seconds=40)
        consumer.claim(queue="other")
    consumer.close()

    counts = queue_stats_of(app).span.stats.counts
    assert (counts["completed"], counts["failed"], counts["lost"]) == (200, 6, 6)
    assert app.alerts.evaluate().notices == ()


def test_a_queue_that_a_consumer_asks_has_a_consumer_until_it_asks_no_more(
    app: Forebay, consumer: Consumer, clock: ManualClock
) -> None:
    app.configure_queue(DEFAULT_QUEUE)
    app.alerts.add_rule("No consumer asks", "consumers == 0", id="unserved", per="queue")
    consumer.claim()
    clock.advance(seconds=10)
    consumer.claim()
    assert queue_stats_of(app).consumers == 1
    assert app.alerts.evaluate().notices == ()

    clock.advance(seconds=60)

    assert queue_stats_of(app).consumers == 0
    # The consumer evaluates on a thread of its own too, and either may be the one that raises it.
    app.alerts.evaluate()
    eventually(lambda: [one.rule for one in app.alerts.list()] == ["unserved"])
