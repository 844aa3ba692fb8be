"""How much runs at once, which queues a worker serves, and which handles it holds for that."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import defaultdict
from threading import Event, Lock, get_ident

import pytest

from forebay import Forebay
from forebay.domain.job import DEFAULT_QUEUE
from forebay.errors import ConfigError
from forebay.worker.assigned_job import ExecutorKind
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.worker.support import DEADLINE, eventually, no_thread_stays


class Crowd:
    """Counts who is inside, and how many at most; no thread leaves before the door is open."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.inside = self.most = self.all = 0
        self.door = Event()

    def enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.all += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1

    def stay(self) -> None:
        self.enter()
        assert self.door.wait(DEADLINE)
        self.leave()


# ------------------------------------------------------------------ how much at once


@pytest.mark.shows("R-CONC-10", "R-CONC-04")
def test_with_three_threads_three_of_five_long_jobs_run_together_and_then_the_other_two(app: Forebay) -> None:
    crowd = Crowd()
    stay = app.task(name="stay")(crowd.stay)

    with app.run_worker(threads=3):
        jobs = app.enqueue_many([stay.job() for _ in range(5)])
        eventually(lambda: crowd.inside == 3)
        counts = app.client.counts([DEFAULT_QUEUE])[DEFAULT_QUEUE]
        assert (counts.running, counts.pending, crowd.all) == (3, 2, 3)
        crowd.door.set()
        for job in jobs:
            job.wait(DEADLINE)

    assert (crowd.most, crowd.all) == (3, 5)


@pytest.mark.shows("R-CONC-04")
def test_no_more_jobs_run_at_once_than_a_worker_has_threads_and_coroutines(app: Forebay) -> None:
    blocking, waiting = Crowd(), Crowd()
    blocking.door.set()

    @app.task(name="wait")
    async def wait() -> None:
        waiting.enter()
        await asyncio.sleep(0.001)
        waiting.leave()

    stay = app.task(name="stay")(blocking.stay)
    with app.run_worker(threads=2, coroutines=5):
        jobs = app.enqueue_many([task.job() for _ in range(100) for task in (stay, wait)])
        for job in jobs:
            job.wait(DEADLINE)

    assert (blocking.all, waiting.all) == (100, 100)
    assert blocking.most <= 2
    assert waiting.most <= 5


@pytest.mark.shows("R-CONC-09", "R-CFG-46")
def test_a_worker_has_four_threads_if_nothing_else_is_said(app: Forebay) -> None:
    crowd = Crowd()
    stay = app.task(name="stay")(crowd.stay)

    with app.run_worker():
        jobs = app.enqueue_many([stay.job() for _ in range(9)])
        eventually(lambda: crowd.inside == 4)
        crowd.door.set()
        for job in jobs:
            job.wait(DEADLINE)

    assert crowd.most == 4
    assert Worker(app.engine, app.registry)._slots.sizes[ExecutorKind.CALLS] == 4


@pytest.mark.shows("R-CFG-46", "R-CFG-45")
@pytest.mark.parametrize("bad", [{"threads": 0}, {"queues": []}])
def test_a_worker_without_threads_or_queues_is_refused(app: Forebay, bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Worker(app.engine, app.registry, **bad)  # type: ignore[arg-type]  # that is the point


# ------------------------------------------------------------------ which queues


@pytest.mark.shows("R-CONC-13", "R-PRI-34")
def test_workers_with_queues_of_their_own_keep_room_for_what_is_urgent(app: Forebay) -> None:
    crowd = Crowd()
    bulk = app.task(name="bulk", queue="bulk")(crowd.stay)

    @app.task(name="urgent", queue="urgent")
    def urgent(number: int) -> int:
        return number

    with app.run_worker(queues=["bulk"], threads=2), app.run_worker(queues=["urgent"], threads=1):
        slow = app.enqueue_many([bulk.job() for _ in range(20)])
        eventually(lambda: crowd.inside == 2)

        assert [urgent.enqueue(number).result(DEADLINE) for number in range(5)] == list(range(5))
        assert (crowd.inside, crowd.all) == (2, 2)
        crowd.door.set()
        for job in slow:
            job.wait(DEADLINE)
    assert crowd.most == 2


@pytest.mark.shows("R-CFG-45", "R-CFG-49")
def test_a_worker_names_itself_its_machine_its_process_and_its_queues(app: Forebay) -> None:
    worker = Worker(app.engine, app.registry)
    worker.start()
    [info] = app.client.read(lambda reader: reader.workers())
    worker.stop()

    assert (info.id, info.host, info.pid) == (worker.id, socket.gethostname(), os.getpid())
    assert info.queues == (DEFAULT_QUEUE,)


# ------------------------------------------------------------------ handles


@pytest.mark.shows("R-STORE-08", "R-STORE-13", "R-BUG-14")
def test_a_worker_has_two_handles_each_used_by_one_thread_and_closes_them(app: Forebay) -> None:
    threads: defaultdict[str, set[int]] = defaultdict(set)
    main = get_ident()
    engine = WatchedEngine(app.engine, lambda name, args: threads[name].add(get_ident()))
    ended = Event()

    @app.task(name="long", lease=1.0)
    def long() -> None:
        eventually(lambda: "renew" in threads)
        ended.set()

    with no_thread_stays():
        worker = Worker(engine.contract, app.registry)
        worker.start()
        app.client.enqueue([long.job()])
        assert ended.wait(DEADLINE)
        worker.stop()

    keeping, working = engine.stores
    assert set(keeping.calls) == {"heartbeat", "renew", "take_commands", "remove_worker", "close"}
    assert not {"heartbeat", "renew", "remove_worker"} & set(working.calls)
    assert (keeping.calls.count("close"), working.calls.count("close")) == (1, 1)
    assert (keeping.calls[-1], working.calls[-1]) == ("close", "close")
    [claims], [renews] = threads["settle_and_claim"], threads["renew"]
    assert threads["acquire_maintenance"] == {claims}
    assert len({main, claims, renews}) == 3
    assert threads["heartbeat"] <= {main, renews}
