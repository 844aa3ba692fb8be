"""Many at once: no job is given twice, none is lost, no claim waits for a locked row."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Final

import psycopg
import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.queue_counts import Counts
from forebay.stores.postgres.engine import PostgresEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, problems, program, raw, server, wait_for_a_lock
from tests.stores.sqlite_support import in_thread
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, new_job

DEFAULT: Final = QueueName("default")

# Claims and settles until nothing is left, and says which jobs it had.
WORK: Final = """
store = engine.store()
me, done = WorkerId(sys.argv[3]), []
hear()
while True:
    answer = store.settle_and_claim(me, done, [QueueClaim(DEFAULT, 7)], 7)
    for each in answer.settled:
        say(each)
    if not answer.jobs and not done:
        break
    done = [decide(each, Completed(b"1"), 0.0) for each in answer.jobs]
say("end")
"""

# Enqueues, claims, settles and hands back for a while: whatever gets in each other's way does so here.
BUSTLE: Final = """
from forebay.domain.outcome import Failed, Interrupted, AttemptError
store = engine.store()
me, jobs, number = WorkerId(sys.argv[3]), (), int(sys.argv[3][1:])
hear()
for turn in range(60):
    store.insert([job(unique_key=f"k{(turn * 7 + each) % 11}") for each in range(5)])
    store.insert([job() for _ in range(5)])
    ends = [Completed(b"1"), Interrupted(), Failed(AttemptError(type="Boom"), 0), Completed(b"1")]
    settled = [decide(each, ends[(turn + place) % 4], 0.0) for place, each in enumerate(jobs)]
    answer = store.settle_and_claim(me, settled, [QueueClaim(DEFAULT, 10)], 10)
    assert len(answer.settled) == len(settled), answer.refused
    jobs = answer.jobs
    if turn % 5 == number % 5:
        store.cancel([each.id for each in jobs[:2]])
        store.promote()
