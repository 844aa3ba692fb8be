"""Queues that no worker serves: who says it, and when it is not said."""

from __future__ import annotations

import asyncio
import logging

import pytest

from forebay import Forebay, WaitTimeout
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.queue import QueueState
from forebay.domain.worker import WorkerInfo
from forebay.maintenance.unserved_queue_warner import UnservedQueueWarner
from forebay.operations.unserved_queues import unserved_queues
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import new_job

MAIL = QueueName("mail")
WORKER = WorkerId("w")


@pytest.fixture
def app() -> Forebay:
    return Forebay("memory://")


def test_the_time_out_of_a_wait_says_that_no_worker_serves_the_queue(app: Forebay) -> None:
    job = app.enqueue("t", queue="emial")

    with pytest.raises(
        WaitTimeout, match=r"is pending after 0.01 s; it goes on; no worker serves queue emial"
    ):
        job.result(timeout=0.01)
    with pytest.raises(WaitTimeout, match="no worker serves queue emial") as waited:
        asyncio.run(job.result_async(timeout=0.01))
    assert (waited.value.job_id, waited.value.state) == (job.id, "pending")
    app.client.write(lambda store: store.save_queue(QueueName("emial"), state=QueueState.PAUSED))
    with pytest.raises(WaitTimeout, match="queue emial is paused"):
        job.wait(timeout=0.01)


def test_a_single_look_and_a_served_queue_have_no_such_reason(app: Forebay) -> None:
    job = app.enqueue("t", queue="mail")
    with pytest.raises(WaitTimeout, match=r"it goes on$"):
        job.wait(timeout=0)
    app.client.write(lambda store: store.heartbeat(WorkerInfo(id=WORKER, queues=(MAIL,))))

    with pytest.raises(WaitTimeout, match=r"it goes on$"):
        job.wait(timeout=0.01)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    return MemoryEngine(clock=clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_queue_is_named_once_after_its_job_has_waited(
    engine: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, telling = engine.store(), UnservedQueueWarner(engine.reader)
    store.insert([new_job(queue=MAIL)] * 2)
    telling.run(store)
    assert caplog.messages == []

    clock.advance(30_000)
    for _ in range(2):
        assert telling.run(store) is False
    message = "2 jobs wait in queue mail, and no worker serves it; start one with --queues mail"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, message)
    ]

    store.heartbeat(WorkerInfo(id=WORKER, queues=(MAIL,)))
    telling.run(store)
    store.remove_worker(WORKER)
    telling.run(store)
    assert caplog.messages == [message] * 2


def test_a_queue_of_consumers_and_one_that_is_paused_are_not_named(
    engine: MemoryEngine, clock: ManualClock
) -> None:
    store, reader = engine.store(), engine.reader()
    store.insert([new_job(queue=MAIL)] * 2)
    other = QueueName("other")
    store.insert([new_job(queue=other)])
    store.save_queue(other, state=QueueState.PAUSED)
    store.insert([new_job(queue=QueueName("later"), delay_ms=3_600_000)])
    clock.advance(60_000)
    assert [queue.name for queue in unserved_queues(reader)] == [MAIL]

    assert store.settle_and_claim(
        WORKER, claims=[QueueClaim(MAIL, 1)], room=1
    ).jobs  # a consumer sends no heartbeat

    assert unserved_queues(reader) == []
