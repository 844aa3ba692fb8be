"""Threads that claim, end, cancel, revive and look at one job: what they are told fits together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Final

import pytest

from evidence.linear import Call, is_linear
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Interrupted, Outcome
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from tests.urls import ENGINES, lent_url

THREADS: Final = 4
CALLS: Final = 15
ROUNDS: Final = 12
LEASE_MS: Final = 600_000  # none ends


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with lent_url(request.param, tmp_path) as url:
        yield open_engine(url)


class Hand:
    """One thread's way to the store; it writes down what it does and what it is told."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._store = engine.store()
        self._reader = engine.reader()
        self._worker = WorkerId(f"hand-{number}")
        self._dice = Random(number)
        self._job: Job | None = None
        self._calls: list[Call] = []
        self._store.heartbeat(WorkerInfo(id=self._worker))

    def play(self, job_id: JobId, queue: QueueName, barrier: Barrier) -> list[Call]:
        self._job, self._calls = None, []
        barrier.wait()
        for _ in range(CALLS):
            time.sleep(self._dice.choice((0.0, 0.0, 0.001)))
            self._next(job_id, queue)
        return self._calls

    def _next(self, job_id: JobId, queue: QueueName) -> None:
        name = self._dice.choices(("work", "force", "revive", "look"), (6, 1, 2, 2))[0]
        if name == "force":
            self._note(name, lambda: self._store.cancel([job_id], force=True)[0].applied)
        elif name == "revive":
            self._note(name, lambda: self._store.revive([job_id])[0].applied)
        elif name == "look":
            self._note(name, lambda: self._seen(job_id))
        elif self._job is None:
            self._note("claim", lambda: self._claimed(queue))
        else:
            self._end(self._job)

    def _note(self, name: str, call: Callable[[], object], attempt: int = 0) -> None:
        began = time.monotonic_ns()
        answer = call()
        self._calls.append(Call(self._worker, name, began, time.monotonic_ns(), answer, attempt))

    def _seen(self, job_id: JobId) -> tuple[JobState, int]:
        [job] = self._reader.jobs([job_id])
        assert job is not None
        return job.state, job.attempt

    def _claimed(self, queue: QueueName) -> int:
        jobs = self._store.settle_and_claim(
            self._worker, claims=[QueueClaim(queue, 1, LEASE_MS)], room=1
        ).jobs
        self._job = jobs[0] if jobs else None
        return jobs[0].attempt if jobs else 0

    def _end(self, job: Job) -> None:
        is_over = self._dice.random() < 0.05
        outcome: Outcome = Completed(b"null") if is_over else Interrupted()
        end = decide(job, outcome, 0.0)
        name, self._job = "complete" if is_over else "hand back", None
        self._note(name, lambda: bool(self._store.settle_and_claim(self._worker, [end]).settled), job.attempt)

    def close(self) -> None:
        self._reader.close()
        self._store.close()


@pytest.mark.shows("R-TEST-53")
def test_what_threads_are_told_of_one_job_fits_together_in_some_order(engine: Engine) -> None:
    hands, barrier = [Hand(engine, number) for number in range(THREADS)], Barrier(THREADS)
    store = engine.store()
    bad, names = [], set()
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(ROUNDS):
            queue = QueueName(f"round-{number}")
            job_id = store.insert([NewJob(task="work", queue=queue)])[0].id
            assert job_id is not None
            played = [pool.submit(hand.play, job_id, queue, barrier) for hand in hands]
            calls = [one.result() for one in played]
            names |= {call.name for those in calls for call in those}
            if not is_linear(calls):
                bad.append(calls)
    for hand in hands:
        hand.close()
    store.close()

    assert bad == []
    assert names >= {"claim", "hand back", "force", "revive", "look"}


def history_of(*calls: tuple[str, int, int, object]) -> list[Call]:
    return [Call("me", name, began, ended, answer, attempt=1) for name, began, ended, answer in calls]


PENDING: Final = (JobState.PENDING, 0)


def test_calls_at_one_time_may_have_happened_in_any_order() -> None:
    assert is_linear([history_of(("claim", 0, 9, 1)), history_of(("look", 1, 2, PENDING))])
    assert is_linear([history_of(("claim", 0, 9, 1)), history_of(("look", 1, 2, (JobState.RUNNING, 1)))])


@pytest.mark.parametrize(
    "calls",
    [
        [history_of(("claim", 0, 1, 1)), history_of(("look", 2, 3, PENDING))],
        [history_of(("claim", 0, 9, 1)), history_of(("claim", 0, 9, 1))],
        [history_of(("claim", 0, 1, 2))],
        [history_of(("complete", 0, 1, True))],
        [history_of(("claim", 0, 1, 1), ("force", 2, 3, True), ("complete", 4, 5, True))],
        [history_of(("claim", 0, 1, 1), ("complete", 2, 3, True), ("revive", 4, 5, True))],
        [history_of(("force", 0, 1, True), ("force", 2, 3, True))],
        [history_of(("claim", 0, 1, 1), ("complete", 2, 3, False))],
    ],
    ids=["old write", "claimed twice", "an attempt skipped", "ended unclaimed", "ended after it was taken",
         "a finished one revived", "cancelled twice", "refused for nothing"],
)  # fmt: skip
def test_what_does_not_fit_together_is_seen(calls: list[list[Call]]) -> None:
    assert not is_linear(calls)
