"""The maintenance of a server process runs beside its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event

from forebay.domain.job import NewJob
from forebay.domain.job_states import JobState
from forebay.service.service import Service
from forebay.stores.contract.store import Store
from tests.service.test_claim_waiters import QUEUE, job_of, played
from tests.worker.support import DEADLINE


def test_the_maintenance_tasks_are_done_meanwhile() -> None:
    async def play(service: Service) -> None:
        job = NewJob(task="t", queue=QUEUE, delay_ms=1)
        [receipt] = service.pool.client.write(lambda store: store.insert([job]))
        assert receipt.id is not None
        while job_of(service, receipt.id).state is not JobState.PENDING:
            await asyncio.sleep(0.01)

    played(play)


class Ticking:
    """A maintenance task that is always due, and says when it is done."""

    every_ms = 0
    is_ready = True

    def __init__(self, name: str, do: Callable[[], None]) -> None:
        self.name = name
        self._do = do

    def run(self, store: Store) -> bool:
        self._do()
        return False


def test_who_writes_does_not_wait_for_all_maintenance_tasks() -> None:
    async def play(service: Service) -> None:
        loop, order, writes = asyncio.get_running_loop(), list[str](), list[asyncio.Future[None]]()
        is_done, is_write_queued = asyncio.Event(), Event()

        def ask() -> None:
            writes.append(asyncio.ensure_future(service.pool.write(lambda _: order.append("a write"))))
            loop.call_soon(is_write_queued.set)  # once it stands in the line

        def first() -> None:
            if not order:
                order.append("first task")
                loop.call_soon_threadsafe(ask)
                assert is_write_queued.wait(DEADLINE)

        def second() -> None:
            order.append("second task")
            loop.call_soon_threadsafe(is_done.set)

        service.maintenance._tasks = (Ticking("first", first), Ticking("second", second))
        await is_done.wait()

        assert order[:3] == ["first task", "a write", "second task"]

    played(play)