say("end")
"""


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.mark.shows("R-WORK-46")
def test_processes_that_claim_at_once_never_get_the_same_job(engine: PostgresEngine) -> None:
    store = engine.store()
    ids = [receipt.id for receipt in store.insert([new_job()] * 1_000)]
    with ExitStack() as stack:
        workers = [stack.enter_context(program(WORK, engine, f"w{number}")) for number in range(4)]
        for worker in workers:
            worker.write_line("go")
        settled = Counter(line for worker in workers for line in iter(worker.hear, "end"))

    assert settled == Counter(ids)
    assert problems(engine) == ()
    store.close()


def test_processes_that_do_everything_at_once_lose_nothing(engine: PostgresEngine) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(program(BUSTLE, engine, f"w{number}")) for number in range(4)]
        for one in crowd:
            one.write_line("go")
        assert [one.hear(55) for one in crowd] == ["end"] * 4

    assert problems(engine) == ()


@pytest.mark.shows("R-STORE-25", "R-LEASE-03")
def test_a_locked_job_is_passed_over_and_comes_later(engine: PostgresEngine) -> None:
    schema, store = engine.address.schema, engine.store()
    ids = [receipt.id for receipt in store.insert([new_job()] * 3)]
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {schema}.ready where id = %s for update", [ids[0]])

        assert [job.id for job in claim(store, 2)] == ids[1:]
        assert claim(store, 2) == []
        connection.execute("rollback")

    assert [job.id for job in claim(store, 2)] == ids[:1]
    store.close()


def test_a_claim_that_dies_before_its_commit_leaves_the_job_to_others(engine: PostgresEngine) -> None:
    schema, store = engine.address.schema, engine.store()
    store.insert([new_job()])
    dying = psycopg.connect(server().url())
    dying.execute(f"delete from {schema}.ready")
    assert claim(store) == []

    with raw() as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", [dying.info.backend_pid])

    assert len(claim(store)) == 1
    dying.close()
    store.close()


def test_what_was_updated_a_moment_before_the_claim_is_what_runs(engine: PostgresEngine) -> None:
    schema, store, other = engine.address.schema, engine.store(), engine.store()
    [job_id] = [receipt.id for receipt in store.insert([new_job(metadata={"k": 1})])]
    assert job_id is not None
    with raw() as connection:
        # The update has the job and waits for its queue; the claim passes over it.
        connection.execute("begin")
        connection.execute(f"lock table {schema}.events in exclusive mode")
        updated = in_thread(lambda: other.update_job(job_id, JobUpdate(metadata={"k": 2})))
        wait_for_a_lock(schema)
        assert claim(store) == []
        connection.execute("rollback")
    assert updated().applied

    [job] = claim(store)

    assert job.metadata == {"k": 2}
    store.close()
    other.close()


def test_a_cancel_and_a_claim_of_one_job_agree(engine: PostgresEngine) -> None:
    store, other = engine.store(), engine.store()
    for _ in range(20):
        [receipt] = store.insert([new_job()])
        job_id = JobId(receipt.id or "")
        cancelled = in_thread(lambda: other.cancel([job_id]))  # noqa: B023 - it ends in this very round
        jobs = claim(store)
        [result] = cancelled()

        assert result.applied
        answer = store.settle_and_claim(WORKER)
        # Cancelled before it started, or told to stop while it runs.
        assert [cancel.job_id for cancel in answer.cancels] == [job.id for job in jobs]
        store.settle_and_claim(WORKER, [complete(job) for job in jobs])
    assert problems(engine) == ()
    store.close()
    other.close()


def test_two_who_lock_several_jobs_in_other_orders_both_end(engine: PostgresEngine) -> None:
    store, other = engine.store(), engine.store()
    ids = [JobId(receipt.id or "") for receipt in store.insert([new_job()] * 30)]

    one = in_thread(lambda: store.cancel(ids))
    two = in_thread(lambda: other.cancel(list(reversed(ids))))

    assert sum(result.applied for result in [*one(), *two()]) == 30
    assert problems(engine) == ()
    store.close()
    other.close()


def test_a_greatest_length_is_kept_to_the_job_by_many_at_once(engine: PostgresEngine) -> None:
    store = engine.store()
    store.save_queue(DEFAULT, {"max_length": 20})
    handles = [engine.store() for _ in range(4)]

    answers = [
        in_thread(lambda handle=handle: [handle.insert([new_job()], atomic=False)[0] for _ in range(10)])  # type: ignore[misc]
        for handle in handles
    ]

    receipts = [receipt for answer in answers for receipt in answer()]
    assert sum(receipt.is_new for receipt in receipts) == 20
    reader = engine.reader()
    assert reader.counts()[DEFAULT] == Counts(pending=20)
    reader.close()
    for handle in (store, *handles):
        handle.close()


def test_a_lease_that_is_just_being_settled_is_not_swept(engine: PostgresEngine, clock: ManualClock) -> None:
    schema, store, other = engine.address.schema, engine.store(), engine.store()
    store.insert([new_job()])
    [job] = claim(store)
    clock.advance(ms=60_000)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {schema}.leases for update")

        assert other.sweep(OTHER_WORKER) == []
        connection.execute("rollback")

    assert store.settle_and_claim(WORKER, [complete(job)]).settled == (job.id,)
    assert other.sweep(OTHER_WORKER) == []
    store.close()
    other.close()


def test_a_lease_that_is_just_being_swept_is_not_renewed(engine: PostgresEngine, clock: ManualClock) -> None:
    schema, store = engine.address.schema, engine.store()
    store.insert([new_job()])
    [job] = claim(store)
    clock.advance(ms=60_000)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"update {schema}.leases set worker = 'sweeper'")

        renewal = store.renew(WORKER, [Lease(job.id, job.attempt)])
        connection.execute("commit")

    assert renewal.renewed == ()
    assert [refusal.lease.job_id for refusal in renewal.refused] == [job.id]
    store.close()


def test_counts_are_folded_once_however_many_fold_them(engine: PostgresEngine) -> None:
    store = engine.store()
    for _ in range(20):
        store.insert([new_job()])
    handles = [engine.store() for _ in range(3)]

    for answer in [in_thread(handle.promote) for handle in handles]:
        answer()
    store.promote()

    with raw() as connection:
        schema = engine.address.schema
        assert connection.execute(f"select count(*) from {schema}.queue_count_deltas").fetchone() == (0,)
        rows = connection.execute(f"select queue, state, jobs from {schema}.queue_counts").fetchall()
    assert rows == [("default", "pending", 20)]
    for handle in (store, *handles):
        handle.close()


def test_claims_of_a_staggered_queue_wait_for_no_claim_between_two_ticks(
    engine: PostgresEngine, clock: ManualClock
) -> None:
    store = engine.store()
    store.save_queue(DEFAULT, {"promote_per_second": 10})
    store.insert([new_job(delay_ms=1_000)] * 2)
    clock.advance(1_000)
    assert len(claim(store, 5)) == 1
    with raw() as connection, connection.transaction():
        connection.execute(f"select 1 from {engine.address.schema}.maintenance for update")

        assert claim(store, 5) == []

    store.close()
