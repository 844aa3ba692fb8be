"""Traces of jobs with OpenTelemetry: enqueue, claim, run, settle, across processes, retries and workflows.

    trace(app)  # after the tracer provider was set, and before anything is enqueued

The context travels in the metadata of a job as W3C writes it (`traceparent`), so whoever enqueues and whoever
runs need not be the same program. The spans of a job hang below each other: its enqueue below whatever
enqueued it, or below the enqueue of the job that it depends on; its claims below the enqueue; run and
settlement below the claim. A claim of a later attempt has a link to the one before, where one process has
made both. What goes wrong with a span is logged once, and harms no job.
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
from forebay.app.context import JobContext
from forebay.clock import SystemClock
from forebay.domain.job import Job, JobId, Need, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.settlement import Settlement
from forebay.errors import Cancel, ConfigError, InvalidJob, Snooze
from forebay.integrations.opentelemetry.around import Around
from forebay.integrations.opentelemetry.harmless import Harmless
from forebay.interrupts import uninterrupted
from forebay.stores.protocol import Engine, Exchange, Receipt, Refusal, Store

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
# How many jobs are remembered at most: being enqueued, running, and for others that may depend on them.
MOST_KNOWN: Final = 10_000
_NS: Final = 1_000_000
_CLOCK: Final = SystemClock()
_PROPAGATOR: Final = TraceContextTextMapPropagator()

logger: logging.Logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


def trace(app: Forebay, tracer_provider: otel.TracerProvider | None = None) -> None:
    """Make spans of all that this app enqueues and runs; of what it has enqueued before, only of its runs."""
    if getattr(app.engine, "is_traced", False):
        raise ConfigError("this app is traced already")
    tracing = Tracing(otel.get_tracer("forebay", tracer_provider=tracer_provider))
    engine = cast(Engine, TracedEngine(app.engine, tracing))
    app.client.pass_through(engine, tracing.stamped)
    app.engine = engine
    app.middleware(tracing.running)


class _Recent(Generic[K, V]):
    """What was put in last. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        with uninterrupted, self._lock:
            self._found[key] = value
            if len(self._found) > MOST_KNOWN:
                self._found.popitem(last=False)

    def get(self, key: K) -> V | None:
        with uninterrupted, self._lock:
            return self._found.get(key)

    def pop(self, key: K) -> V | None:
        with uninterrupted, self._lock:
            return self._found.pop(key, None)


