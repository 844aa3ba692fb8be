"""Jobs completed in the caller's own transaction: with its commit, once, and in no worker's way until
then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, JobId
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, LeaseLost
from forebay.stores.contract.claims_and_results import LeaseStatus
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.callers import AWAITED, BLOCKING, AsyncWay, Undo, Way
from tests.stores.postgres_support import admin, make_engine, problems, server
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim, complete, fail, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    admin().execute("create table if not exists orders (name text)")
    admin().execute("delete from orders")
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


def claimed(store: PostgresStore, jobs: int = 1) -> list[Job]:
    store.insert([new_job() for _ in range(jobs)])
    return claim(store, jobs)


def lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def orders() -> int:
    [(found,)] = admin().execute("select count(*) from orders").fetchall()
    return int(found)


@pytest.mark.parametrize("way", BLOCKING.values(), ids=BLOCKING)
def test_a_job_is_completed_with_the_commit_and_not_with_the_rollback(
    engine: PostgresEngine, store: PostgresStore, way: Way
) -> None:
    store.insert([new_job(unique_key="k")])
    [job] = claim(store)
    with suppress(Undo), way(server().url()) as caller:
        caller.run("insert into orders values ('milk')")
        engine.complete_tx(caller.connection, WORKER, complete(job))
        raise Undo
    before = store.lease_status(WORKER, [lease(job)])

    with way(server().url()) as caller:
        engine.complete_tx(caller.connection, WORKER, complete(job, b'"served"'))
        caller.run("insert into orders values ('tea')")
    with way(server().url()) as caller, pytest.raises(LeaseLost, match="completed before"):
        engine.complete_tx(caller.connection, WORKER, complete(job))

    reader = engine.reader()
    [record] = reader.jobs([job.id])
    assert record is not None
    assert (record.state, record.result, orders()) == ("completed", b'"served"', 1)
    assert (before, store.lease_status(WORKER, [lease(job)])) == ([LeaseStatus.HELD], [LeaseStatus.OVER])
    assert store.insert([new_job(unique_key="k")])[0].is_new
    reader.close()


@pytest.mark.parametrize("way", AWAITED.values(), ids=AWAITED)
def test_a_job_is_completed_in_a_transaction_on_an_event_loop(
    engine: PostgresEngine, store: PostgresStore, way: AsyncWay
) -> None:
    [job] = claimed(store)

    async def program() -> None:
        with suppress(Undo):
            async with way(server().url()) as caller:
                await engine.complete_tx_async(caller.connection, WORKER, complete(job))
                raise Undo
        async with way(server().url()) as caller:
            await engine.complete_tx_async(caller.connection, WORKER, complete(job, b'"served"'))
            with pytest.raises(LeaseLost):
                await engine.complete_tx_async(caller.connection, WORKER, complete(job))

    asyncio.run(program())

    reader = engine.reader()
    [record] = reader.jobs([job.id])
    assert record is not None
    assert (record.state, record.result) == ("completed", b'"served"')
    reader.close()


def test_while_the_transaction_is_open_others_go_on(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    [job, other] = claimed(store, 2)
    with psycopg.connect(server().url()) as connection:
        engine.complete_tx(connection, WORKER, complete(job))

        renewal = store.renew(WORKER, [lease(job), lease(other)])
        statuses = store.lease_status(WORKER, [lease(job), lease(other)])
        clock.advance(seconds=600)
        swept = store.sweep(SWEEPER)
        connection.commit()

    assert (renewal.renewed, renewal.refused) == ((lease(job), lease(other)), ())
    assert statuses == [LeaseStatus.OPEN, LeaseStatus.HELD]
    assert [one.id for one in swept] == [other.id]
    assert store.settle_and_claim(WORKER, [complete(job)]).repeated == (job.id,)


def test_the_fence_is_checked_in_the_transaction(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    [job] = claimed(store)
    clock.advance(seconds=600)
    [swept] = store.sweep(SWEEPER)

    with psycopg.connect(server().url()) as connection:
        connection.execute("insert into orders values ('tea')")
        with pytest.raises(LeaseLost, match="other worker"):
            engine.complete_tx(connection, WORKER, complete(job))
        with pytest.raises(LeaseLost, match="gone"):
            engine.complete_tx(connection, OTHER_WORKER, complete(replace(job, id=JobId("absent"))))

    assert store.settle_and_claim(SWEEPER, [fail(swept)]).settled == (job.id,)
    assert orders() == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_transaction_that_sees_only_its_start_is_refused(
    engine: PostgresEngine, store: PostgresStore, level: str
) -> None:
    [job] = claimed(store)

    with psycopg.connect(server().url()) as connection:
        connection.execute(f"set transaction isolation level {level}")
        with pytest.raises(ConfigError, match=f"READ COMMITTED transaction, not {level}"):
            engine.complete_tx(connection, WORKER, complete(job))

    assert store.settle_and_claim(WORKER, [complete(job)]).settled == (job.id,)


def test_follow_ups_come_true_with_the_completion(engine: PostgresEngine, store: PostgresStore) -> None:
    [job] = claimed(store)
    end = decide(job, Completed(None, (new_job(queue="next"), new_job(task="more"))), 0.0)

    with psycopg.connect(server().url()) as connection:
        engine.complete_tx(connection, WORKER, end)

    reader = engine.reader()
    counts = {name: (found.pending, found.completed) for name, found in reader.counts().items()}
    assert counts == {"default": (1, 1), "next": (1, 0)}
    reader.close()


def test_a_place_under_a_limit_is_free_once_the_worker_knows_of_the_commit(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    store.insert([new_job(limit_keys={"tenant": "a"}) for _ in range(2)])
    [job] = claim(store, 2)
    with psycopg.connect(server().url()) as caller:
        engine.complete_tx(caller, WORKER, complete(job))

    assert store.lease_status(WORKER, [lease(job)]) == [LeaseStatus.OVER]
    [other] = claim(store, 2)

    store.settle_and_claim(WORKER, [complete(other)])


def test_a_follow_up_that_depends_on_others_holds_none_of_them_until_the_commit(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    job, parent = claimed(store, 2)
    follow_up = new_job(depends_on=dependencies_of([parent.id]))
    with psycopg.connect(server().url()) as caller:
        engine.complete_tx(caller, WORKER, replace(complete(job), follow_ups=(follow_up,)))

        ended = store.settle_and_claim(WORKER, [complete(parent)])

        caller.commit()
    store.promote()
    assert ended.settled == (parent.id,)
    assert [job.parent_id for job in claim(store, 9)] == [job.id]
