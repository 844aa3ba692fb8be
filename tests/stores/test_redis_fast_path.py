"""Plain jobs on Redis: strings are compared and replaced in the place of heads that are unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest
import redis as driver

from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.errors import StoreRefused, StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.redis.settle_and_claim import MAX_PER_CALL
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, fail, new_job

DEFAULT = QueueName("default")
DAY = 86_400_000
MANY = 2 * MAX_PER_CALL + 50


@pytest.fixture
def engine(redis: ModuleType, clock: ManualClock) -> Engine:
    engine: Engine = redis.make_engine(clock)
    return engine


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        yield store


@pytest.fixture
def admin(redis: ModuleType) -> driver.Redis:
    client: driver.Redis = redis.admin()
    return client


def problems(engine: Engine) -> tuple[str, ...]:
    with closing(engine.reader()) as reader:
        return reader.health().problems


def jobs_of(engine: Engine, ids: list[JobId]) -> list[Job | None]:
    with closing(engine.reader()) as reader:
        return list(reader.jobs(ids))


def headers_key(engine: Any) -> str:
    return f"{engine.address.tag}:headers"


def commands(admin: driver.Redis, store: Store, jobs: int) -> dict[str, int]:
    """How often which command is called by a settle-and-claim that settles and claims so many."""
    store.insert([new_job()] * 2 * jobs)
    ended = [complete(job) for job in claim(store, jobs)]
    admin.config_resetstat()
    answer = store.settle_and_claim(WORKER, ended, [QueueClaim(DEFAULT, jobs)], jobs)
    found = admin.info("commandstats")
    store.settle_and_claim(WORKER, [complete(job) for job in answer.jobs])
    return {name: stats["calls"] for name, stats in found.items() if "config" not in name}


@pytest.mark.shows("R-STORE-44")
def test_a_settle_and_claim_of_many_takes_as_many_commands_as_one_of_few(
    store: Store, admin: driver.Redis
) -> None:
    assert commands(admin, store, MAX_PER_CALL) == commands(admin, store, 2)


def test_a_large_settle_and_claim_is_answered_as_one(
    engine: Engine, store: Store, admin: driver.Redis
) -> None:
    store.insert([new_job()] * 2 * MANY)
    first = claim(store, MANY)
    lost = first[MAX_PER_CALL + 7]
    store.cancel([lost.id], force=True)
    ends = [complete(job) for job in first]
    store.settle_and_claim(WORKER, ends[3:5])
    admin.config_resetstat()

    answer = store.settle_and_claim(WORKER, ends, [QueueClaim(DEFAULT, MANY)], MANY)

    evalsha = admin.info("commandstats")["cmdstat_evalsha"]
    calls = evalsha["calls"] - evalsha["failed_calls"]  # a server that is new has to be told the script first
    # One that leaves it to the next, because some were settled before; three to settle, the last of which
    # claims; and two more to claim.
    assert calls == 1 + 3 + 2
    assert answer.repeated == (first[3].id, first[4].id)
    assert [refusal.lease.job_id for refusal in answer.refused] == [lost.id]
    others = {*answer.repeated, lost.id}
    assert answer.settled == tuple(job.id for job in first if job.id not in others)
    assert len({job.id for job in answer.jobs}) == MANY
    assert [job.seq for job in answer.jobs] == sorted(job.seq for job in answer.jobs)
    assert problems(engine) == ()


def test_a_large_claim_asks_each_queue_for_its_portion_only(store: Store) -> None:
    store.insert([new_job(queue="mail")] * MANY + [new_job(queue="reports")] * MANY)
    claims = [QueueClaim(QueueName("mail"), MAX_PER_CALL + 10), QueueClaim(QueueName("reports"), MANY)]

    jobs = store.settle_and_claim(WORKER, (), claims, 2 * MANY).jobs

    assert [job.queue for job in jobs] == ["mail"] * (MAX_PER_CALL + 10) + ["reports"] * MANY


def test_what_may_be_refused_is_refused_before_anything_is_settled(engine: Engine, store: Store) -> None:
    store.insert([new_job()] * MANY)
    jobs = claim(store, MANY)
    culprit = fail(jobs[-1], "\udcff")

    with pytest.raises(StoreRefused):
        store.settle_and_claim(WORKER, [*map(complete, jobs[:-1]), culprit])

    assert len(store.settle_and_claim(WORKER, [complete(job) for job in jobs]).settled) == MANY


def test_after_a_call_was_lost_the_whole_is_asked_again(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert([new_job()] * 2 * MANY)
    ends = [complete(job) for job in claim(store, MANY)]
    connection = store._connection  # type: ignore[attr-defined]  # behind the store contract
    run, calls = connection.run, iter(range(100))

    def breaking(name: str, *arguments: Any) -> Any:
        answer = run(name, *arguments)
        if next(calls) == 3:  # the second one that claims
            raise StoreUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(connection, "run", breaking)
    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(WORKER, ends, [QueueClaim(DEFAULT, MANY)], MANY)
    answer = store.settle_and_claim(WORKER, ends, known=[])

    assert len(answer.repeated) == MANY
    assert len(answer.recovered) == 2 * MAX_PER_CALL
    assert problems(engine) == ()


@pytest.mark.parametrize("is_failed_first", [True, False])
def test_of_two_ends_of_one_job_the_first_counts(engine: Engine, store: Store, is_failed_first: bool) -> None:
    store.insert([new_job()] * 2)
    job, other = claim(store, 2)
    ends = [fail(job), complete(job)] if is_failed_first else [complete(job), fail(job)]

    answer = store.settle_and_claim(WORKER, [complete(other), *ends])

    assert (answer.settled, answer.repeated) == ((other.id, job.id), ())
    assert [refusal.lease.job_id for refusal in answer.refused] == [job.id]
    [found] = jobs_of(engine, [job.id])
    assert found is not None
    assert found.state == ("retrying" if is_failed_first else "completed")


def test_jobs_of_all_kinds_come_in_their_order(engine: Engine, store: Store, clock: ManualClock) -> None:
    store.insert([new_job(priority=50), new_job(priority=49)])
    back, again = claim(store, 2)
    store.settle_and_claim(WORKER, [decide(back, Interrupted(), 0.0), fail(again, after_ms=0)])
    inserted = store.insert(
        [
            new_job(),
            new_job(unique_key="u"),
            new_job(deadline_at=clock.now_ms() + DAY),
            new_job(expires_at=clock.now_ms() + DAY),
            new_job(task="unknown"),
            new_job(lease_ms=5_000),
            new_job(),
        ]
    )

    request = QueueClaim(DEFAULT, 20, lanes=frozenset(["task:t"]))
    jobs = store.settle_and_claim(WORKER, (), [request], 20).jobs

    new = [receipt.id for receipt in inserted]
    assert [job.id for job in jobs] == [back.id, again.id, *new[:4], *new[5:]]
    assert [job.attempt for job in jobs] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert jobs[6].lease_expires_at == clock.now_ms() + 5_000
    assert len(jobs[1].errors) == 1
    assert len(store.settle_and_claim(WORKER, [complete(job) for job in jobs]).settled) == 8
    assert problems(engine) == ()


def test_a_plain_end_is_fenced(engine: Engine, store: Store, clock: ManualClock) -> None:
    store.insert([new_job()] * 3)
    swept, specified, mine = claim(store, 3)
    clock.advance(ms=DAY)
    store.sweep(OTHER_WORKER, limit=1)
    store.cancel([specified.id], "not wanted")

    answer = store.settle_and_claim(WORKER, [complete(job) for job in (swept, specified, mine)])
    unheld = store.settle_and_claim(OTHER_WORKER, [complete(mine)])

    assert [(refusal.lease.job_id, refusal.reason) for refusal in answer.refused] == [
        (swept.id, "other worker")
    ]
    assert answer.settled == (specified.id, mine.id)
    assert [refusal.reason for refusal in unheld.refused] == ["other state"]
    assert store.settle_and_claim(WORKER, [complete(mine)]).repeated == (mine.id,)
    assert problems(engine) == ()


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536, 200_000])
def test_a_result_comes_back_whatever_its_size(engine: Engine, store: Store, size: int) -> None:
    store.insert([new_job()])
    [job] = claim(store)

    store.settle_and_claim(WORKER, [complete(job, b"\xff" * size)])

    [found] = jobs_of(engine, [job.id])
    assert found is not None
    assert found.result == b"\xff" * size


@pytest.mark.shows("R-CLI-20")
@pytest.mark.parametrize("place", [3, 30])  # among what alike jobs share; in the number
def test_a_head_with_a_damaged_part_is_skipped_and_the_batch_goes_on(
    engine: Engine, store: Store, admin: driver.Redis, place: int
) -> None:
    ids = [receipt.id for receipt in store.insert([new_job()] * 3)]
    stored: Any = admin.hget(headers_key(engine), str(ids[1]))
    head = bytearray(stored)
    head[place] = 0xC1  # no value of MessagePack begins like this, and no number has it
    admin.hset(headers_key(engine), str(ids[1]), bytes(head))

    jobs = claim(store, 3)

    assert [job.id for job in jobs] == [ids[0], ids[2]]
    assert f"job {ids[1]} has a damaged header" in problems(engine)


def test_heads_that_are_missing_are_reported_one_by_one(
    engine: Engine, store: Store, admin: driver.Redis
) -> None:
    ids = [receipt.id for receipt in store.insert([new_job()] * 4)]
    admin.hdel(headers_key(engine), str(ids[0]))

    jobs = claim(store, 4)
    admin.hdel(headers_key(engine), jobs[1].id)
    answer = store.settle_and_claim(WORKER, [complete(job) for job in jobs])

    assert [job.id for job in jobs] == ids[1:]
    assert answer.settled == (jobs[0].id, jobs[2].id)
    assert [(refusal.lease.job_id, refusal.reason) for refusal in answer.refused] == [(jobs[1].id, "gone")]


# Jobs whose age earns nothing more are found by their numbers.


def capped(engine: Engine, ids: list[JobId]) -> list[bool]:
    return [job.age_capped for job in jobs_of(engine, ids) if job is not None]


def rescored(store: Store) -> int:
    calls = 0
    while store.rescore():
        calls += 1
    return calls


def ids_of(store: Store, jobs: int, queue: str = "default") -> list[JobId]:
    return [receipt.id for receipt in store.insert([new_job(queue=queue)] * jobs) if receipt.id]


def test_jobs_of_many_blocks_reach_the_limit_of_their_age(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    old = ids_of(store, 1_500)
    store.delete(old[100:1_200])
    clock.advance(ms=5_000)
    young = ids_of(store, 700)
    clock.advance(ms=5_000)

    rescored(store)

    assert capped(engine, [*old[:100], *old[1_200:]]) == [True] * 400
    assert not any(capped(engine, young))
    clock.advance(ms=5_000)
    rescored(store)
    last = ids_of(store, 1)
    clock.advance(ms=10_000)
    rescored(store)
    assert all(capped(engine, young + last))
    assert problems(engine) == ()


def test_another_limit_of_the_age_is_found_from_the_first_number_on(
    engine: Engine, store: Store, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    store.save_queue(QueueName("other"), {"aging_ms": 1_000, "max_aging_bonus": 100.0})
    ids, others = ids_of(store, 3), ids_of(store, 3, "other")
    clock.advance(ms=20_000)
    rescored(store)
    assert (capped(engine, ids), capped(engine, others)) == ([True] * 3, [False] * 3)

    store.save_queue(DEFAULT, {"max_aging_bonus": 30.0})
    rescored(store)
    assert capped(engine, ids) == [False] * 3
    clock.advance(ms=10_000)
    rescored(store)

    assert (capped(engine, ids), capped(engine, others)) == ([True] * 3, [False] * 3)
    assert problems(engine) == ()