class Tracing:
    """The spans of one program."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._enqueuing: _Recent[str, Span] = _Recent()  # by traceparent, until the store has answered
        self._enqueued: _Recent[JobId, SpanContext] = _Recent()
        self._attempts: _Recent[JobId, SpanContext] = _Recent()  # the newest claim
        self._claimed: _Recent[Lease, SpanContext] = _Recent()
        self._harmless = Harmless(logger, "spans of jobs are lost; this is said once")

    # Enqueue

    def stamped(self, jobs: Sequence[NewJob], within: Context | None = None) -> list[NewJob]:
        """The jobs with the contexts of spans that begin now; `stored` or `refused` ends them. One that has a
        context is left as it is."""
        made: list[NewJob] = []
        contexts: list[SpanContext | None] = []
        for job in jobs:
            carrying, context = job, None
            if TRACEPARENT not in job.metadata:
                with self._harmless():
                    span = self._begun(job, self._parents(job.depends_on, contexts), within)
                    context = span.get_span_context()
                    carrying = self._carrying(job, span)
            made.append(carrying)
            contexts.append(context)
        return made

    def _begun(self, job: NewJob, parents: Sequence[SpanContext], within: Context | None) -> Span:
        return self._tracer.start_span(
            f"enqueue {job.task}",
            context=_below(parents[0]) if parents else within,
            kind=SpanKind.PRODUCER,
            links=[Link(parent) for parent in (*parents[1:], *(_caller() if parents else ()))],
            attributes={"forebay.task": job.task, "forebay.queue": job.queue},
        )

    def _parents(self, needs: Sequence[Need], before: Sequence[SpanContext | None]) -> list[SpanContext]:
        """The contexts of those that a job depends on, as far as they are known here."""
        found = []
        for need in needs:
            if isinstance(need.parent, int):
                found.append(before[-need.parent] if 0 < need.parent <= len(before) else None)
            else:
                found.append(self._enqueued.get(need.parent))
        return [one for one in found if one is not None and one.is_valid]

    def _carrying(self, job: NewJob, span: Span) -> NewJob:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, otel.set_span_in_context(span))
        if TRACEPARENT not in carrier:
            return job  # nobody collects spans
        try:
            carrying = replace(job, metadata={**job.metadata, **carrier})
        except InvalidJob:  # its own metadata leaves no room
            span.end()
            return job
        self._enqueuing.put(carrier[TRACEPARENT], span)
        return carrying

    def stored(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        """These have been answered like this."""
        for job, receipt in zip(jobs, receipts, strict=True):
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is None:
                continue
            with self._harmless():
                if receipt.error is not None:
                    _failed(span, receipt.error)
                elif receipt.id is not None:
                    span.set_attributes({"forebay.job_id": receipt.id, "forebay.is_new": receipt.is_new})
                    self._enqueued.put(receipt.id, span.get_span_context())
                span.end()

    def refused(self, jobs: Sequence[NewJob], error: BaseException) -> None:
        """None of these was stored, as far as anybody knows."""
        for job in jobs:
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is not None:
                with self._harmless():
                    _failed(span, error)
                    span.end()

    # Claim, run, settle

    def claimed(self, jobs: Sequence[Job], began_ns: int) -> None:
        """These were claimed by a call that began then."""
        for job in jobs:
            with self._harmless():
                earlier = self._attempts.get(job.id)
                span = self._tracer.start_span(
                    f"claim {job.queue}",
                    context=_extracted(job.metadata),
                    kind=SpanKind.CONSUMER,
                    links=[Link(earlier)] if earlier is not None else [],
                    attributes=_attributes(job),
                    start_time=began_ns,
                )
                self._attempts.put(job.id, span.get_span_context())
                self._claimed.put(Lease(job.id, job.attempt), span.get_span_context())
                span.end()

    def swept(self, jobs: Sequence[Job]) -> None:
        """These were taken over from somebody who is gone, and are about to be settled."""
        for job in jobs:
            with self._harmless():
                brought = otel.get_current_span(_extracted(job.metadata)).get_span_context()
                if brought.is_valid:
                    self._claimed.put(Lease(job.id, job.attempt), brought)

    @contextmanager
    def running(self, context: JobContext) -> Iterator[None]:
        """Middleware: the run of a job; what it enqueues hangs below it."""
        job = context.job
        span = token = None
        with self._harmless():
            claim = self._claimed.get(Lease(job.id, job.attempt))
            span = self._tracer.start_span(
                f"run {job.task}",
                # An isolated process has not claimed it, and knows what the job has brought.
                context=_below(claim) if claim is not None else _extracted(job.metadata),
                attributes=_attributes(job),
            )
            token = attach(otel.set_span_in_context(span))
        try:
            yield
        except (Snooze, Cancel):  # what a task asks for is no failure
            raise
        except BaseException as exc:
            if span is not None:
                with self._harmless():
                    _failed(span, exc)
            raise
        finally:
            with self._harmless():
                if token is not None:
                    detach(token)
                if span is not None:
                    span.end()

    def following(self, end: Settlement) -> Settlement:
        """A settlement whose follow-ups hang below the claim of their parent."""
        if not end.follow_ups:
            return end
        made = end
        with self._harmless():
            claim = self._claimed.get(Lease(end.job_id, end.attempt))
            within = _below(claim) if claim is not None else None
            made = replace(end, follow_ups=tuple(self.stamped(end.follow_ups, within)))
        return made

    def settled(self, ends: Sequence[Settlement], refused: Sequence[Refusal], began_ns: int) -> None:
        """These were written, but for those that were refused."""
        lost = {one.lease: one.reason for one in refused}
        for end in ends:
            with self._harmless():
                self._settled(end, lost.get(Lease(end.job_id, end.attempt)), began_ns)

    def _settled(self, end: Settlement, refused: str | None, began_ns: int) -> None:
        claim = self._claimed.pop(Lease(end.job_id, end.attempt))
        self._end_follow_ups(end, is_stored=refused is None)
        span = self._tracer.start_span(
            f"settle {end.state}",
            context=Context() if claim is None else _below(claim),
            attributes={
                "forebay.job_id": end.job_id,
                "forebay.attempt": end.attempt,
                "forebay.state": end.state,
                "forebay.ending": end.ending,
            },
            start_time=began_ns,
        )
        if refused is not None:
            span.set_status(StatusCode.ERROR, refused)
        span.end()

    def _end_follow_ups(self, end: Settlement, *, is_stored: bool) -> None:
        for job in end.follow_ups:
            span = self._enqueuing.pop(_traceparent(job.metadata))
            if span is not None:
                if not is_stored:
                    span.set_status(StatusCode.ERROR, "its parent was not settled")
                span.end()


class TracedEngine(Around[Tracing]):
    """Opens handles that make spans, and ends those of jobs that go into callers' own transactions."""

    is_traced = True

    def store(self) -> Store:
        return cast(Store, TracedStore(self._inner.store(), self._told))

    def insert_within(self, connection: object, jobs: Sequence[NewJob], **options: Any) -> list[Receipt]:
        with _ending(self._told, jobs) as tell:
            return tell(self._inner.insert_within(connection, jobs, **options))

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[Receipt]:
        with _ending(self._told, jobs) as tell:
            return tell(await self._inner.insert_within_async(connection, jobs, **options))


