"""The common settle-and-claim is one statement; whatever is special about one is found and takes the slow
path."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier
from typing import Any, Final

import pytest

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, UniqueUntil
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems, raw
from tests.stores.sqlite_support import in_thread
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, new_job

DEFAULT: Final = QueueName("default")
QUEUES: Final = (DEFAULT, QueueName("mail"), QueueName("images"))


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> Iterator[PostgresEngine]:
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


def put(store: PostgresStore, n: int = 1, **changes: Any) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert([new_job(**changes)] * n)]


def settle_and_claim(
    store: PostgresStore, jobs: list[Job], n: int = 1, **changes: Any
) -> SettleAndClaimResult:
    """Settle these jobs and claim the next."""
    request = QueueClaim(DEFAULT, n)._replace(**changes)
    return store.settle_and_claim(WORKER, [complete(job) for job in jobs], [request], n)


def claimed_one(store: PostgresStore) -> list[Job]:
    """A job that runs, on a handle that knows all queues of these tests."""
    for queue in QUEUES:
        put(store, queue=queue)
        store.settle_and_claim(
            WORKER, [complete(job) for job in claim(store, queue=queue)], [QueueClaim(queue, 1)], 1
        )
    put(store)
    return claim(store)


def never(*_: object, **__: object) -> None:
    raise AssertionError("the slow path was taken")


def counts(engine: PostgresEngine) -> Counts:
    reader = engine.reader()
    try:
        return reader.counts()[DEFAULT]
    finally:
        reader.close()


@pytest.mark.shows("R-STORE-25")
def test_the_common_settle_and_claim_does_all_that_it_has_to_in_one_statement(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(store, 2) + put(store, unique_key="k")
    rest = put(store, 3)
    put(store, delay_ms=5_000)
    monkeypatch.setattr(store, "_write", never)

    jobs = claim(store, 3)
    answer = settle_and_claim(store, jobs, 2)

    assert [job.id for job in jobs] == first
    assert set(answer.settled) == set(first)
    assert [(job.id, job.attempt, job.state) for job in answer.jobs] == [
        (job_id, 1, JobState.RUNNING) for job_id in rest[:2]
    ]
    assert answer.next_due_ms == 5_000
    assert counts(engine) == Counts(pending=1, running=2, completed=3, scheduled=1)
    assert other.insert([new_job(unique_key="k")])[0].is_new


@pytest.mark.parametrize(("room", "given"), [(9, [2, 3, 1]), (4, [2, 2, 0]), (2, [2, 0, 0])])
def test_several_queues_are_asked_one_after_the_other_for_the_room_that_is_left(
    store: PostgresStore, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, room: int, given: list[int]
) -> None:
    jobs = claimed_one(store)
    put(store, delay_ms=9_000)
    for queue, n in zip(QUEUES, [2, 3, 1], strict=True):
        put(store, n, queue=queue)
    put(store, queue=QUEUES[2], delay_ms=5_000)
    claims = [QueueClaim(queue, 9) for queue in QUEUES]
    monkeypatch.setattr(store, "_write", never)

    answer = store.settle_and_claim(WORKER, [complete(job) for job in jobs], claims, room)

    assert answer.settled == (jobs[0].id,)
    assert [job.queue for job in answer.jobs] == [
        queue for queue, n in zip(QUEUES, given, strict=True) for _ in range(n)
    ]
    assert answer.next_due_ms == 5_000
    assert counts(engine) == Counts(completed=2, running=2, scheduled=1)


@pytest.mark.parametrize("special", QUEUES)
@pytest.mark.parametrize("room", [9, 1])
def test_a_queue_in_which_something_is_due_takes_the_slow_path_with_those_after_it(
    store: PostgresStore, engine: PostgresEngine, clock: ManualClock, special: QueueName, room: int
) -> None:
    jobs = claimed_one(store)
    put(store, queue=special, delay_ms=1_000)
    for queue in QUEUES:
        put(store, queue=queue)
    clock.advance(ms=1_000)
    claims = [QueueClaim(queue, 9) for queue in QUEUES]

    answer = store.settle_and_claim(WORKER, [complete(job) for job in jobs], claims, room)
    again = store.settle_and_claim(WORKER, [complete(job) for job in answer.jobs], claims, 9)

    assert answer.settled == (jobs[0].id,)
    expected = [queue for queue in QUEUES for _ in range(1 + (queue == special))]
    assert [job.queue for job in (*answer.jobs, *again.jobs)] == expected
    assert len(answer.jobs) == min(room, 4)
    assert set(again.settled) == {job.id for job in answer.jobs}


def test_a_cancel_request_is_told_and_not_for_what_is_just_settled(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 3)
    jobs = claim(store, 2)
    other.cancel([job.id for job in jobs], "enough")
    monkeypatch.setattr(store, "_write", never)

    answer = settle_and_claim(store, jobs[:1])

    assert [tuple(cancel) for cancel in answer.cancels] == [(jobs[1].id, "enough")]


def test_a_settlement_that_is_refused_stops_no_other_and_no_claim(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(store, 4)
    jobs = claim(store, 3)
    [gone] = other.sweep(OTHER_WORKER, limit=1, dead=[WORKER])

    answer = settle_and_claim(store, jobs)

    assert set(answer.settled) == {job.id for job in jobs} - {gone.id}
    assert [(each.lease.job_id, each.reason) for each in answer.refused] == [(gone.id, "other worker")]
    assert len(answer.jobs) == 1


def test_a_job_for_others_goes_in_its_lane_and_the_last_one_is_settled(store: PostgresStore) -> None:
    put(store)
    jobs = claim(store)
    put(store, task="u")
    [mine] = put(store)

    answer = settle_and_claim(store, jobs, 2, lanes=frozenset(["task:t"]))

    assert (answer.settled, [job.id for job in answer.jobs]) == ((jobs[0].id,), [mine])


SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "a lease time": {"lease_ms": 7_000},
    "an extension": {"extension_ms": 40_000},
    "nothing": {"metadata": {"lease_ms": 1, "extension_ms": 1}},
}


@pytest.mark.parametrize("changes", SPECIAL.values(), ids=SPECIAL)
def test_a_lease_is_as_the_job_wants_it(
    store: PostgresStore, engine: PostgresEngine, changes: dict[str, Any]
) -> None:
    put(store)
    jobs = claim(store)
    put(store, **changes)

    answer = settle_and_claim(store, jobs)

    with raw() as connection:
        rows = connection.execute(
            "select lease_expires_at - started_at, lease_limit_at - started_at, lease_ms"
            f" from {engine.address.schema}.leases"
        ).fetchall()
    own = changes.get("lease_ms")
    assert answer.settled == (jobs[0].id,)
    assert rows == [(own or 30_000, changes.get("extension_ms", DAY_MS), own)]


def test_a_key_that_is_free_when_its_job_starts_is_free_then(store: PostgresStore) -> None:
    put(store)
    jobs = claim(store)
    put(store, unique_key="k", unique_until=UniqueUntil.STARTED)

    settle_and_claim(store, jobs)

    assert store.insert([new_job(unique_key="k")])[0].is_new


def test_what_is_special_about_the_queue_is_seen_to(store: PostgresStore, clock: ManualClock) -> None:
    put(store, 2)
    jobs = claim(store)
    [due] = put(store, delay_ms=1_000, priority=50)
    [expiring] = put(store, expires_at=clock.now_ms() + 1_000, priority=60)
    clock.advance(ms=1_000)

    answer = settle_and_claim(store, jobs)

    assert (answer.settled, [job.id for job in answer.jobs]) == ((jobs[0].id,), [due])
    assert [result.state for result in store.cancel([expiring])] == [JobState.CANCELLED]


def test_a_queue_that_was_paused_a_moment_ago_gives_nothing(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(store, 2)
    jobs = claim(store)
    other.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert (settle_and_claim(store, jobs).settled, settle_and_claim(store, []).jobs) == ((jobs[0].id,), ())


def test_a_lease_time_that_was_changed_a_moment_ago_is_the_one_that_counts(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(store, 2)
    claim(store)
    other.save_queue(DEFAULT, {"lease_ms": 12_000})

    [job] = claim(store)

    assert job.lease_expires_at is not None
    assert job.started_at is not None
    assert job.lease_expires_at - job.started_at == 12_000


def test_a_lease_that_is_renewed_at_the_same_moment_is_settled(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    put(store, 2)
    jobs = claim(store)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(
            f"update {engine.address.schema}.leases set lease_expires_at = lease_expires_at + 1"
        )
        answer = in_thread(lambda: settle_and_claim(store, jobs))
        wait_for_a_lock(engine)
        connection.execute("commit")

    assert answer().settled == (jobs[0].id,)


def test_what_was_updated_while_the_job_ran_is_kept_however_late_it_was(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    put(store)
    jobs = claim(store)
    schema = engine.address.schema
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {schema}.leases for update")
        connection.execute(f'update {schema}.jobs set options = \'{{"metadata":{{"k":2}}}}\'')
        answer = in_thread(lambda: settle_and_claim(store, jobs))
        wait_for_a_lock(engine)
        connection.execute("commit")
        assert answer().settled == (jobs[0].id,)

    reader = engine.reader()
    [job] = reader.jobs([jobs[0].id])
    reader.close()
    assert job is not None
    assert (job.state, job.metadata) == (JobState.COMPLETED, {"k": 2})


def test_who_waits_for_a_lease_holds_no_job_that_others_could_have(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine
) -> None:
    put(store, 2)
    jobs = claim(store)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.leases for update")
        answer = in_thread(lambda: settle_and_claim(store, jobs))
        wait_for_a_lock(engine)

        assert len(claim(other, worker=OTHER_WORKER)) == 1
        connection.execute("rollback")

    assert answer().settled == (jobs[0].id,)


@pytest.mark.shows("R-LEASE-03")
def test_a_settle_and_claim_whose_connection_is_cut_before_its_commit_has_done_nothing(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine
) -> None:
    put(store, unique_key="k")
    put(store)
    jobs = claim(store)
    with raw() as connection:
        # It has settled, holds the next job, and waits for the key that it is to free.
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.job_keys for update")
        answer = in_thread(lambda: settle_and_claim(store, jobs))
        pid = wait_for_a_lock(engine)
        assert claim_nothing(engine)
        connection.execute("select pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(StoreUnavailable):
            answer()
        connection.execute("rollback")

    assert len(claim(other, 2, worker=OTHER_WORKER)) == 1
    assert settle_and_claim(store, jobs).settled == (jobs[0].id,)


def claim_nothing(engine: PostgresEngine) -> bool:
    """Whether no row of the order can be had."""
    with raw() as connection:
        rows = connection.execute(f"select 1 from {engine.address.schema}.ready for update skip locked")
        return rows.fetchall() == []


def wait_for_a_lock(engine: PostgresEngine) -> int:
    """Until a statement on this store waits for a lock; whose."""
    waiting = (
        "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        f" and query like '%{engine.address.schema}%' and pid <> pg_backend_pid()"
    )
    with raw() as connection:
        while (row := connection.execute(waiting).fetchone()) is None:
            pass
    return int(row[0])


@pytest.mark.parametrize("workers", [2, 8])
def test_overtakers_are_all_found_once_and_no_worker_idles_while_there_is_work(
    engine: PostgresEngine, workers: int
) -> None:
    stores = [engine.store() for _ in range(workers)]
    put(stores[0], 200)
    for handle in stores:
        claim(handle, 10)
    overtakers = {job_id for number in range(20) for job_id in put(stores[0], 20, priority=number % 11)}
    start, found = Barrier(workers), [JobId("")]

    def work(handle: PostgresStore) -> int:
        """Claim until there is nothing; how much others had not found by then."""
        start.wait()
        while jobs := claim(handle, 7):
            found.extend(job.id for job in jobs)
        return 600 - 10 * workers - len(found) + 1

    left = [answer() for answer in [in_thread(lambda h=h: work(h)) for h in stores]]  # type: ignore[misc]

    assert len(found) - 1 == len(set(found)) - 1 == 600 - 10 * workers
    assert overtakers <= set(found)
    # What is left when a worker finds nothing is in the hands of other workers.
    assert max(left) <= 7 * (workers - 1)
    for handle in stores:
        handle.close()
