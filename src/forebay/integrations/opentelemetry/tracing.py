"""Traces of jobs with OpenTelemetry: enqueue, claim, run, settle, across processes, retries and workflows.

    trace(app)  # after the tracer provider was set, and before anything is enqueued

The context travels in the metadata of a job in W3C's format (`traceparent`), so producer and worker need not
be the same program. The spans of a job are nested. Its enqueue is a child of the enqueueing code, or of the
enqueue of the job that it depends on. Its claims are children of the enqueue; run and settlement are children
of the claim. A claim of a later attempt has a link to the one before, if the same process made both. Errors
in spans are logged once, and harm no job.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace
from opentelemetry import trace as otel
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from forebay.app.app import Forebay
from forebay.app.job_context import JobContext
from forebay.clock import SystemClock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import Dependency, Job, JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.settlement import Settlement
from forebay.errors import Cancel, ConfigError, InvalidJob, Snooze
from forebay.integrations.opentelemetry.engine_proxy import Delegate
from forebay.integrations.opentelemetry.safe_calls import SafeCalls
from forebay.stores.contract.claims_and_results import InsertResult, LeaseRefusal, SettleAndClaimResult
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
# The most jobs that are remembered: being enqueued, running, and as parents of later jobs.
MAX_KNOWN: Final = 10_000
_NS: Final = 1_000_000
_CLOCK: Final = SystemClock()
_PROPAGATOR: Final = TraceContextTextMapPropagator()

logger: logging.Logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


def trace(app: Forebay, tracer_provider: otel.TracerProvider | None = None) -> None:
    """Create spans of all that this app enqueues and runs. Of jobs that it has enqueued before, only runs
    have spans."""
    if getattr(app.engine, "is_traced", False):
        raise ConfigError("this app is traced already")
    tracer = JobTracer(otel.get_tracer("forebay", tracer_provider=tracer_provider))
    engine = cast(Engine, TracedEngine(app.engine, tracer))
    app.client.wrap_engine(engine, tracer.start_enqueue_spans)
    app.engine = engine
    app.middleware(tracer.trace_run)


class _RecentMap(Generic[K, V]):
    """The values that were put in last. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        with uninterrupted, self._lock:
            self._values[key] = value
            if len(self._values) > MAX_KNOWN:
                self._values.popitem(last=False)

    def get(self, key: K) -> V | None:
        with uninterrupted, self._lock:
            return self._values.get(key)

    def pop(self, key: K) -> V | None:
        with uninterrupted, self._lock:
            return self._values.pop(key, None)


