"""Metrics of jobs, as a reader of OpenTelemetry gets them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider

from forebay import Forebay, RetryPolicy, current_job
from forebay.compat.task_service.service import TaskService
from forebay.domain.job import DEFAULT_QUEUE, Job, QueueName, WorkerId
from forebay.domain.metrics import MAX_SERIES
from forebay.domain.outcome import Lost
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, DuplicateJob, StoreUnavailable
from forebay.integrations.opentelemetry import measure, trace
from forebay.integrations.opentelemetry.metrics import MAX_ERROR_TYPES, REFRESH_SECONDS, Instruments
from forebay.integrations.opentelemetry.safe_calls import SafeCalls
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.stores.contract.claims_and_results import InsertResult, QueueClaim
from tests.clocks import FollowedClock
from tests.urls import SHARED, lent_url

TIMEOUT = 60.0
SENT, CONSUMED = "messaging.client.sent.messages", "messaging.client.consumed.messages"
SENDING, RUNNING = "messaging.client.operation.duration", "messaging.process.duration"
WAITING, SETTLED = "forebay.wait.duration", "forebay.settled.attempts"
RETRIED, LOST = "forebay.retried.jobs", "forebay.lost.leases"
JOBS, WORKERS = "forebay.queue.jobs", "forebay.workers"


class Metrics:
    """What a provider has gathered."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics] if data else []
        assert all(scope.scope.name == "forebay" for scope in scopes)
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self, name: str) -> list[NumberDataPoint]:
        found = self.metrics().get(name)
        return [] if found is None else list(found.data.data_points)

    def total(self, name: str, **attributes: str) -> float:
        """The sum over all that have these attributes, with _ for each dot."""
        return sum(one.value for one in self.points(name) if _has(one.attributes, attributes))

    def lengths(self, name: str, **attributes: str) -> list[HistogramDataPoint]:
        found: Sequence[Any] = self.points(name)
        return [one for one in found if _has(one.attributes, attributes)]


def _has(attributes: Mapping[str, Any] | None, wanted: Mapping[str, str]) -> bool:
    found = {name.replace(".", "_"): value for name, value in (attributes or {}).items()}
    return wanted.items() <= found.items()


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.provider.shutdown()


@pytest.fixture(params=SHARED)
def app(request: pytest.FixtureRequest, tmp_path: Path, metrics: Metrics) -> Iterator[Forebay]:
    with lent_url(request.param, tmp_path) as url, Forebay(url) as app:
        measure(app, metrics.provider)
        yield app


@pytest.fixture
def memory(metrics: Metrics) -> Iterator[Forebay]:
    with Forebay("memory://") as app:
        measure(app, metrics.provider)
        yield app


def test_what_a_worker_has_done_is_counted_and_timed(app: Forebay, metrics: Metrics) -> None:
    tried: list[int] = []

    @app.task(name="send", queue="mail", retry_policy=RetryPolicy(base_ms=1, max_retries=1))
    def send() -> None:
        tried.append(current_job().attempt)
        if len(tried) == 1:
            raise ValueError("not yet")

    @app.task(name="break", queue="mail", retry_policy=RetryPolicy(max_retries=0))
    def bad() -> None:
        raise LookupError("never")

    jobs = [send.enqueue(), bad.enqueue()]
    with app.run_worker():
        for job in jobs:
            job.wait(timeout=TIMEOUT)

    assert metrics.total(SENT, messaging_destination_name="mail", forebay_task="send") == 1
    assert metrics.total(SENT, messaging_operation_name="enqueue", messaging_operation_type="send") == 2
    # A job may be handed back unstarted on a busy machine, and is then claimed once more.
    handed_back = metrics.total(SETTLED, forebay_outcome="interrupted")
    assert metrics.total(CONSUMED, messaging_system="forebay") == 3 + handed_back
    assert metrics.total(SETTLED, forebay_task="send", forebay_outcome="completed") == 1
    assert metrics.total(SETTLED, forebay_outcome="failed", forebay_state="retrying") == 1
    assert metrics.total(SETTLED, forebay_state="dead", error_type="LookupError") == 1
    assert metrics.total(RETRIED, forebay_task="send") == 1
    assert metrics.total(RETRIED, forebay_task="break") == 0
    assert metrics.total(LOST) == 0
    assert sum(one.count for one in metrics.lengths(WAITING)) == 3 + handed_back
    [good] = [one for one in metrics.lengths(RUNNING) if "error.type" not in (one.attributes or {})]
    assert good.count == 1
    assert {(one.attributes or {}).get("error.type") for one in metrics.lengths(RUNNING)} == {
        None,
        "ValueError",
        "LookupError",
    }
    assert sum(one.count for one in metrics.lengths(SENDING)) == 2