class TracedStore(Around[Tracing]):
    """The write side: what was enqueued, claimed and settled."""

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[Receipt]:
        with _ending(self._told, jobs) as tell:
            return tell(self._inner.insert(jobs, **options))

    def exchange(
        self, worker: WorkerId, settlements: Sequence[Settlement] = (), *args: Any, **kwargs: Any
    ) -> Exchange:
        began_ns = _CLOCK.now_ms() * _NS
        ends = [self._told.following(end) for end in settlements]
        answer: Exchange = self._inner.exchange(worker, ends, *args, **kwargs)
        if ends:
            self._told.settled(ends, answer.refused, began_ns)
        if answer.jobs or answer.adopted:
            self._told.claimed((*answer.jobs, *answer.adopted), began_ns)
        return answer

    def sweep(self, *args: Any, **kwargs: Any) -> list[Job]:
        jobs: list[Job] = self._inner.sweep(*args, **kwargs)
        self._told.swept(jobs)
        return jobs


@contextmanager
def _ending(tracing: Tracing, jobs: Sequence[NewJob]) -> Iterator[Callable[[list[Receipt]], list[Receipt]]]:
    def tell(receipts: list[Receipt]) -> list[Receipt]:
        tracing.stored(jobs, receipts)
        return receipts

    try:
        yield tell
    except BaseException as exc:
        tracing.refused(jobs, exc)
        raise


def _attributes(job: Job) -> dict[str, str | int]:
    found: dict[str, str | int | None] = {
        "forebay.job_id": job.id,
        "forebay.task": job.task,
        "forebay.queue": job.queue,
        "forebay.priority": job.priority,
        "forebay.attempt": job.attempt,
        "forebay.worker_id": job.worker,
        "forebay.correlation_id": job.correlation_id,
    }
    return {name: value for name, value in found.items() if value is not None}


def _traceparent(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get(TRACEPARENT, ""))


def _extracted(metadata: Mapping[str, Any]) -> Context:
    """The context that a job has brought; an empty one if there is none, and never that of who claims."""
    carrier = {name: str(metadata[name]) for name in (TRACEPARENT, TRACESTATE) if name in metadata}
    return _PROPAGATOR.extract(carrier, Context())


def _below(parent: SpanContext) -> Context:
    return otel.set_span_in_context(NonRecordingSpan(parent), Context())


def _caller() -> list[SpanContext]:
    """The span in which somebody enqueues, if there is one."""
    context = otel.get_current_span().get_span_context()
    return [context] if context.is_valid else []


def _failed(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}")
