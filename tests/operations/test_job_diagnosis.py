"""What keeps a job, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import DEFAULT_QUEUE, Dependency, JobId, OnFailure, QueueName, WorkerId
from forebay.domain.queue import QueueState
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS, WorkerInfo
from forebay.operations.job_diagnosis import diagnose
from forebay.payload.codec import encode_call
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, fail, new_job


class Bench:
    """A store whose time stands still."""

    def __init__(self, engine: MemoryEngine, clock: ManualClock) -> None:
        self.store: Store = engine.store()
        self.reader: Reader = engine.reader()
        self.clock = clock

    def put(self, **fields: Any) -> JobId:
        [receipt] = self.store.insert([new_job(**{"payload": encode_call([], {}), **fields})])
        assert receipt.id is not None
        return receipt.id

    def send_heartbeat(self, worker: WorkerId = WORKER, **fields: Any) -> None:
        self.store.heartbeat(WorkerInfo(id=worker, queues=(DEFAULT_QUEUE,), **fields))

    def findings(self, job_id: JobId) -> list[tuple[str, str]]:
        [job] = self.reader.jobs([job_id])
        assert job is not None
        return [tuple(one) for one in diagnose(self.reader, job)]  # type: ignore[misc]  # of two texts


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock = ManualClock()
    made = Bench(MemoryEngine(clock=clock), clock)
    yield made
    made.store.close()
    made.reader.close()


def test_a_job_that_is_well_needs_nothing(bench: Bench) -> None:
    bench.send_heartbeat()
    pending = bench.put()
    assert bench.findings(pending) == []
    [running] = claim(bench.store)
    assert bench.findings(running.id) == []
    bench.store.settle_and_claim(WORKER, [complete(running)])

    assert bench.findings(running.id) == []


def test_what_keeps_a_job_that_waits_to_be_claimed(bench: Bench) -> None:
    job_id = bench.put()

    assert bench.findings(job_id) == [("no worker of queue default sends heartbeats", "start one")]
    bench.send_heartbeat(paused=(DEFAULT_QUEUE,))
    bench.store.save_queue(DEFAULT_QUEUE, state=QueueState.PAUSED)
    assert bench.findings(job_id) == [
        ("queue default is paused", "resume the queue"),
        ("all workers of queue default are paused", "resume one"),
    ]


def test_a_job_at_a_limit_waits_for_room_and_one_with_a_share_for_its_turn(bench: Bench) -> None:
    bench.send_heartbeat()
    bench.store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    limited = [bench.put(limit_keys={"tenant": "a"}) for _ in range(2)]
    claim(bench.store, 2)
    shared = bench.put(limit_keys={FAIRNESS: "a"})

    [(what, todo)] = bench.findings(limited[1])
    assert ("tenant" in what, todo) == (True, "wait for a free slot, or raise the limit")
    assert bench.findings(shared) == []


def test_what_keeps_a_job_that_runs(bench: Bench) -> None:
    bench.send_heartbeat()
    job_id = bench.put(timeout_ms=1_000)
    claim(bench.store)
    bench.store.cancel([job_id], "enough")
    bench.clock.advance(seconds=4 * DEFAULT_HEARTBEAT_MS / 1_000)

    assert bench.findings(job_id) == [
        ("its lease ended 10 s ago", "run a sweep"),
        ("its worker w1 has died", "run a sweep"),
        ("it runs beyond its timeout", "look at the stacks of its worker; cancel it with force"),
        ("it was asked to stop and still runs", "cancel it with force"),
    ]


def test_what_keeps_a_job_that_runs_later(bench: Bench) -> None:
    scheduled, retrying = bench.put(delay_ms=60_000), bench.put()
    bench.store.settle_and_claim(WORKER, [fail(job, after_ms=60_000) for job in claim(bench.store)])
    due = ("it is due in 60 s", "update it with delay_seconds 0 to run it now")

    assert bench.findings(scheduled) == bench.findings(retrying) == [due]
    bench.clock.advance(seconds=90)
    late = ("it was due 30 s ago", "start a worker or a server: one of them promotes it")
    assert bench.findings(scheduled) == [late]


def test_what_keeps_a_job_that_waits_for_others(bench: Bench) -> None:
    open_, failed = bench.put(), bench.put()
    needs = (Dependency(open_), Dependency(failed, OnFailure.HOLD))
    blocked = bench.put(depends_on=needs)
    bench.store.cancel([failed])

    assert bench.findings(blocked) == [
        (f"it waits for job {open_}", "diagnose that job"),
        (f"job {failed} has failed, and this one waits for it", "revive that job"),
    ]
    assert bench.findings(failed) == [("it is cancelled: cancelled", "revive or replay it")]


def test_a_job_behind_others_of_its_sequence(bench: Bench) -> None:
    first, second = (bench.put(sequence="s", queue=QueueName("mail")) for _ in range(2))

    assert (f"it is behind job {first} of sequence s", "diagnose that job") in bench.findings(second)


def test_arguments_that_cannot_be_read_are_told(bench: Bench) -> None:
    bench.send_heartbeat()
    [(what, todo)] = bench.findings(bench.put(payload=b"?"))

    assert what.startswith("its arguments cannot be read here: ")
    assert todo == "replay it with other arguments, or update workers"
