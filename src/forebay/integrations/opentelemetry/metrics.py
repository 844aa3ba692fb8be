"""Metrics of jobs with OpenTelemetry: jobs enqueued, claimed and settled, and how long they waited and ran.

    measure(app)  # after the meter provider was set, and before anything is enqueued

Names and units follow OpenTelemetry's conventions for messaging where these have one; others begin with
`forebay.`. Errors in metrics are logged once, and harm no job.
"""

from __future__ import annotations

import logging
from collections import Counter as CountMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from opentelemetry import metrics as otel
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from forebay.app.app import Forebay
from forebay.clock import Clock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import Job, NewJob
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MAX_SERIES, MetricEvent, metric_events
from forebay.domain.queue_counts import Counts
from forebay.domain.schedule import ScheduleRunStatus
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.errors import ConfigError, StoreError
from forebay.integrations.opentelemetry.engine_proxy import Delegate
from forebay.integrations.opentelemetry.safe_calls import SafeCalls
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import FireResult
from forebay.stores.contract.store import Store
from forebay.telemetry.observers import SettledAttempt

if TYPE_CHECKING:
    from forebay.domain.schedule_runs import ScheduleAdvance

# As in the conventions for messaging, and further ones for jobs that take long.
BOUNDARIES: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
LONG_BOUNDARIES: Final = (*BOUNDARIES, 30, 60, 300, 900, 3_600)
# A collector that collects more often gets the values of the last time.
REFRESH_SECONDS: Final = 10.0
MAX_ERROR_TYPES: Final = 100
MAX_ERROR_TYPE: Final = 100
OTHER: Final = "_OTHER"  # the name of the conventions for the rest
SHOWN_STATES: Final = (
    JobState.SCHEDULED,
    JobState.BLOCKED,
    JobState.PENDING,
    JobState.RUNNING,
    JobState.RETRYING,
    JobState.DEAD,
)

Attributes = Mapping[str, str]
K = TypeVar("K")

logger: logging.Logger = logging.getLogger(__name__)


def measure(app: Forebay, meter_provider: otel.MeterProvider | None = None, *, gauges: bool = True) -> None:
    """Measure all that this app enqueues and runs. With `gauges` jobs and workers are counted in the store
    when metrics are collected, at most every ten seconds."""
    if getattr(app.engine, "is_measured", False):
        raise ConfigError("this app is measured already")
    meter = otel.get_meter("forebay", meter_provider=meter_provider)
    instruments = Instruments(meter)
    engine = cast(Engine, MeasuredEngine(app.engine, instruments, app.clock))
    app.client.wrap_engine(engine)
    app.engine = engine
    app.registry.hooks.observers.add(instruments)
    if gauges:
        Gauges(meter, app)