class JobTracer:
    """The spans of one program."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._enqueuing: _RecentMap[str, Span] = _RecentMap()  # by traceparent, until the store has answered
        self._enqueued: _RecentMap[JobId, SpanContext] = _RecentMap()
        self._attempts: _RecentMap[JobId, SpanContext] = _RecentMap()  # the newest claim
        self._claimed: _RecentMap[Lease, SpanContext] = _RecentMap()
        self._safe_calls = SafeCalls(logger, "spans of jobs are lost; this is logged once")

    # Enqueue

    def start_enqueue_spans(
        self, jobs: Sequence[NewJob], parent_context: Context | None = None
    ) -> list[NewJob]:
        """Return the jobs with the contexts of spans that begin now; `end_enqueue_spans` or
        `fail_enqueue_spans` ends them. A job that has a context is left as it is."""
        traced_jobs: list[NewJob] = []
        contexts: list[SpanContext | None] = []
        for job in jobs:
            traced, context = job, None
            if TRACEPARENT not in job.metadata:
                with self._safe_calls():
                    span = self._start_enqueue_span(
                        job, self._parent_contexts(job.depends_on, contexts), parent_context
                    )
                    context = span.get_span_context()
                    traced = self._inject_context(job, span)
            traced_jobs.append(traced)
            contexts.append(context)
        return traced_jobs

    def _start_enqueue_span(
        self, job: NewJob, parents: Sequence[SpanContext], parent_context: Context | None
    ) -> Span:
        return self._tracer.start_span(
            f"enqueue {job.task}",
            context=_child_context(parents[0]) if parents else parent_context,
            kind=SpanKind.PRODUCER,
            links=[Link(parent) for parent in (*parents[1:], *(_caller_contexts() if parents else ()))],
            attributes={"forebay.task": job.task, "forebay.queue": job.queue},
        )

    def _parent_contexts(
        self, dependencies: Sequence[Dependency], earlier: Sequence[SpanContext | None]
    ) -> list[SpanContext]:
        """Return the contexts of a job's parents, as far as they are known here."""
        contexts = []
        for dependency in dependencies:
            if isinstance(dependency.parent, int):
                contexts.append(
                    earlier[-dependency.parent] if 0 < dependency.parent <= len(earlier) else None
                )
            else:
                contexts.append(self._enqueued.get(dependency.parent))
        return [context for context in contexts if context is not None and context.is_valid]

    def _inject_context(self, job: NewJob, span: Span) -> NewJob:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, otel.set_span_in_context(span))
        if TRACEPARENT not in carrier:
            return job  # no spans are collected
        try:
            traced = replace(job, metadata={**job.metadata, **carrier})
        except InvalidJob:  # its own metadata leaves no room
            span.end()
            return job
        self._enqueuing.put(carrier[TRACEPARENT], span)
        return traced

    def end_enqueue_spans(self, jobs: Sequence[NewJob], receipts: Sequence[InsertResult]) -> None:
        """End the spans of jobs that the store has answered."""
        for job, receipt in zip(jobs, receipts, strict=True):
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is None:
                continue
            with self._safe_calls():
                if receipt.error is not None:
                    _mark_failed(span, receipt.error)
                elif receipt.id is not None:
                    span.set_attributes({"forebay.job_id": receipt.id, "forebay.is_new": receipt.is_new})
                    self._enqueued.put(receipt.id, span.get_span_context())
                span.end()

    def fail_enqueue_spans(self, jobs: Sequence[NewJob], error: BaseException) -> None:
        """End the spans of jobs that were not stored, as far as is known."""
        for job in jobs:
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is not None:
                with self._safe_calls():
                    _mark_failed(span, error)
                    span.end()

    # Claim, run, settle

    def on_claimed(self, jobs: Sequence[Job], began_ns: int) -> None:
        """Create spans for jobs that were claimed by a call that began at `began_ns`."""
        for job in jobs:
            with self._safe_calls():
                earlier = self._attempts.get(job.id)
                span = self._tracer.start_span(
                    f"claim {job.queue}",
                    context=_extract_context(job.metadata),
                    kind=SpanKind.CONSUMER,
                    links=[Link(earlier)] if earlier is not None else [],
                    attributes=_attributes(job),
                    start_time=began_ns,
                )
                self._attempts.put(job.id, span.get_span_context())
                self._claimed.put(Lease(job.id, job.attempt), span.get_span_context())
                span.end()

    def on_swept(self, jobs: Sequence[Job]) -> None:
        """Remember jobs that were taken over from a dead worker, and are about to be settled."""
        for job in jobs:
            with self._safe_calls():
                carried = otel.get_current_span(_extract_context(job.metadata)).get_span_context()
                if carried.is_valid:
                    self._claimed.put(Lease(job.id, job.attempt), carried)

    @contextmanager
    def trace_run(self, context: JobContext) -> Iterator[None]:
        """Middleware: trace the run of a job. Jobs that it enqueues become children of the span."""
        job = context.job
        span = token = None
        with self._safe_calls():
            claim = self._claimed.get(Lease(job.id, job.attempt))
            span = self._tracer.start_span(
                f"run {job.task}",
                # An isolated process has not claimed the job, and only knows the context in its metadata.
                context=_child_context(claim) if claim is not None else _extract_context(job.metadata),
                attributes=_attributes(job),
            )
            token = attach(otel.set_span_in_context(span))
        try:
            yield
        except (Snooze, Cancel):  # a request of the task is no failure
            raise
        except BaseException as exc:
            if span is not None:
                with self._safe_calls():
                    _mark_failed(span, exc)
            raise
        finally:
            with self._safe_calls():
                if token is not None:
                    detach(token)
                if span is not None:
                    span.end()

    def trace_follow_ups(self, settlement: Settlement) -> Settlement:
        """Return the settlement with follow-ups whose spans are children of their parent's claim."""
        if not settlement.follow_ups:
            return settlement
        traced = settlement
        with self._safe_calls():
            claim = self._claimed.get(Lease(settlement.job_id, settlement.attempt))
            parent_context = _child_context(claim) if claim is not None else None
            traced = replace(
                settlement, follow_ups=tuple(self.start_enqueue_spans(settlement.follow_ups, parent_context))
            )
        return traced

    def on_settled(
        self, settlements: Sequence[Settlement], refused: Sequence[LeaseRefusal], began_ns: int
    ) -> None:
        """Create spans for settlements, also for the refused ones."""
        lost = {refusal.lease: refusal.reason for refusal in refused}
        for settlement in settlements:
            with self._safe_calls():
                self._record_settlement(
                    settlement, lost.get(Lease(settlement.job_id, settlement.attempt)), began_ns
                )

    def _record_settlement(self, settlement: Settlement, refused: str | None, began_ns: int) -> None:
        claim = self._claimed.pop(Lease(settlement.job_id, settlement.attempt))
        self._end_follow_ups(settlement, is_stored=refused is None)
        span = self._tracer.start_span(
            f"settle {settlement.state}",
            context=Context() if claim is None else _child_context(claim),
            attributes={
                "forebay.job_id": settlement.job_id,
                "forebay.attempt": settlement.attempt,
                "forebay.state": settlement.state,
                "forebay.outcome": settlement.outcome,
            },
            start_time=began_ns,
        )
        if refused is not None:
            span.set_status(StatusCode.ERROR, refused)
        span.end()

    def _end_follow_ups(self, settlement: Settlement, *, is_stored: bool) -> None:
        for job in settlement.follow_ups:
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is not None:
                if not is_stored:
                    span.set_status(StatusCode.ERROR, "its parent was not settled")
                span.end()


