"""Claims under limits on PostgreSQL: one trip where no job has to wait, the slow path where one does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope, task_scope
from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.outcome import Completed
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.postgres import claim_cursor
from forebay.stores.postgres.claim_cursor import ClaimCursors
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, MAIL, W2, ended
from tests.stores.postgres_support import make_engine, problems, raw, wait_for_a_lock
from tests.stores.support import WORKER, new_job

TENANT = key_scope("tenant")


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def long_ways(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store has done in transactions of many trips, from here on."""
    ways: list[str] = []
    transact = store._transact_with_retry

    def noted(work: Any, **options: Any) -> Any:
        ways.append(getattr(work, "__name__", "settle_and_claim"))
        return transact(work, **options)

    monkeypatch.setattr(store, "_transact_with_retry", noted)
    return ways


def of(tenant: str, **changes: Any) -> NewJob:
    return new_job(limit_keys={"tenant": tenant}, **changes)


def settle_and_claim(store: PostgresStore, done: tuple[Job, ...] = (), room: int = 10) -> tuple[Job, ...]:
    ends = [ended(job, Completed()) for job in done]
    answer = store.settle_and_claim(WORKER, ends, [QueueClaim(DEFAULT, room)], room)
    assert len(answer.settled) == len(done)
    return answer.jobs


def limited(store: PostgresStore, *limits: Limit) -> None:
    """Set limits, and let the handle meet them."""
    for limit in limits:
        store.save_limit(limit)
    store.insert([new_job(task="first")])
    settle_and_claim(store, settle_and_claim(store))


def slots(engine: PostgresEngine) -> int:
    with raw() as connection:
        [(found,)] = connection.execute(
            f"select count(*) from {engine.address.schema}.limit_slots"
        ).fetchall()
    return int(found)


def leave_a_slot(engine: PostgresEngine, job_id: JobId | None) -> None:
    with raw() as connection:
        query = f"insert into {engine.address.schema}.limit_slots values ('key:tenant:a', %s, 0)"
        connection.execute(query, [job_id])


def ends(engine: PostgresEngine, jobs: tuple[Job, ...]) -> int:
    """How often these have ended."""
    ids = [job.id for job in jobs]
    with raw() as connection:
        query = f"select count(*) from {engine.address.schema}.finished where id = any(%s)"
        [(found,)] = connection.execute(query, [ids]).fetchall()
    return int(found)


@pytest.mark.shows("R-CONC-03")
def test_jobs_under_limits_are_ended_and_claimed_in_one_trip(
    engine: PostgresEngine, store: PostgresStore, long_ways: list[str]
) -> None:
    limited(store, Limit(scope=GLOBAL, concurrency=5), Limit(scope=TENANT, concurrency=2))
    store.insert([of(tenant) for tenant in "aabbccddee"])
    long_ways.clear()

    first = settle_and_claim(store, room=4)
    second = settle_and_claim(store, first, room=4)

    assert ([job.limit_keys["tenant"] for job in first], slots(engine)) == (list("aabb"), 4)
    assert [job.limit_keys["tenant"] for job in second] == list("ccdd")
    assert (long_ways, problems(engine)) == ([], ())


@pytest.mark.shows("R-CONC-01", "R-CONC-08")
@pytest.mark.parametrize("scope", [GLOBAL, queue_scope(DEFAULT)])
def test_a_limit_of_all_or_of_the_queue_makes_the_claim_shorter_in_the_same_trip(
    store: PostgresStore, long_ways: list[str], scope: str
) -> None:
    limited(store, Limit(scope=scope, concurrency=3))
    store.insert([new_job() for _ in range(9)])
    long_ways.clear()

    first = settle_and_claim(store)
    second = settle_and_claim(store)
    third = settle_and_claim(store, first[:2])

    assert [len(jobs) for jobs in (first, second, third)] == [3, 0, 2]
    assert long_ways == []


