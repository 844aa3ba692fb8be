"""Spans of jobs, as an exporter gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from forebay import Forebay, RetryPolicy, current_job
from forebay.compat.task_service.service import TaskService
from forebay.domain.job import DEFAULT_QUEUE, WorkerId
from forebay.domain.job_validation import MAX_METADATA
from forebay.domain.outcome import Lost
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, DuplicateJob, Snooze
from forebay.integrations.opentelemetry import trace
from forebay.integrations.opentelemetry.tracing import TracedEngine
from forebay.stores.contract.claims_and_results import QueueClaim

TIMEOUT = 60.0


class Traced:
    """An app whose spans are kept."""

    def __init__(self, app: Forebay) -> None:
        self.app = app
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")
        trace(app, self.provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Those that have ended, of this name, in the order of their beginnings."""
        found = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found

    def above(self, child: ReadableSpan) -> ReadableSpan:
        """The one that it hangs below. There may be more claims than runs: on a busy machine a job may be
        handed back before it starts."""
        [found] = [span for span in self._exporter.get_finished_spans() if is_below(child, span)]
        return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    with Forebay("memory://") as app:
        yield Traced(app)


def is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and child.parent.span_id == id_of(parent)


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


@pytest.mark.shows("R-MET-54")
def test_enqueue_claim_run_and_settlement_of_a_job_hang_below_each_other(traced: Traced) -> None:
    @traced.app.task(name="send", queue="mail")
    def send() -> None:
        pass

    with traced.tracer.start_as_current_span("request"):
        job = send.using(priority=3).enqueue()
    with traced.app.run_worker():
        job.wait(timeout=TIMEOUT)

    request, enqueue = traced.span("request"), traced.span("enqueue send")
    run, settle = (traced.span(name) for name in ("run send", "settle completed"))
    claim = traced.above(run)
    assert claim.name == "claim mail"
    assert is_below(enqueue, request)
    assert is_below(claim, enqueue)
    assert is_below(settle, claim)
    assert (enqueue.attributes or {})["forebay.job_id"] == job.id
    for span in (claim, run):
        attributes = dict(span.attributes or {})
        assert attributes.pop("forebay.worker_id")
        assert attributes.pop("forebay.attempt")
        assert attributes == {
            "forebay.job_id": job.id,
            "forebay.task": "send",
            "forebay.queue": "mail",
            "forebay.priority": 3,
        }
    assert str(job.refresh().metadata["traceparent"]).split("-")[2] == f"{id_of(enqueue):016x}"


def test_attempts_are_of_one_trace_and_the_later_has_a_link_to_the_earlier(traced: Traced) -> None:
    tried: list[int] = []

    @traced.app.task(name="try", retry_policy=RetryPolicy(base_ms=1, max_retries=1))
    def once_more() -> None:
        tried.append(current_job().attempt)
        if len(tried) == 1:
            raise ValueError("not yet")

    job = once_more.enqueue()
    with traced.app.run_worker():
        job.wait(timeout=TIMEOUT)

    failed, good = traced.spans("run try")
    first, second = traced.above(failed), traced.above(good)
    claims = [id_of(span) for span in traced.spans("claim default")]
    [earlier] = linked(second)
    assert earlier in claims
    assert earlier != id_of(second)
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError: not yet")
    assert [event.name for event in failed.events] == ["exception"]
    assert good.status.is_unset
    assert {trace_of(span) for span in (first, second, failed, good)} == {
        trace_of(traced.span("enqueue try"))
    }


def test_what_a_task_asks_for_is_no_error_of_its_span(traced: Traced) -> None:
    tried: list[int] = []

    @traced.app.task(name="later")
    def later() -> None:
        tried.append(current_job().attempt)
        if len(tried) == 1:
            raise Snooze(0)

    job = later.enqueue()
    with traced.app.run_worker():
        job.wait(timeout=TIMEOUT)

    assert [span.status.is_unset for span in traced.spans("run later")] == [True, True]


@pytest.mark.shows("R-MET-55", "R-DEP-17")
def test_a_job_hangs_below_the_one_that_it_depends_on(traced: Traced) -> None:
    @traced.app.task(name="step")
    def step(number: int) -> None:
        pass

    with traced.tracer.start_as_current_span("request"):
        first = step.enqueue(1)
        second = step.using(depends_on=[first]).enqueue(2)
        third = step.using(depends_on=[first, second]).enqueue(3)
    with traced.app.run_worker():
        third.wait(timeout=TIMEOUT)

    request = traced.span("request")
    by_job = {(span.attributes or {})["forebay.job_id"]: span for span in traced.spans("enqueue step")}
    enqueues = [by_job[job.id] for job in (first, second, third)]
    assert is_below(enqueues[0], request)
    assert is_below(enqueues[1], enqueues[0])
    assert is_below(enqueues[2], enqueues[0])
    assert linked(enqueues[2]) == [id_of(enqueues[1]), id_of(request)]


@pytest.mark.shows("R-MET-55")
def test_what_a_job_enqueues_hangs_below_its_run_and_what_follows_it_below_its_claim(traced: Traced) -> None:
    @traced.app.task(name="child")
    def child() -> None:
        pass

    @traced.app.task(name="parent")
    async def parent() -> str:
        current_job().follow_up(child.job())
        return (await child.enqueue_async()).id

    job = parent.enqueue()
    with traced.app.run_worker():
        enqueued = job.result(timeout=TIMEOUT)
        traced.app.job(enqueued).wait(timeout=TIMEOUT)

    run = traced.span("run parent")
    own, followed = traced.spans("enqueue child")
    assert is_below(own, run)
    assert run.parent is not None
    assert followed.parent == run.parent