def test_units_are_those_of_the_conventions_and_bounds_are_in_seconds(
    memory: Forebay, metrics: Metrics
) -> None:
    @memory.task(name="send")
    def send() -> None:
        pass

    with memory.run_worker():
        send.enqueue().wait(timeout=TIMEOUT)

    found = metrics.metrics()
    assert {name: found[name].unit for name in (SENT, CONSUMED, SENDING, RUNNING, WAITING, SETTLED)} == {
        SENT: "{message}",
        CONSUMED: "{message}",
        SENDING: "s",
        RUNNING: "s",
        WAITING: "s",
        SETTLED: "{attempt}",
    }
    assert metrics.lengths(RUNNING)[0].explicit_bounds[0] == 0.005
    assert metrics.lengths(RUNNING)[0].explicit_bounds[-1] == 3_600


def test_jobs_and_workers_are_counted_when_a_collector_reads(app: Forebay, metrics: Metrics) -> None:
    @app.task(name="send", queue="mail")
    def send() -> None:
        pass

    for _ in range(3):
        send.enqueue()
    send.using(delay=timedelta(hours=1)).enqueue()
    with app.run_worker(queues=["another"]) as worker:
        assert worker.status().is_healthy

        found = metrics.metrics()

    jobs = {(one.attributes["messaging.destination.name"], one.attributes["forebay.state"]): one.value
            for one in found[JOBS].data.data_points}  # fmt: skip
    assert (jobs["mail", "pending"], jobs["mail", "scheduled"], jobs["mail", "running"]) == (3, 1, 0)
    assert sum(one.value for one in found[WORKERS].data.data_points) == 1


def test_however_often_is_collected_the_store_is_asked_every_ten_seconds(
    metrics: Metrics, clock: FollowedClock
) -> None:
    with Forebay("memory://", clock=clock) as app:
        measure(app, metrics.provider)

        @app.task(name="send", queue="mail")
        def send() -> None:
            pass

        send.enqueue()
        assert metrics.total(JOBS, forebay_state="pending") == 1
        send.enqueue()

        assert metrics.total(JOBS, forebay_state="pending") == 1
        clock.advance(ms=int(REFRESH_SECONDS * 1_000))
        assert metrics.total(JOBS, forebay_state="pending") == 2