@pytest.mark.parametrize("scope", [TENANT, task_scope("send")])
def test_a_job_that_finds_its_limit_full_goes_in_the_lane_and_comes_back(
    engine: PostgresEngine, store: PostgresStore, scope: str
) -> None:
    limited(store, Limit(scope=scope, concurrency=1))
    store.insert([of("a", task="send"), of("a", task="send"), of("b", task="other")])

    first = settle_and_claim(store)
    second = settle_and_claim(store, first)

    assert [job.task for job in first] == ["send", "other"]
    assert [job.task for job in second] == ["send"]
    assert (slots(engine), problems(engine)) == (1, ())


def test_a_place_that_a_dead_attempt_has_left_behind_is_taken_over(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=2))
    store.insert([of("b")])
    done = settle_and_claim(store)
    [receipt] = store.insert([of("a")])
    leave_a_slot(engine, receipt.id)

    [job] = settle_and_claim(store, done)

    assert (job.id, slots(engine), ends(engine, done)) == (receipt.id, 1, 1)


def test_a_job_whose_options_are_damaged_is_claimed_all_the_same(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=2))
    store.insert([of("b")])
    done = settle_and_claim(store)
    [receipt] = store.insert([of("a")])
    with raw() as connection:
        query = f"update {engine.address.schema}.jobs set options = '{{' where id = %s"
        connection.execute(query, [receipt.id])

    [job] = settle_and_claim(store, done)

    assert (job.id, job.limit_keys, slots(engine), ends(engine, done)) == (receipt.id, {}, 0, 1)