class TracedEngine(Delegate[JobTracer]):
    """Opens handles that create spans, and ends those of jobs in caller transactions."""

    is_traced = True

    def store(self) -> Store:
        return cast(Store, TracedStore(self._inner.store(), self._recorder))

    def insert_tx(self, connection: object, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        with _trace_insert(self._recorder, jobs) as end_spans:
            return end_spans(self._inner.insert_tx(connection, jobs, **options))

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[InsertResult]:
        with _trace_insert(self._recorder, jobs) as end_spans:
            return end_spans(await self._inner.insert_tx_async(connection, jobs, **options))


class TracedStore(Delegate[JobTracer]):
    """The write side: spans of jobs that are enqueued, claimed and settled."""

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        with _trace_insert(self._recorder, jobs) as end_spans:
            return end_spans(self._inner.insert(jobs, **options))

    def settle_and_claim(
        self, worker: WorkerId, settlements: Sequence[Settlement] = (), *args: Any, **kwargs: Any
    ) -> SettleAndClaimResult:
        began_ns = _CLOCK.now_ms() * _NS
        traced = [self._recorder.trace_follow_ups(settlement) for settlement in settlements]
        answer: SettleAndClaimResult = self._inner.settle_and_claim(worker, traced, *args, **kwargs)
        if traced:
            self._recorder.on_settled(traced, answer.refused, began_ns)
        if answer.jobs or answer.recovered:
            self._recorder.on_claimed((*answer.jobs, *answer.recovered), began_ns)
        return answer

    def sweep(self, *args: Any, **kwargs: Any) -> list[Job]:
        jobs: list[Job] = self._inner.sweep(*args, **kwargs)
        self._recorder.on_swept(jobs)
        return jobs


@contextmanager
def _trace_insert(
    tracer: JobTracer, jobs: Sequence[NewJob]
) -> Iterator[Callable[[list[InsertResult]], list[InsertResult]]]:
    def record_inserts(receipts: list[InsertResult]) -> list[InsertResult]:
        tracer.end_enqueue_spans(jobs, receipts)
        return receipts

    try:
        yield record_inserts
    except BaseException as exc:
        tracer.fail_enqueue_spans(jobs, exc)
        raise


def _attributes(job: Job) -> dict[str, str | int]:
    attributes: dict[str, str | int | None] = {
        "forebay.job_id": job.id,
        "forebay.task": job.task,
        "forebay.queue": job.queue,
        "forebay.priority": job.priority,
        "forebay.attempt": job.attempt,
        "forebay.worker_id": job.worker,
        "forebay.correlation_id": job.correlation_id,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _traceparent(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get(TRACEPARENT, ""))


def _extract_context(metadata: Mapping[str, Any]) -> Context:
    """Return the context in a job's metadata; an empty one if there is none, and never that of the claiming
    code."""
    carrier = {name: str(metadata[name]) for name in (TRACEPARENT, TRACESTATE) if name in metadata}
    return _PROPAGATOR.extract(carrier, Context())


def _child_context(parent: SpanContext) -> Context:
    return otel.set_span_in_context(NonRecordingSpan(parent), Context())


def _caller_contexts() -> list[SpanContext]:
    """Return the context of the enqueueing code, if there is one."""
    context = otel.get_current_span().get_span_context()
    return [context] if context.is_valid else []


def _mark_failed(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}")