def test_a_store_that_cannot_be_asked_costs_the_gauges_and_nothing_else(
    memory: Forebay, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task(name="send")
    def send() -> None:
        pass

    send.enqueue()
    memory.close()
    caplog.set_level(logging.INFO)

    assert JOBS not in metrics.metrics()
    assert metrics.total(SENT) == 1
    assert "jobs and workers cannot be counted now" in caplog.text


def test_without_gauges_the_store_is_not_asked(metrics: Metrics) -> None:
    with Forebay("memory://") as app:
        measure(app, metrics.provider, gauges=False)

        @app.task(name="send")
        def send() -> None:
            pass

        send.enqueue()

        assert {JOBS, WORKERS}.isdisjoint(metrics.metrics())


def test_a_job_that_is_refused_or_there_already_is_not_one_more(memory: Forebay, metrics: Metrics) -> None:
    @memory.task(name="once")
    def once() -> None:
        pass

    once.using(unique_key="k").enqueue()
    once.using(unique_key="k").enqueue()
    with pytest.raises(DuplicateJob):
        once.using(unique_key="k", on_conflict="raise").enqueue()

    good = [one for one in metrics.points(SENT) if "error.type" not in (one.attributes or {})]
    assert [one.value for one in good] == [1]
    assert metrics.total(SENT, error_type="DuplicateJob") == 1


def test_follow_ups_and_runs_of_schedules_are_enqueued_too(memory: Forebay, metrics: Metrics) -> None:
    done: list[str] = []

    @memory.task(name="child")
    def child() -> None:
        done.append("child")

    @memory.task(name="parent")
    def parent() -> None:
        current_job().follow_up(child.job())

    @memory.every(3_600, name="hourly")
    @memory.task(name="report")
    def report() -> None:
        pass

    with memory.run_worker():
        parent.enqueue().wait(timeout=TIMEOUT)
    assert metrics.total(SENT, forebay_task="child") == 1
    assert metrics.total(SENT, forebay_task="parent") == 1


def test_a_lease_that_is_lost_is_counted_by_who_had_it_and_the_attempt_by_who_took_it_over(
    memory: Forebay, metrics: Metrics
) -> None:
    @memory.task(name="send", queue="mail")
    def send() -> None:
        pass

    send.enqueue()
    slow, sweeper = memory.consumer(), WorkerId("sweeper")
    [job] = slow.claim(queue="mail")
    with closing(memory.engine.store()) as store:
        [swept] = store.sweep(sweeper, dead=[slow.id])
        store.settle_and_claim(sweeper, [decide(swept, Lost("it died"), 0.5)])

    assert slow.complete(job) is False

    assert metrics.total(LOST, forebay_task="send", messaging_destination_name="mail") == 1
    assert metrics.total(SETTLED) == 0
    slow.close()


def test_attempts_that_a_sweep_has_ended_are_counted_as_lost(metrics: Metrics, clock: FollowedClock) -> None:
    with Forebay("memory://", clock=clock) as app:
        measure(app, metrics.provider)

        @app.task(name="send", queue="mail")
        def send() -> None:
            pass

        send.enqueue()
        gone = app.consumer()
        gone.claim(queue="mail")
        sweeping = Sweeper(
            sweeper=WorkerId("sweeper"), clock=clock, roll=lambda: 0.5, hooks=app.registry.hooks
        )
        with closing(app.engine.store()) as store:
            sweeping.run(store)  # it reads the store's clock, and trusts it after a while
            clock.advance(ms=60_000)
            sweeping.run(store)

        assert metrics.total(SETTLED, forebay_outcome="lost", error_type="Lost") == 1
        assert metrics.total(RETRIED, forebay_task="send") == 1
        gone.close()


def test_a_loop_of_ones_own_is_counted_too(memory: Forebay, metrics: Metrics) -> None:
    with TaskService(memory) as service:
        service.create_queue("mail")
        service.enqueue("mail", 1, metadata={"task_type": "send"})
        service.dequeue("mail", wait_timeout=0)

    assert metrics.total(SENT, forebay_task="send") == 1
    assert metrics.total(CONSUMED, messaging_destination_name="mail") == 1


def test_jobs_of_a_transaction_of_ones_own_are_counted(tmp_path: Path, metrics: Metrics) -> None:
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        measure(app, metrics.provider)

        @app.task(name="send")
        def send() -> None:
            pass

        app.counts()
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
            connection.execute("begin immediate")
            app.enqueue_tx(connection, [send.job()])
            connection.execute("commit")

        assert metrics.total(SENT, forebay_task="send") == 1


@pytest.mark.parametrize("is_traced_first", [True, False])
def test_an_app_may_be_traced_and_measured(is_traced_first: bool, metrics: Metrics) -> None:
    with Forebay("memory://") as app:
        if is_traced_first:
            trace(app, TracerProvider())
        measure(app, metrics.provider)
        if not is_traced_first:
            trace(app, TracerProvider())

        @app.task(name="send")
        def send() -> None:
            pass

        job = send.enqueue()
        with app.run_worker():
            job.wait(timeout=TIMEOUT)

        assert "traceparent" in job.refresh().metadata
        assert metrics.total(SETTLED, forebay_outcome="completed") == 1
        with pytest.raises(ConfigError, match="measured already"):
            measure(app, metrics.provider)
        with pytest.raises(ConfigError, match="traced already"):
            trace(app)


def test_it_is_too_late_once_the_store_was_used(metrics: Metrics) -> None:
    with Forebay("memory://") as app:
        app.counts()

        with pytest.raises(ConfigError, match="before the first enqueue"):
            measure(app, metrics.provider)


def test_of_too_many_tasks_and_errors_the_later_ones_are_one(metrics: Metrics) -> None:
    instruments = Instruments(metrics.provider.get_meter("forebay"))
    with Forebay("memory://") as app:
        known = [app.task(name=f"task {number}")(_nothing).job() for number in range(MAX_SERIES + 2)]
    stored = InsertResult(id=None, is_new=True)

    instruments.on_enqueued(known, [stored] * len(known), 0.0)
    for number in range(MAX_ERROR_TYPES + 2):
        instruments.on_enqueue_failed(known[:1], type(f"Bad{number}", (Exception,), {})(), 0.0)

    assert metrics.total(SENT, forebay_task="_OTHER") == 2
    assert metrics.total(SENT, error_type="_OTHER") == 2


def _nothing() -> None:
    pass


class BrokenMeter(NoOpMeterProvider):
    """Hands out instruments that raise whenever they are used."""

    def get_meter(self, *args: Any, **kwargs: Any) -> Meter:
        meter: Any = super().get_meter(*args, **kwargs)
        for make in ("create_counter", "create_histogram"):
            setattr(meter, make, lambda *_args, **_kwargs: _Broken())
        return meter  # type: ignore[no-any-return]


class _Broken:
    def add(self, *_: Any) -> None:
        raise RuntimeError("it is broken")

    record = add


def test_what_goes_wrong_with_metrics_is_logged_once_and_harms_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Forebay("memory://") as app:
        measure(app, BrokenMeter())

        @app.task(name="send")
        def send() -> str:
            return "sent"

        with app.run_worker():
            assert send.enqueue().result(timeout=TIMEOUT) == "sent"

    assert caplog.text.count("metrics of jobs are lost") == 1


def test_of_many_threads_that_fail_at_once_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    harmless, together = SafeCalls(logging.getLogger("tests"), "it is broken"), Barrier(8)

    def fail() -> None:
        with harmless():
            together.wait(TIMEOUT)
            raise RuntimeError("broken")

    threads = [Thread(target=fail) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)

    assert [record.message for record in caplog.records] == ["it is broken"]


class Failing:
    """An observer that always raises."""

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        raise StoreUnavailable("mine")

    def on_settled(self, ends: Sequence[Any]) -> None:
        raise StoreUnavailable("mine")

    on_lease_lost = on_claimed


def test_an_observer_that_fails_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with Forebay("memory://") as app:
        app.registry.hooks.observers.add(Failing())

        @app.task(name="send")
        def send() -> str:
            return "sent"

        with app.run_worker():
            assert send.enqueue().result(timeout=TIMEOUT) == "sent"
        job = send.enqueue()
        consumer = app.consumer()
        [claimed] = consumer.claim()
        with closing(app.engine.store()) as store:
            store.sweep(WorkerId("sweeper"), dead=[consumer.id])
            store.settle_and_claim(
                WorkerId("another"), claims=[QueueClaim(QueueName(DEFAULT_QUEUE), 1)], room=1
            )
        assert consumer.complete(claimed) is False
        assert job.refresh().result is None
        consumer.close()

    assert caplog.text.count("Failing object") >= 4