@pytest.fixture
def looks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too little is found behind the cursor, a claim always looks from the head too, and only then."""
    monkeypatch.setattr(ClaimCursors, "may_scan_head", lambda self, queue: True)
    monkeypatch.setattr(claim_cursor, "FULL_SCAN_SECONDS", 1e9)


def passed_over(engine: PostgresEngine, store: PostgresStore) -> tuple[JobId, JobId, tuple[Job, ...]]:
    """A job that the cursor has passed over, since a transaction had locked it; one behind it; one that
    runs."""
    limited(store, Limit(scope=TENANT, concurrency=2))
    first, _, last = store.insert([of("a", priority=9), of("b"), of("c")])
    with raw() as connection, connection.transaction():
        connection.execute(
            f"select 1 from {engine.address.schema}.ready where id = %s for update", [first.id]
        )
        running = settle_and_claim(store, room=1)
    return JobId(first.id or ""), JobId(last.id or ""), running


@pytest.mark.usefixtures("looks_twice")
def test_a_second_look_that_has_to_be_made_again_undoes_nothing_of_the_first(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    passed, behind, done = passed_over(engine, store)
    leave_a_slot(engine, passed)

    jobs = settle_and_claim(store, done, room=2)

    assert {job.id for job in jobs} == {passed, behind}
    assert (slots(engine), ends(engine, done), problems(engine)) == (2, 1, ())


@pytest.mark.usefixtures("looks_twice")
def test_a_second_look_at_a_job_that_finds_its_limit_full_leaves_no_free_job_behind(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=1))
    full, free, _, behind = store.insert([of("a", priority=9), of("b", priority=9), of("a"), of("c")])
    with raw() as connection, connection.transaction():
        query = f"select 1 from {engine.address.schema}.ready where id = any(%s) for update"
        connection.execute(query, [[full.id, free.id]])
        running = settle_and_claim(store, room=1)

    jobs = settle_and_claim(store, room=3)

    assert [job.limit_keys["tenant"] for job in running] == ["a"]
    assert {job.id for job in jobs} == {free.id, behind.id}
    assert [job.id for job in settle_and_claim(store, running, room=3)] == [full.id]
    assert problems(engine) == ()


@pytest.mark.usefixtures("looks_twice")
def test_a_second_look_that_fails_takes_nothing_from_the_first(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    passed, behind, done = passed_over(engine, store)
    schema = engine.address.schema
    with raw() as connection:
        connection.execute(f"""
            create function {schema}.refuse_second() returns trigger language plpgsql
              as $$ begin raise exception 'no' using errcode = 'query_canceled'; end $$;
            create trigger refuse_second before delete on {schema}.ready
              for each row when (old.id = '{passed}') execute function {schema}.refuse_second();
        """)

    jobs = settle_and_claim(store, done, room=2)

    assert ([job.id for job in jobs], ends(engine, done)) == ([behind], 1)
    with raw() as connection:
        connection.execute(f"drop function {schema}.refuse_second cascade")
    assert [job.id for job in settle_and_claim(store, jobs, room=2)] == [passed]


def test_a_lane_that_is_closed_anew_while_a_claim_opens_it_is_not_forgotten(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=1))
    store.insert([of("a"), of("a")])
    assert len(settle_and_claim(store)) == 1
    store.drop_limit(TENANT)
    schema = engine.address.schema

    with ThreadPoolExecutor(1) as pool, raw() as connection:
        connection.execute(f"delete from {schema}.limit_releases")
        connection.execute(f"update {schema}.limit_lanes set recheck_at = 0")
        with connection.transaction():
            # As a claim does under a limit that was saved since.
            connection.execute(f"update {schema}.limit_lanes set recheck_at = {schema}.now_ms() + 1")
            claim = pool.submit(settle_and_claim, store)
            wait_for_a_lock(schema)
        assert len(claim.result(60)) == 1
        [(kept,)] = connection.execute(f"select count(*) from {schema}.limit_lanes").fetchall()

    assert kept == 1


def test_a_settlement_that_is_refused_frees_no_place(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=1))
    store.insert([of("a")])
    [job] = settle_and_claim(store)
    clock.advance(seconds=60)
    store.sweep(W2)

    answer = store.settle_and_claim(WORKER, [ended(job, Completed())], [QueueClaim(DEFAULT, 1)], 1)

    assert ([refusal.lease.job_id for refusal in answer.refused], slots(engine)) == ([job.id], 1)


def test_where_limits_are_gone_jobs_go_the_plain_way_again(
    store: PostgresStore, long_ways: list[str]
) -> None:
    limited(store, Limit(scope=GLOBAL, concurrency=5))
    store.drop_limit(GLOBAL)
    store.insert([new_job() for _ in range(9)])
    long_ways.clear()

    jobs = settle_and_claim(store, settle_and_claim(store))

    assert (len(jobs), store._cache.limited, long_ways) == (0, set(), [])


def test_jobs_that_wait_in_another_queue_for_a_place_are_looked_at(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=1))
    store.insert([of("a"), of("b")])
    first = settle_and_claim(store)
    [waiting] = store.insert([of("a", queue=MAIL)])
    assert store.settle_and_claim(WORKER, claims=[QueueClaim(MAIL, 1)], room=1).jobs == ()

    settle_and_claim(store, first)

    [job] = store.settle_and_claim(WORKER, claims=[QueueClaim(MAIL, 1)], room=1).jobs
    assert (job.id, problems(engine)) == (waiting.id, ())


@pytest.mark.shows("R-CONC-03")
def test_a_claim_counts_what_was_claimed_while_it_waited_for_the_lock(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    limited(store, Limit(scope=TENANT, concurrency=1))
    other, schema = engine.store(), engine.address.schema
    assert settle_and_claim(other) == ()
    for handle in (store, other):
        handle._connection.open().execute("set lock_timeout = '60s'")
    store.insert([of("a"), of("a")])

    with ThreadPoolExecutor(2) as pool, raw() as connection:
        with connection.transaction():
            connection.execute(f"select 1 from {schema}.limits for update")
            claims = [pool.submit(settle_and_claim, handle, (), 1) for handle in (store, other)]
            wait_for_a_lock(schema, sessions=2)
        jobs = [job for claim in claims for job in claim.result(60)]

    assert (len(jobs), slots(engine), problems(engine)) == (1, 1, ())
    other.close()