class _AttributeSets:
    """The attributes of series. Their number is bounded, since each is kept until the program ends: beyond a
    limit, further tasks or types of errors share one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._series: dict[tuple[str, str], Attributes] = {}
        self._errors: set[str] = set()

    def series(self, queue: str, task: str) -> Attributes:
        attributes = self._series.get((queue, task))
        return self._add_series(queue, task) if attributes is None else attributes

    def _add_series(self, queue: str, task: str) -> Attributes:
        with uninterrupted, self._lock:
            task = task if len(self._series) < MAX_SERIES else OTHER
            attributes = {
                "messaging.system": "forebay",
                "messaging.destination.name": queue,
                "forebay.task": task,
            }
            return self._series.setdefault((queue, task), attributes)

    def error(self, name: str) -> str:
        name = name[:MAX_ERROR_TYPE]
        if name not in self._errors:
            with uninterrupted, self._lock:
                if len(self._errors) >= MAX_ERROR_TYPES:
                    return OTHER
                self._errors.add(name)
        return name


class Instruments:
    """Counters and timers of one program; an observer of its workers and consumers. Any thread may use it."""

    def __init__(self, meter: Meter) -> None:
        self._attribute_sets = _AttributeSets()
        self._safe_calls = SafeCalls(logger, "metrics of jobs are lost; this is logged once")
        self._sent = _counter(meter, "messaging.client.sent.messages", "{message}", "Jobs enqueued.")
        self._sending = _histogram(
            meter, "messaging.client.operation.duration", BOUNDARIES, "Calls of the store that enqueue."
        )
        self._consumed = _counter(meter, "messaging.client.consumed.messages", "{message}", "Jobs claimed.")
        self._running = _histogram(meter, "messaging.process.duration", LONG_BOUNDARIES, "Runs of tasks.")
        self._waiting = _histogram(
            meter, "forebay.wait.duration", LONG_BOUNDARIES, "From when a job could have run to its claim."
        )
        self._settled = _counter(meter, "forebay.settled.attempts", "{attempt}", "Attempts by their outcome.")
        self._retried = _counter(meter, "forebay.retried.jobs", "{job}", "Jobs that are to be tried again.")
        self._lost = _counter(
            meter, "forebay.lost.leases", "{lease}", "Leases lost while their jobs ran here."
        )

    # Enqueue

    def on_enqueued(self, jobs: Sequence[NewJob], receipts: Sequence[InsertResult], seconds: float) -> None:
        """Count jobs by the store's answer, and record the duration of the call."""
        with self._safe_calls():
            counts: CountMap[tuple[str, str, str]] = CountMap()
            for job, receipt in zip(jobs, receipts, strict=True):
                if receipt.error is not None:
                    counts[
                        job.queue, job.task, self._attribute_sets.error(type(receipt.error).__qualname__)
                    ] += 1
                elif receipt.is_new:  # a taken key is answered with the job that holds it
                    counts[job.queue, job.task, ""] += 1
            self._count_sent(counts)
            self._time_sending(jobs, seconds)

    def on_enqueue_failed(self, jobs: Sequence[NewJob], error: BaseException, seconds: float) -> None:
        """Count jobs that were not stored, as far as is known."""
        with self._safe_calls():
            kind = self._attribute_sets.error(type(error).__qualname__)
            self._count_sent(CountMap((job.queue, job.task, kind) for job in jobs))
            self._time_sending(jobs, seconds, kind)

    def _count_sent(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        for (queue, task, error), count in counts.items():
            self._sent.add(count, self._operation(queue, task, "enqueue", "send", error))

    def _time_sending(self, jobs: Sequence[NewJob], seconds: float, error: str = "") -> None:
        # One call may have jobs of several tasks, and is recorded once for each task.
        for queue, task in {(job.queue, job.task) for job in jobs}:
            self._sending.record(seconds, self._operation(queue, task, "enqueue", "send", error))

    def on_fired(self, moves: Sequence[ScheduleAdvance], answers: Sequence[FireResult]) -> None:
        """Count the jobs of schedule runs."""
        with self._safe_calls():
            counts: CountMap[tuple[str, str, str]] = CountMap()
            for move, answer in zip(moves, answers, strict=True):
                enqueued = {run.planned_at for run in answer.runs if run.status is ScheduleRunStatus.ENQUEUED}
                counts.update(
                    (run.job.queue, run.job.task, "") for run in move.runs if run.planned_at in enqueued
                )
            self._count_sent(counts)

    # Claim, run, settle

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        with self._safe_calls():
            for (queue, task), count in CountMap((job.queue, job.task) for job in jobs).items():
                self._consumed.add(count, self._operation(queue, task, "claim", "receive"))
            for job in jobs:
                due_at = max(job.run_at, job.ready_at)
                waited = max(0, (job.started_at or due_at) - due_at) / 1_000
                self._waiting.record(waited, self._attribute_sets.series(job.queue, job.task))

    def on_settled(self, attempts: Sequence[SettledAttempt]) -> None:
        with self._safe_calls():
            settled: CountMap[tuple[str, ...]] = CountMap()
            retried: CountMap[tuple[str, str]] = CountMap()
            for job, settlement, seconds in attempts:
                error = (
                    self._attribute_sets.error(settlement.error.type) if settlement.error is not None else ""
                )
                settled[job.queue, job.task, settlement.outcome, settlement.state, error] += 1
                if MetricEvent.RETRIED in metric_events(settlement.outcome, settlement.state):
                    retried[job.queue, job.task] += 1
                if seconds is not None:
                    attributes = self._operation(job.queue, job.task, "run", "process", error)
                    self._running.record(seconds, attributes)
                if settlement.follow_ups:
                    self._count_sent(
                        CountMap((follow_up.queue, follow_up.task, "") for follow_up in settlement.follow_ups)
                    )
            self._count_settled(settled)
            for (queue, task), count in retried.items():
                self._retried.add(count, self._attribute_sets.series(queue, task))

    def _count_settled(self, counts: Mapping[tuple[str, ...], int]) -> None:
        for (queue, task, outcome, state, error), count in counts.items():
            attributes = self._operation(queue, task, "settle", "settle", error)
            self._settled.add(count, {**attributes, "forebay.outcome": outcome, "forebay.state": state})

    def on_lease_lost(self, jobs: Sequence[Job]) -> None:
        with self._safe_calls():
            for (queue, task), count in CountMap((job.queue, job.task) for job in jobs).items():
                self._lost.add(count, self._attribute_sets.series(queue, task))

    def _operation(self, queue: str, task: str, name: str, kind: str, error: str = "") -> Attributes:
        own = {"messaging.operation.name": name, "messaging.operation.type": kind}
        return {**self._attribute_sets.series(queue, task), **own, **({"error.type": error} if error else {})}


class Gauges:
    """Numbers of jobs and workers. All gauges share one query of the store."""

    def __init__(self, meter: Meter, app: Forebay) -> None:
        self._app = app
        self._lock = Lock()
        self._snapshot: tuple[dict[str, Counts], CountMap[str]] | None = None
        self._refresh_at = 0.0
        meter.create_observable_gauge(
            "forebay.queue.jobs", [self._jobs], "{job}", "Jobs in the store, by queue and state."
        )
        meter.create_observable_gauge(
            "forebay.workers", [self._workers], "{worker}", "Workers that are alive."
        )

    def _jobs(self, _: CallbackOptions) -> Iterable[Observation]:
        queues, _workers = self._refresh() or ({}, None)
        return [
            Observation(
                getattr(counts, state),
                {
                    "messaging.system": "forebay",
                    "messaging.destination.name": queue,
                    "forebay.state": state.value,
                },
            )
            for queue, counts in sorted(queues.items())[:MAX_SERIES]
            for state in SHOWN_STATES
        ]

    def _workers(self, _: CallbackOptions) -> Iterable[Observation]:
        _queues, workers = self._refresh() or (None, {})
        return [Observation(count, {"forebay.state": state}) for state, count in workers.items()]

    def _refresh(self) -> tuple[dict[str, Counts], CountMap[str]] | None:
        """Return the latest numbers; None while the store is unavailable."""
        with uninterrupted, self._lock:
            now = self._app.clock.monotonic()
            if now < self._refresh_at:
                return self._snapshot
            self._refresh_at, self._snapshot = now + REFRESH_SECONDS, None
            try:
                self._snapshot = self._app.client.read(_load_snapshot)
            except StoreError as exc:
                # No warning: callers that need the store report its error, and at the end of a program it is
                # closed.
                logger.info("jobs and workers cannot be counted now: %s", exc)
            return self._snapshot


def _load_snapshot(reader: Reader) -> tuple[dict[str, Counts], CountMap[str]]:
    now, workers = reader.now(), reader.workers()
    alive = CountMap(
        _state(worker) for worker in workers if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD
    )
    return {str(queue): counts for queue, counts in reader.counts().items()}, alive


def _state(worker: WorkerInfo) -> str:
    return worker.state.value


class MeasuredEngine(Delegate[Instruments]):
    """Opens handles that count enqueued jobs."""

    is_measured = True

    def __init__(self, inner: Any, instruments: Instruments, clock: Clock) -> None:
        super().__init__(inner, instruments)
        self._clock = clock

    def store(self) -> Store:
        return cast(Store, MeasuredStore(self._inner.store(), self._recorder, self._clock))

    def insert_tx(self, connection: object, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        with _time_insert(self._recorder, self._clock, jobs) as count:
            return count(self._inner.insert_tx(connection, jobs, **options))

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[InsertResult]:
        with _time_insert(self._recorder, self._clock, jobs) as count:
            return count(await self._inner.insert_tx_async(connection, jobs, **options))


class MeasuredStore(Delegate[Instruments]):
    """The write side: enqueued jobs. Workers and consumers report the rest."""

    def __init__(self, inner: Any, instruments: Instruments, clock: Clock) -> None:
        super().__init__(inner, instruments)
        self._clock = clock

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        with _time_insert(self._recorder, self._clock, jobs) as count:
            return count(self._inner.insert(jobs, **options))

    def fire_schedules(self, moves: Sequence[ScheduleAdvance]) -> list[FireResult]:
        answers: list[FireResult] = self._inner.fire_schedules(moves)
        self._recorder.on_fired(moves, answers)
        return answers


@contextmanager
def _time_insert(
    instruments: Instruments, clock: Clock, jobs: Sequence[NewJob]
) -> Iterator[Callable[[list[InsertResult]], list[InsertResult]]]:
    started_at = clock.monotonic()

    def record_inserts(receipts: list[InsertResult]) -> list[InsertResult]:
        instruments.on_enqueued(jobs, receipts, clock.monotonic() - started_at)
        return receipts

    try:
        yield record_inserts
    except Exception as exc:
        instruments.on_enqueue_failed(jobs, exc, clock.monotonic() - started_at)
        raise


def _counter(meter: Meter, name: str, unit: str, description: str) -> Counter:
    return meter.create_counter(name, unit, description)


def _histogram(meter: Meter, name: str, boundaries: Sequence[float], description: str) -> Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=boundaries)
