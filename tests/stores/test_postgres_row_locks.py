"""Operators hold many jobs at once; what moves on while they do is looked at again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.postgres import job_actions, row_locks
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems
from tests.stores.support import claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def other(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


class Meanwhile:
    """Something that happens once, after jobs were seen and before the first is locked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, other: PostgresStore, *, ends: bool) -> None:
        self._lock = row_locks._lock
        self._other = other
        self._ends = ends
        self.moved: list[Job] = []
        monkeypatch.setattr(row_locks, "_lock", self)

    def __call__(self, tx: Transaction, job: Job) -> object:
        if not self.moved:
            self.moved = claim(self._other, 2)
            if self._ends:
                self._other.settle_and_claim(self.moved[0].worker, [complete(job) for job in self.moved])  # type: ignore[arg-type]  # it has one
        return self._lock(tx, job)


@pytest.mark.parametrize(
    ("ends", "done", "state"), [(False, True, JobState.RUNNING), (True, False, JobState.COMPLETED)]
)
def test_what_moves_on_while_it_is_held_is_judged_as_it_is_then(
    store: PostgresStore,
    other: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,
    done: bool,
    state: JobState,
) -> None:
    ids = [JobId(receipt.id or "") for receipt in store.insert([new_job()] * 5)]
    meanwhile = Meanwhile(monkeypatch, other, ends=ends)

    results = store.cancel([*reversed(ids), JobId("absent")])

    assert [job.id for job in meanwhile.moved] == ids[:2]
    assert [(one.job_id, one.applied, one.state) for one in results] == [
        *((job_id, True, JobState.CANCELLED) for job_id in reversed(ids[2:])),
        (ids[1], done, state),
        (ids[0], done, state),
        (JobId("absent"), False, None),
    ]


def test_what_is_named_twice_is_judged_twice(store: PostgresStore) -> None:
    one, two = (JobId(receipt.id or "") for receipt in store.insert([new_job()] * 2))

    cancelled = store.cancel([one, two, one])
    revived = store.revive([two, two])
    deleted = store.delete([one, two, one, two])

    def outcomes(results: list[ActionResult]) -> list[tuple[bool, JobState | None]]:
        return [(result.applied, result.state) for result in results]

    assert outcomes(cancelled) == [
        (True, JobState.CANCELLED),
        (True, JobState.CANCELLED),
        (False, JobState.CANCELLED),
    ]
    assert outcomes(revived) == [(True, JobState.PENDING), (False, JobState.PENDING)]
    assert outcomes(deleted) == [(True, None), (True, None), (False, None), (False, None)]


@pytest.mark.shows("R-LEASE-04")
@pytest.mark.parametrize("is_claimed", [True, False])
def test_what_is_revived_and_ends_again_before_it_is_revived_keeps_what_has_happened(
    engine: PostgresEngine,
    store: PostgresStore,
    other: PostgresStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    is_claimed: bool,
) -> None:
    """An attempt that counted backwards would give one token to two runs."""
    [receipt] = store.insert([new_job()])
    job_id = JobId(receipt.id or "")
    if is_claimed:
        claim(store)
    store.cancel([job_id], force=True)
    judge, seen = job_actions._check_revivable, []

    def meanwhile(tx: Transaction, job: Job, how: ReviveOptions) -> str:
        seen.append(job)
        if len(seen) == 1:
            other.revive([job_id])
            if is_claimed:
                claim(other)
            else:
                other.update_job(job_id, JobUpdate(priority=7))
                clock.advance(ms=1)
            other.cancel([job_id], force=True)
        return judge(tx, job, how)

    monkeypatch.setattr(job_actions, "_check_revivable", meanwhile)
    results = store.revive([job_id])

    reader = engine.reader()
    [job] = reader.jobs([job_id])
    reader.close()
    assert [result.applied for result in results] == [True]
    assert job is not None
    assert (job.attempt, job.priority) == ((2, 0) if is_claimed else (0, 7))
