"""Claims that wait: what becomes of jobs that were claimed for a client that has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import pytest

from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
from forebay.errors import StoreError, StoreUnavailable
from forebay.service.runtime import claim_waiters as waiting
from forebay.service.runtime.claim_waiters import GROUPS_PER_WRITE, ClaimGroupKey, ClaimWaiters
from forebay.service.service import Service
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.memory.store import MemoryStore
from tests.service.live_server import Held
from tests.worker.support import DEADLINE

QUEUE = QueueName("q")
KIND = ClaimGroupKey((QUEUE,))


def played(play: Callable[[Service], Awaitable[None]]) -> None:
    """Run a scene with a service of its own."""

    async def run() -> None:
        service = Service(open_engine("memory://"))
        service.pool.client.write(lambda store: store.save_queue(QUEUE))
        await service.start()
        try:
            await asyncio.wait_for(play(service), DEADLINE)
        finally:
            await service.stop()
            await service.stop()

    asyncio.run(run())


def enqueued(service: Service) -> JobId:
    [receipt] = service.pool.client.write(lambda store: store.insert([NewJob(task="t", queue=QUEUE)]))
    assert receipt.id is not None
    return receipt.id


def job_of(service: Service, job_id: JobId) -> Job:
    job = service.pool.client.job(job_id)
    assert job is not None
    return job


def test_who_leaves_while_the_store_is_asked_leaves_no_job_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        held = Held(monkeypatch)
        job_id = enqueued(service)
        claim = asyncio.create_task(service.claim_waiters.claim(KIND, 1, 20.0))
        await asyncio.to_thread(held.has_begun.wait, DEADLINE)

        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        held.may_go.set()

        while job_of(service, job_id).state is not JobState.PENDING:
            await asyncio.sleep(0.01)
        [job] = await service.claim_waiters.claim(KIND, 1, 20.0)
        assert (job.id, job.attempt, job.failures) == (job_id, 2, 0)

    played(play)


def test_a_job_that_came_too_late_goes_to_another_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        held = Held(monkeypatch)
        job_id = enqueued(service)
        leaving = asyncio.create_task(service.claim_waiters.claim(KIND, 1, 20.0))
        await asyncio.to_thread(held.has_begun.wait, DEADLINE)
        staying = asyncio.create_task(service.claim_waiters.claim(KIND, 1, 20.0))
        await asyncio.sleep(0)

        leaving.cancel()
        await asyncio.wait([leaving])
        held.may_go.set()

        [job] = await staying
        assert (job.id, job.attempt) == (job_id, 1)

    played(play)


def test_a_stop_lets_no_claim_wait() -> None:
    async def play(service: Service) -> None:
        claim = asyncio.create_task(service.claim_waiters.claim(KIND, 1, 20.0))
        await asyncio.sleep(0)

        await service.claim_waiters.stop()

        assert await claim == []
        assert await service.claim_waiters.claim(KIND, 1, 20.0) == []

    played(play)


def test_who_waits_hears_that_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        def away(*_: Any, **__: Any) -> SettleAndClaimResult:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "settle_and_claim", away)
            with pytest.raises(StoreUnavailable):
                await service.claim_waiters.claim(KIND, 1, 20.0)
        job_id = enqueued(service)

        [job] = await service.claim_waiters.claim(KIND, 1, 20.0)
        assert job.id == job_id

    played(play)


def test_who_joins_those_who_wait_in_vain_costs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 3_600.0)  # none without a reason, after the first

    async def play(service: Service) -> None:
        looks = Failing(monkeypatch, {}).requested
        first = asyncio.create_task(service.claim_waiters.claim(KIND, 1, 20.0))
        while not looks or not service.claim_waiters._groups[KIND].is_dry:
            await asyncio.sleep(0)
        before = len(looks)

        late = [service.claim_waiters.claim(KIND, 1, 0.01) for _ in range(200)]
        assert await asyncio.gather(*late) == [[]] * 200
        assert len(looks) == before

        assert await service.claim_waiters.claim(KIND, 1, 0) == []  # who does not wait wants to know
        assert len(looks) == before + 1

        job_id = enqueued(service)
        assert [job.id for job in await first] == [job_id]

    played(play)


def test_the_poll_of_each_second_comes_however_busy_it_is() -> None:
    async def play(service: Service) -> None:
        waiting = service.claim_waiters
        waiting._wake_event.set()

        assert await waiting._wait_for_work(asyncio.get_running_loop().time())

    played(play)


class Failing:
    """Calls fail for some queues, and are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: dict[str, Exception]) -> None:
        self.requested: list[str] = []
        real = MemoryStore.settle_and_claim

        def settle_and_claim(store: MemoryStore, *args: Any, **more: Any) -> SettleAndClaimResult:
            for claim_request in more.get("claims", ()):
                self.requested.append(claim_request.queue)
                if claim_request.queue in errors:
                    raise errors[claim_request.queue]
            return real(store, *args, **more)

        monkeypatch.setattr(MemoryStore, "settle_and_claim", settle_and_claim)


