"""A buffer before a store that goes away and comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import Any

import pytest

from forebay import Forebay, InvalidJob
from forebay.app import outage_buffer as buffer_module
from forebay.app.job_handle import JobHandle
from forebay.app.outage_buffer import Buffer
from forebay.domain.job import Dependency, NewJob, QueueName
from forebay.errors import Forbidden, JobNotFound, StoreError, StoreUnavailable
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.memory.store import MemoryStore
from tests.worker.support import DEADLINE, eventually


class Outage:
    """A store that is away, takes jobs without an answer, or is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.poison = ""
        self.is_done = False
        real: Callable[..., list[InsertResult]] = MemoryStore.insert

        def insert(store: MemoryStore, jobs: Sequence[NewJob], **more: Any) -> list[InsertResult]:
            if any(job.task == self.poison for job in jobs):
                raise Forbidden("not with this key")
            receipts = real(store, jobs, **more) if self.error is None or self.is_done else []
            if self.error is not None:
                raise self.error
            return receipts

        monkeypatch.setattr(MemoryStore, "insert", insert)

    def begin(self) -> None:
        self.error = StoreUnavailable("away")

    def end(self) -> None:
        self.error = None


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    monkeypatch.setattr(buffer_module, "MAX_PAUSE_SECONDS", 0.1)
    return Outage(monkeypatch)


@pytest.fixture
def app() -> Iterator[Forebay]:
    with Forebay("memory://") as app:
        yield app


def job(task: str = "t", **fields: Any) -> NewJob:
    return NewJob(task=task, **fields)


@pytest.mark.shows("R-RATE-18")
def test_jobs_wait_in_their_order_until_the_store_is_back(app: Forebay, outage: Outage) -> None:
    with Buffer(app) as buffer:
        before = buffer.enqueue(job("before"))
        outage.begin()
        during = [buffer.enqueue(job(f"during{n}")) for n in range(3)]
        with pytest.raises(JobNotFound):
            during[0].refresh()
        kept = len(buffer)
        outage.end()
        eventually(lambda: len(buffer) == 0)
        after = buffer.enqueue(job("after"))

        found = app.peek("default")

    assert kept == 3
    assert [one.id for one in found] == [before.id, *(one.id for one in during), after.id]
    assert buffer.close() == 0


def test_what_was_stored_without_an_answer_is_not_stored_twice(app: Forebay, outage: Outage) -> None:
    with Buffer(app) as buffer:
        outage.begin()
        outage.is_done = True
        handle = buffer.enqueue(job())
        outage.end()
        eventually(lambda: len(buffer) == 0)

    assert [one.id for one in app.peek("default")] == [handle.id]


@pytest.mark.shows("R-RATE-18")
def test_it_is_bounded_and_says_what_is_lost(
    app: Forebay, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = Buffer(app, max_jobs=2)
    outage.begin()
    for _ in range(2):
        buffer.enqueue(job())

    with pytest.raises(StoreUnavailable, match="2 jobs wait"):
        buffer.enqueue(job())
    lost = buffer.close()

    assert (lost, len(buffer), buffer.close()) == (2, 0, 0)
    assert "2 jobs waited for their store and are lost" in caplog.text
    with pytest.raises(StoreUnavailable, match="closed"):
        buffer.enqueue(job())
    outage.end()
    assert buffer.enqueue(job()).is_new
    with pytest.raises(InvalidJob, match="max_jobs"):
        Buffer(app, max_jobs=0)


def test_what_is_refused_meanwhile_goes_to_the_log_and_what_is_only_full_waits_on(
    app: Forebay, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    app.configure_queue("small", max_length=1)
    app.configure_queue("low", max_priority=0)
    with Buffer(app) as buffer:
        outage.error = StoreUnavailable("away")
        first, second = (buffer.enqueue(job(queue=QueueName("small"))) for _ in range(2))
        buffer.enqueue(job(queue=QueueName("low"), priority=1))
        with caplog.at_level(logging.ERROR):
            outage.error = StoreError("of another age")
            eventually(lambda: "cannot be sent" in caplog.text)
            outage.end()
            eventually(lambda: len(buffer) == 1)
        app.configure_queue("small", max_length=2)
        eventually(lambda: len(buffer) == 0)

    assert [one.id for one in app.peek("small")] == [first.id, second.id]
    assert "has waited, and is refused" in caplog.text
    assert app.peek("low") == []


def test_one_that_cannot_be_stored_does_not_keep_the_others(
    app: Forebay, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    with Buffer(app) as buffer:
        outage.begin()
        first, _, last = (buffer.enqueue(job(task)) for task in ("first", "poison", "last"))
        outage.poison = "poison"
        outage.end()
        eventually(lambda: len(buffer) == 0)

    assert [one.id for one in app.peek("default")] == [first.id, last.id]
    assert "of poison has waited, and is refused: not with this key" in caplog.text


def test_a_job_that_names_another_by_its_place_is_refused_at_once(app: Forebay, outage: Outage) -> None:
    with Buffer(app) as buffer:
        outage.begin()
        with pytest.raises(InvalidJob, match="by their ids"):
            buffer.enqueue(job(depends_on=(Dependency(1),)))
        with pytest.raises(InvalidJob, match="only jobs"):
            buffer.enqueue("t")  # type: ignore[arg-type]

    assert len(buffer) == 0


def test_what_the_store_is_asked_for_while_it_is_closed_is_not_called_lost(
    app: Forebay, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, answered = Event(), Event()
    monkeypatch.setattr(buffer_module, "BATCH_SIZE", 1)
    buffer = Buffer(app)
    outage.begin()
    sent, _ = buffer.enqueue(job()), buffer.enqueue(job())
    real = app.client.enqueue

    def slow(*args: Any, **options: Any) -> list[JobHandle[Any]]:
        requested.set()
        assert answered.wait(DEADLINE)
        return real(*args, **options)

    monkeypatch.setattr(app.client, "enqueue", slow)
    outage.end()
    assert requested.wait(DEADLINE)
    lost = buffer.close(timeout=0)
    answered.set()
    eventually(lambda: len(buffer) == 0)

    assert lost == 1
    assert [one.id for one in app.peek("default")] == [sent.id]
