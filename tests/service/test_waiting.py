"""Claims that wait: what becomes of jobs that were claimed for somebody who has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import pytest

from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import JobState
from forebay.errors import StoreUnavailable
from forebay.service.operations.service import Service
from forebay.service.operations.waiting import Kind
from forebay.stores.memory.store import MemoryStore
from forebay.stores.opening import open_engine
from forebay.stores.protocol import Exchange
from tests.worker.support import DEADLINE

QUEUE = QueueName("q")
KIND = Kind((QUEUE,))


def played(play: Callable[[Service], Awaitable[None]]) -> None:
    """Run a scene with a service of its own."""

    async def run() -> None:
        service = Service(open_engine("memory://"))
        service.desk.client.write(lambda store: store.save_queue(QUEUE))
        await service.start()
        try:
            await asyncio.wait_for(play(service), DEADLINE)
        finally:
            await service.stop()
            await service.stop()

    asyncio.run(run())


def enqueued(service: Service) -> JobId:
    [receipt] = service.desk.client.write(lambda store: store.insert([NewJob(task="t", queue=QUEUE)]))
    assert receipt.id is not None
    return receipt.id


def job_of(service: Service, job_id: JobId) -> Job:
    job = service.desk.client.job(job_id)
    assert job is not None
    return job


class Held:
    """Holds up exchanges on their thread until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun = Event()
        self.may_go = Event()
        real = MemoryStore.exchange

        def exchange(store: MemoryStore, *args: Any, **more: Any) -> Exchange:
            answer = real(store, *args, **more)
            if answer.jobs:
                self.has_begun.set()
                assert self.may_go.wait(DEADLINE)
            return answer

        monkeypatch.setattr(MemoryStore, "exchange", exchange)


def test_who_leaves_while_the_store_is_asked_leaves_no_job_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        held = Held(monkeypatch)
        job_id = enqueued(service)
        claim = asyncio.create_task(service.waiting.claim(KIND, 1, 20.0))
        await asyncio.to_thread(held.has_begun.wait, DEADLINE)

        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        held.may_go.set()

        while job_of(service, job_id).state is not JobState.PENDING:
            await asyncio.sleep(0.01)
        [job] = await service.waiting.claim(KIND, 1, 20.0)
        assert (job.id, job.attempt, job.failures) == (job_id, 2, 0)

    played(play)


def test_a_job_that_came_too_late_goes_to_another_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        held = Held(monkeypatch)
        job_id = enqueued(service)
        leaving = asyncio.create_task(service.waiting.claim(KIND, 1, 20.0))
        await asyncio.to_thread(held.has_begun.wait, DEADLINE)
        staying = asyncio.create_task(service.waiting.claim(KIND, 1, 20.0))
        await asyncio.sleep(0)

        leaving.cancel()
        await asyncio.wait([leaving])
        held.may_go.set()

        [job] = await staying
        assert (job.id, job.attempt) == (job_id, 1)

    played(play)


def test_a_stop_lets_nobody_wait() -> None:
    async def play(service: Service) -> None:
        claim = asyncio.create_task(service.waiting.claim(KIND, 1, 20.0))
        await asyncio.sleep(0)

        await service.waiting.stop()

        assert await claim == []
        assert await service.waiting.claim(KIND, 1, 20.0) == []

    played(play)


def test_who_waits_hears_that_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        def away(*_: Any, **__: Any) -> Exchange:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "exchange", away)
            with pytest.raises(StoreUnavailable):
                await service.waiting.claim(KIND, 1, 20.0)
        job_id = enqueued(service)

        [job] = await service.waiting.claim(KIND, 1, 20.0)
        assert job.id == job_id

    played(play)


def test_the_duties_are_done_beside_it() -> None:
    async def play(service: Service) -> None:
        job = NewJob(task="t", queue=QUEUE, delay_ms=1)
        [receipt] = service.desk.client.write(lambda store: store.insert([job]))
        assert receipt.id is not None
        while job_of(service, receipt.id).state is not JobState.PENDING:
            await asyncio.sleep(0.01)

    played(play)