def claim_groups(service: Service, *queues: str) -> list[SettleAndClaimResult | Exception]:
    wanted = [(ClaimGroupKey((QueueName(queue),)), 1) for queue in queues]
    return service.pool.client.write(lambda store: service.claim_waiters._claim_groups(wanted, store))


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("a fault of ours")])
def test_what_goes_wrong_for_one_takes_no_job_from_those_before(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def play(service: Service) -> None:
        job_id = enqueued(service)
        Failing(monkeypatch, {"bad": error})

        found, failed = claim_groups(service, QUEUE, "bad")

        assert isinstance(found, SettleAndClaimResult)
        assert [job.id for job in found.jobs] == [job_id]
        assert failed is error

    played(play)


@pytest.mark.shows("R-RATE-14")
def test_a_store_that_is_away_is_asked_once_in_a_look_and_the_breaker_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(service: Service) -> None:
        failing = Failing(monkeypatch, {"bad": StoreUnavailable("away"), "worse": StoreUnavailable("away")})

        with pytest.raises(StoreUnavailable):
            claim_groups(service, QUEUE, "bad", "worse")

        assert failing.requested == [QUEUE, "bad"]

    played(play)


def test_whatever_goes_wrong_costs_one_turn_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(service: Service) -> None:
        has_failed = asyncio.Event()
        real = service.claim_waiters._claim_requested

        async def broken() -> None:
            monkeypatch.setattr(service.claim_waiters, "_claim_requested", real)
            has_failed.set()
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(service.claim_waiters, "_claim_requested", broken)
        await has_failed.wait()
        job_id = enqueued(service)

        [job] = await service.claim_waiters.claim(KIND, 1, 20.0)

        assert job.id == job_id
        assert "a fault of ours" in caplog.text
        await service.check()

    played(play)


def test_a_server_that_looks_for_no_jobs_is_not_ready_and_lets_go_of_its_store() -> None:
    async def run() -> None:
        service = Service(open_engine("memory://"))
        await service.start()
        await service.check()
        assert service.claim_waiters._task is not None
        service.claim_waiters._task.cancel()
        await asyncio.wait([service.claim_waiters._task])

        with pytest.raises(StoreUnavailable):
            await service.check()
        await service.stop()

        with pytest.raises(StoreError):
            await service.pool.read(lambda reader: reader.now())

    asyncio.run(run())


def test_many_kinds_are_looked_for_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(service: Service) -> None:
        writes: list[int] = []
        real = ClaimWaiters._claim_groups

        def counted(waiting: ClaimWaiters, wanted: Any, store: Any) -> Any:
            writes.append(len(wanted))
            return real(waiting, wanted, store)

        monkeypatch.setattr(ClaimWaiters, "_claim_groups", counted)
        kinds = [ClaimGroupKey((QUEUE,), lease_ms=1_000 + number) for number in range(GROUPS_PER_WRITE + 1)]

        assert await asyncio.gather(*(service.claim_waiters.claim(kind, 1, 0) for kind in kinds)) == [
            []
        ] * len(kinds)
        assert max(writes) <= GROUPS_PER_WRITE

    played(play)


def test_who_waits_for_a_job_keeps_no_writer_waiting_and_waits_for_none() -> None:
    async def play(service: Service) -> None:
        job_id = enqueued(service)
        service.pool.client.cancel([job_id])
        is_free = Event()
        writing = asyncio.create_task(service.pool.write(lambda _: is_free.wait(DEADLINE)))
        try:
            job = await asyncio.wait_for(service.jobs.wait(job_id, 20.0), DEADLINE / 2)
        finally:
            is_free.set()

        assert job.state is JobState.CANCELLED
        assert await writing

    played(play)


def test_a_stop_breaks_off_what_goes_through_many_jobs() -> None:
    async def play(service: Service) -> None:
        has_begun, batches = Event(), []

        def walk(store: Store, reader: Reader) -> None:
            while True:
                batches.append(reader.now())
                has_begun.set()

        walking = asyncio.create_task(service.pool.run_long(walk))
        await asyncio.to_thread(has_begun.wait, DEADLINE)
        await service.stop()

        with pytest.raises(StoreUnavailable, match="stops"):
            await walking
        assert batches

    played(play)