def test_coroutines_enqueue_below_their_own_spans(traced: Traced) -> None:
    @traced.app.task(name="fetch")
    def fetch(page: int) -> None:
        pass

    async def ask(page: int) -> None:
        with traced.tracer.start_as_current_span(f"page {page}"):
            await fetch.enqueue_async(page)

    async def ask_both() -> None:
        await asyncio.gather(ask(1), ask(2))

    asyncio.run(ask_both())

    pages = {id_of(traced.span(f"page {page}")) for page in (1, 2)}
    assert {span.parent.span_id for span in traced.spans("enqueue fetch") if span.parent} == pages


def test_a_job_that_is_refused_ends_its_span_with_the_reason(traced: Traced) -> None:
    @traced.app.task(name="once")
    def once() -> None:
        pass

    once.using(unique_key="k").enqueue()
    with pytest.raises(DuplicateJob):
        once.using(unique_key="k", on_conflict="raise").enqueue()

    good, refused = traced.spans("enqueue once")
    assert good.status.is_unset
    assert refused.status.status_code is StatusCode.ERROR


def test_a_job_that_brings_a_context_keeps_it(traced: Traced) -> None:
    @traced.app.task(name="far")
    def far() -> None:
        pass

    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job = far.using(metadata={"traceparent": context}).enqueue()
    with traced.app.run_worker():
        job.wait(timeout=TIMEOUT)

    assert traced.spans("enqueue far") == []
    parent = traced.spans("claim default")[0].parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == "b7ad6b7169203331"


def test_the_end_of_an_attempt_that_was_lost_hangs_below_its_enqueue(traced: Traced) -> None:
    @traced.app.task(name="lost")
    def lost() -> None:
        pass

    gone, sweeper = WorkerId("gone"), WorkerId("sweeper")
    lost.enqueue()
    with closing(traced.app.engine.store()) as store:
        store.settle_and_claim(gone, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1)
        [job] = store.sweep(sweeper, dead=[gone])
        store.settle_and_claim(sweeper, [decide(job, Lost("it died"), 0.5)])

    assert is_below(traced.span("settle pending"), traced.span("enqueue lost"))


def test_without_a_provider_jobs_carry_nothing() -> None:
    with Forebay("memory://") as app:
        trace(app)

        @app.task
        def plain() -> None:
            pass

        job = plain.enqueue()
        with app.run_worker():
            job.wait(timeout=TIMEOUT)

        assert job.refresh().metadata == {}


def test_it_is_too_late_once_the_store_was_used() -> None:
    with Forebay("memory://") as app:
        app.client.counts()

        with pytest.raises(ConfigError, match="before the first enqueue"):
            trace(app)

        assert not isinstance(app.engine, TracedEngine)


def test_an_app_is_traced_once(traced: Traced) -> None:
    with pytest.raises(ConfigError, match="traced already"):
        trace(traced.app)


class Broken(SpanProcessor):
    """Raises at the begin of each span, or at its end."""

    def __init__(self, when: str) -> None:
        self._when = when

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._when == "begin":
            raise RuntimeError("broken at the begin")

    def on_end(self, span: ReadableSpan) -> None:
        if self._when == "end":
            raise RuntimeError("broken at the end")


@pytest.mark.parametrize("when", ["begin", "end"])
def test_what_goes_wrong_with_spans_is_logged_once_and_harms_no_job(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken(when))
    tried: list[int] = []
    with Forebay("memory://") as app:
        trace(app, provider)

        @app.task(name="child")
        def child() -> str:
            return "child"

        @app.task(name="parent", retry_policy=RetryPolicy(base_ms=1, max_retries=1))
        def parent() -> str:
            tried.append(1)
            if len(tried) == 1:
                raise ValueError("not yet")
            current_job().follow_up(child.job())
            return child.enqueue().id

        once = child.using(unique_key="k", on_conflict="raise")
        once.enqueue()
        with pytest.raises(DuplicateJob):
            once.enqueue()
        job = parent.enqueue()
        with app.run_worker():
            made = job.result(timeout=TIMEOUT)
            assert app.job(made).result(timeout=TIMEOUT) == "child"

        assert job.refresh().failures == 1
    assert caplog.text.count("spans of jobs are lost") == 1


def test_a_job_whose_metadata_leaves_no_room_is_enqueued_without_a_context(traced: Traced) -> None:
    @traced.app.task(name="full")
    def full() -> None:
        pass

    metadata = {"a": "x" * (MAX_METADATA - len('{"a":""}'))}
    job = full.using(metadata=metadata).enqueue()

    assert job.refresh().metadata == metadata
    assert traced.span("enqueue full").status.is_unset


def test_a_job_hangs_below_the_enqueue_of_one_that_was_claimed_meanwhile(traced: Traced) -> None:
    @traced.app.task(name="step")
    def step() -> None:
        pass

    with closing(traced.app.engine.store()) as store:
        first = step.enqueue()
        store.settle_and_claim(WorkerId("w"), claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1)
        step.using(depends_on=[first]).enqueue()

    before, after = traced.spans("enqueue step")
    assert is_below(after, before)


def test_a_task_of_the_task_service_is_traced_too(traced: Traced) -> None:
    with TaskService(traced.app) as service:
        service.create_queue("mail")
        service.enqueue("mail", 1, metadata={"task_type": "send"})
        service.dequeue("mail", wait_timeout=0)

    assert is_below(traced.span("claim mail"), traced.span("enqueue send"))
