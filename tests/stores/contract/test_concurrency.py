"""Concurrency: handles in threads of their own, let loose at once on one engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from forebay.domain.job import JobId, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Failed, Interrupted, Outcome
from forebay.domain.queue_counts import Counts
from forebay.errors import DuplicateJob
from forebay.stores.contract.claims_and_results import (
    ActionResult,
    InsertResult,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
)
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    MINUTE,
    SWEEPER,
    W1,
    attempts_of,
    counts_of,
    ended,
    lease,
    look,
    put,
    put_many,
    started,
    together,
)
from tests.stores.support import new_job

ROUNDS = range(10)


def insert(store: Store, n: int = 1) -> list[InsertResult]:
    return store.insert([new_job()] * n)


def insert_one_by_one(store: Store, n: int) -> list[JobId | None]:
    return [insert(store)[0].id for _ in range(n)]


def claim(store: Store, worker: WorkerId, n: int = 1) -> list[JobId]:
    return [job.id for job in store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, n)], room=n).jobs]


def claim_until_empty(store: Store, worker: WorkerId, n: int) -> list[JobId]:
    taken: list[JobId] = []
    while batch := claim(store, worker, n):
        taken += batch
    return taken


def work_until_empty(store: Store, worker: WorkerId, n: int) -> list[JobId]:
    """Claim and complete in one settle-and-claim after the other."""
    done: list[JobId] = []
    answer = store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, n)], room=n)
    while answer.jobs:
        ends = [ended(job, Completed(worker.encode())) for job in answer.jobs]
        answer = store.settle_and_claim(worker, ends, [QueueClaim(DEFAULT, n)], room=n)
        done += answer.settled
    return done


def workers(n: int) -> list[WorkerId]:
    return [WorkerId(f"w{number}") for number in range(n)]


@pytest.mark.shows("R-LEASE-01", "R-JOB-47", "R-EDGE-01", "R-TEST-52", "R-STORE-57", "R-STORE-58")
@pytest.mark.parametrize("n", [1, 7])
def test_eight_workers_claim_each_of_200_jobs_exactly_once(
    engine: Engine, store: Store, reader: Reader, n: int
) -> None:
    ids = put_many(store, 200)

    taken = together(engine, [partial(claim_until_empty, worker=worker, n=n) for worker in workers(8)])

    assert sorted(job_id for batch in taken for job_id in batch) == sorted(ids)
    assert counts_of(reader) == Counts(running=200)
    assert {job.attempt for job in reader.jobs(ids) if job} == {1}


@pytest.mark.shows("R-LEASE-16", "R-TEST-51", "R-LEASE-02")
@pytest.mark.parametrize("_", ROUNDS)
def test_of_ten_workers_and_two_jobs_two_get_one(
    engine: Engine, store: Store, reader: Reader, _: int
) -> None:
    ids = put_many(store, 2)

    taken = together(engine, [partial(claim, worker=worker) for worker in workers(10)])

    assert sorted(len(batch) for batch in taken) == [0] * 8 + [1] * 2
    assert sorted(job_id for batch in taken for job_id in batch) == ids


@pytest.mark.shows("R-TEST-52", "R-DONE-17", "R-STORE-66")
def test_workers_that_settle_and_claim_at_once_end_each_job_once(
    engine: Engine, store: Store, reader: Reader
) -> None:
    ids = put_many(store, 150)

    done = together(engine, [partial(work_until_empty, worker=worker, n=4) for worker in workers(6)])

    assert sorted(job_id for batch in done for job_id in batch) == sorted(ids)
    assert counts_of(reader) == Counts(completed=150)


@pytest.mark.shows("R-EDGE-23", "R-TEST-06", "R-JOB-01")
def test_a_thousand_concurrent_inserts_give_a_thousand_ids(
    engine: Engine, store: Store, reader: Reader
) -> None:
    answers = together(engine, [partial(insert_one_by_one, n=125)] * 8)

    ids = [job_id for batch in answers for job_id in batch if job_id]
    assert len(set(ids)) == len(ids) == 1_000
    assert counts_of(reader) == Counts(pending=1_000)
    seqs = [job.seq for job in reader.jobs(ids) if job]
    assert len(set(seqs)) == 1_000


@pytest.mark.shows("R-IDEM-04", "R-SCHED-55")
@pytest.mark.parametrize("kind", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize("_", range(4))
def test_concurrent_inserts_with_one_key_make_one_job(
    engine: Engine, store: Store, reader: Reader, kind: str, _: int
) -> None:
    answers = together(engine, [lambda handle: handle.insert([new_job(**{kind: "k"})])] * 8)

    receipts = [receipt for batch in answers for receipt in batch]
    assert sum(receipt.is_new for receipt in receipts) == 1
    assert len({receipt.id for receipt in receipts}) == 1
    assert counts_of(reader) == Counts(pending=1)


def test_concurrent_batches_with_keys_in_opposite_orders_do_not_block_each_other(
    engine: Engine, store: Store, reader: Reader
) -> None:
    keys = [f"k{number}" for number in range(50)]
    forwards = [new_job(unique_key=key) for key in keys]
    steps: list[Callable[[Store], list[InsertResult]]] = [
        lambda handle: handle.insert(forwards),
        lambda handle: handle.insert(forwards[::-1]),
    ] * 3

    answers = together(engine, steps)

    assert sum(receipt.is_new for batch in answers for receipt in batch) == 50
    assert counts_of(reader) == Counts(pending=50)


def insert_or_refused(store: Store) -> str:
    try:
        store.insert([new_job(id=JobId("mine"))])
    except DuplicateJob as error:
        return f"taken by {error.holder}"
    return "stored"


def test_of_concurrent_inserts_with_one_id_one_is_stored(
    engine: Engine, store: Store, reader: Reader
) -> None:
    answers = together(engine, [insert_or_refused] * 8)

    assert sorted(answers) == ["stored"] + ["taken by mine"] * 7
    assert counts_of(reader) == Counts(pending=1)


def test_concurrent_inserts_do_not_overfill_a_queue(engine: Engine, store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT, {"max_length": 20})

    answers = together(engine, [lambda handle: handle.insert([new_job()] * 10, atomic=False)] * 6)

    assert sum(receipt.is_new for batch in answers for receipt in batch) == 20
    assert counts_of(reader) == Counts(pending=20)


@pytest.mark.shows("R-CANCEL-10", "R-EDGE-10", "R-TEST-51")
@pytest.mark.parametrize("_", ROUNDS)
def test_of_a_cancel_and_a_claim_exactly_one_wins(
    engine: Engine, store: Store, reader: Reader, _: int
) -> None:
    job_id = put(store)
    steps: list[Callable[[Store], list[JobId] | list[ActionResult]]] = [
        lambda handle: claim(handle, W1),
        lambda handle: handle.cancel([job_id], "stop"),
    ]

    taken, results = together(engine, steps)

    job = look(reader, job_id)
    outcome = (taken, results, job.state, job.cancel_reason)
    assert outcome in [
        (
            [job_id],
            [ActionResult(job_id=job_id, applied=True, state=JobState.RUNNING)],
            JobState.RUNNING,
            "stop",
        ),
        ([], [ActionResult(job_id=job_id, applied=True, state=JobState.CANCELLED)], JobState.CANCELLED, None),
    ]


@pytest.mark.shows("R-EDGE-07", "R-SWEEP-03")
@pytest.mark.parametrize("_", ROUNDS)
def test_of_a_renewal_and_a_sweep_exactly_one_wins(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock, _: int
) -> None:
    job = started(store)
    clock.advance(ms=MINUTE)
    steps: list[Callable[[Store], RenewResult | list[object]]] = [
        lambda handle: handle.renew(W1, [lease(job)]),
        lambda handle: list(handle.sweep(SWEEPER)),
    ]

    renewal, swept = together(engine, steps)

    assert isinstance(renewal, RenewResult)
    outcome = (renewal.renewed, swept, look(reader, job.id).worker)
    assert outcome in [((lease(job),), [], W1), ((), [job], SWEEPER)]


@pytest.mark.shows("R-SWEEP-03")
@pytest.mark.parametrize("_", ROUNDS)
def test_of_several_sweepers_one_takes_each_job_over(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock, _: int
) -> None:
    jobs = [started(store) for _ in range(20)]
    clock.advance(ms=MINUTE)

    swept = together(engine, [partial(sweep_some, worker=worker) for worker in workers(4)])

    assert sorted(job_id for batch in swept for job_id in batch) == [job.id for job in jobs]
    assert {job.attempt for job in reader.jobs([job.id for job in jobs]) if job} == {1}


def sweep_some(store: Store, worker: WorkerId) -> list[JobId]:
    return [job.id for job in store.sweep(worker, limit=10)] + [job.id for job in store.sweep(worker)]


@pytest.mark.shows("R-EDGE-09", "R-LEASE-32")
@pytest.mark.parametrize("_", ROUNDS)
def test_of_two_ends_of_one_attempt_exactly_one_is_recorded(
    engine: Engine, store: Store, reader: Reader, _: int
) -> None:
    job = started(store)
    steps: list[Callable[[Store], SettleAndClaimResult]] = [
        lambda handle: handle.settle_and_claim(W1, [ended(job, Completed(b"1"))]),
        lambda handle: handle.settle_and_claim(W1, [ended(job, Failed(BOOM, 5))]),
    ]

    answers = together(engine, steps)

    assert sorted(len(answer.settled) for answer in answers) == [0, 1]
    assert sorted(len(answer.refused) for answer in answers) == [0, 1]
    after = look(reader, job.id)
    assert (after.state, len(attempts_of(reader, job.id))) in [
        (JobState.COMPLETED, 0),
        (JobState.RETRYING, 1),
    ]


@pytest.mark.parametrize("_", ROUNDS)
def test_of_a_settlement_and_a_takeover_exactly_one_wins(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock, _: int
) -> None:
    job = started(store)
    clock.advance(ms=MINUTE)
    steps: list[Callable[[Store], int]] = [
        lambda handle: len(handle.settle_and_claim(W1, [ended(job, Completed(b"1"))]).settled),
        lambda handle: len(handle.sweep(SWEEPER)),
    ]

    settled, swept = together(engine, steps)

    assert (settled, swept, look(reader, job.id).state) in [
        (1, 0, JobState.COMPLETED),
        (0, 1, JobState.RUNNING),
    ]


@pytest.mark.parametrize("_", range(5))
def test_of_several_revivals_one_is_done(engine: Engine, store: Store, reader: Reader, _: int) -> None:
    job_id = put(store)
    store.cancel([job_id])

    answers = together(engine, [lambda handle: handle.revive([job_id])] * 4)

    assert sum(result.applied for results in answers for result in results) == 1
    assert counts_of(reader) == Counts(pending=1)


def test_of_several_promotions_each_job_is_counted_once(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock
) -> None:
    put_many(store, 100, delay_ms=1)
    clock.advance(ms=1)

    answers = together(engine, [lambda handle: handle.promote()] * 4)

    assert sum(answers) == 100
    assert counts_of(reader) == Counts(pending=100)


@pytest.mark.parametrize("_", range(5))
def test_of_several_callers_one_is_given_the_maintenance_task(engine: Engine, store: Store, _: int) -> None:
    answers = together(engine, [lambda handle: handle.acquire_maintenance("sweep", 1_000)] * 6)

    assert sorted(answers) == [False] * 5 + [True]


def test_readers_see_whole_batches_while_writers_write(engine: Engine, store: Store, reader: Reader) -> None:
    answers = together(engine, [partial(write_batches, n=20)] * 2 + [partial(see_totals, engine=engine)] * 2)

    seen = {total for answer in answers for total in answer}
    assert {total % 50 for total in seen} == {0}
    assert counts_of(reader).total == 2 * 20 * 50


def write_batches(store: Store, n: int) -> list[int]:
    return [50 * len({tuple(r.id for r in insert(store, 50))}) for _ in range(n)]


def see_totals(store: Store, engine: Engine) -> list[int]:
    reader = engine.reader()
    try:
        return [counts_of(reader).total for _ in range(50)]
    finally:
        reader.close()


def test_a_mixed_crowd_loses_nothing_and_keeps_the_counts(
    engine: Engine, store: Store, reader: Reader
) -> None:
    put_many(store, 60)

    together(engine, [partial(bustle, worker=worker) for worker in workers(6)])

    assert counts_of(reader).total == 60 + 6 * 15


def bustle(store: Store, worker: WorkerId) -> None:
    """Insert, claim, give back, fail, cancel and complete, again and again."""
    for _ in range(15):
        receipt = store.insert([new_job()])[0]
        jobs = store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, 3)], room=3).jobs
        outcomes: list[Outcome] = [Interrupted(), Failed(BOOM, 5), Completed(b"1")]
        store.settle_and_claim(worker, [ended(job, end) for job, end in zip(jobs, outcomes, strict=False)])
        store.cancel([receipt.id] if receipt.id else [])
        store.promote()
