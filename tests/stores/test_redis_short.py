"""Scripts of the Redis engine for plain jobs alone: they do what others do, and leave the rest to those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest
import redis as driver

from forebay.domain.job import Dependency, JobId, QueueName, WorkerId
from forebay.errors import InvalidJob, QueueFull
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.redis.insert import fit_fast_path
from forebay.stores.redis.settle_and_claim import MAX_PER_CALL, SLOW_CALLS, FastPathSwitch
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, counting_ids, new_job

DEFAULT = QueueName("default")
DAY = 86_400_000


@pytest.fixture
def engine(redis: ModuleType, clock: ManualClock) -> Engine:
    engine: Engine = redis.make_engine(clock)
    return engine


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        yield store


def problems(engine: Engine) -> tuple[str, ...]:
    with closing(engine.reader()) as reader:
        return reader.health().problems


def ids_of(store: Store, jobs: int) -> list[JobId]:
    return [receipt.id for receipt in store.insert([new_job()] * jobs) if receipt.id]


@pytest.fixture
def called(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that are called."""
    connection = store._connection  # type: ignore[attr-defined]  # behind the store contract
    call, names = connection.call, list[str]()

    def noted(name: str, *arguments: Any) -> Any:
        names.append(name)
        return call(name, *arguments)

    monkeypatch.setattr(connection, "call", noted)
    return names


def stored(admin: driver.Redis, engine: Any) -> dict[str, object]:
    """Everything that the store holds, by key."""
    tag = engine.address.tag
    found: dict[str, object] = {}
    for key in admin.scan_iter(f"{tag}:*"):
        kind = admin.type(key)
        reads: dict[bytes, Callable[[Any], object]] = {
            b"string": admin.get,
            b"hash": admin.hgetall,
            b"zset": lambda name: admin.zrange(name, 0, -1, withscores=True),
            b"set": admin.smembers,
        }
        found[key.decode().removeprefix(tag)] = reads[kind](key)  # type: ignore[index]
    return found


@pytest.mark.parametrize("jobs", [1, 1_100])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"priority": -3, "lease_ms": 5_000, "extension_ms": 7_000, "tags": ("a",)},
        {"task": "t" * 100, "payload": b"\xff" * 70_000, "limit_keys": {"tenant": "x"}},
    ],
    ids=["usual", "settings", "large"],
)
def test_plain_jobs_are_stored_as_all_others_are(
    redis: ModuleType,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    changes: dict[str, Any],
) -> None:
    found = []
    batch = [new_job(**changes)] * (min(jobs, 30) if "payload" in changes else jobs)
    for is_plain in (True, False):
        engine = redis.make_engine(clock, new_id=counting_ids())
        with closing(engine.store()) as store, monkeypatch.context() as patch:
            store.save_queue(DEFAULT, {"default_priority": 2, "max_length": 2_000})
            if not is_plain:
                patch.setattr("forebay.stores.redis.store.fit_fast_path", lambda _: False)
            receipts = store.insert(batch)
        found.append((receipts, stored(redis.admin(), engine)))

    assert found[0] == found[1]


def test_plain_jobs_are_claimed_and_settled_as_all_others_are(
    redis: ModuleType, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for is_plain in (True, False):
        engine = redis.make_engine(clock, new_id=counting_ids())
        with closing(engine.store()) as store, monkeypatch.context() as patch:
            store.insert([new_job()] * 30)
            if not is_plain:
                patch.setattr(FastPathSwitch, "should_try", lambda _: False)
            one = claim(store)
            some = claim(store, 20)
            ends = [complete(job) for job in one + some[:15]]
            answer = store.settle_and_claim(WORKER, ends, [QueueClaim(DEFAULT, 5)], room=5)
        found.append((one, some, answer, stored(redis.admin(), engine)))

    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("settings", "changes", "error"),
    [
        ({"max_length": 1}, {}, QueueFull),
        ({"max_priority": 5}, {"priority": 6}, InvalidJob),
        ({"min_priority": -5}, {"priority": -6}, InvalidJob),
    ],
)
def test_what_is_wrong_with_plain_jobs_is_said_by_the_other_script(
    store: Store, called: list[str], settings: dict[str, int], changes: dict[str, Any], error: type[Exception]
) -> None:
    store.save_queue(DEFAULT, settings)
    store.insert([new_job()])
    called.clear()

    with pytest.raises(error):
        store.insert([new_job(**changes)])

    assert called == ["insert_fast", "insert"]


def test_a_queue_with_a_rate_is_not_asked_twice_for_each_job(store: Store, called: list[str]) -> None:
    store.save_queue(DEFAULT, {"enqueue_rate": 1, "enqueue_burst": 2 * SLOW_CALLS})
    called.clear()

    for _ in range(SLOW_CALLS + 1):
        store.insert([new_job(client="someone")])

    assert called == ["insert_fast", *["insert"] * SLOW_CALLS, "insert_fast", "insert"]


def test_a_plain_job_may_earn_nothing_by_its_age_from_the_beginning(engine: Engine, store: Store) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 0.0})

    ids = ids_of(store, 1)

    with closing(engine.reader()) as reader:
        [job] = reader.jobs(ids)
    assert job is not None
    assert job.age_capped
    assert [job.id for job in claim(store)] == ids


@pytest.mark.parametrize(
    "changes",
    [
        {"unique_key": "u"},
        {"idempotency_key": "o"},
        {"delay_ms": 1},
        {"run_at": 1},
        {"deadline_at": 1},
        {"expires_at": 10**12},
        {"id": "01HZZZZZZZZZZZZZZZZZZZZZZZ"},
        {"depends_on": (Dependency(JobId("01HZZZZZZZZZZZZZZZZZZZZZZZ")),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_jobs_that_need_a_closer_look_are_not_plain(changes: dict[str, Any]) -> None:
    assert fit_fast_path([new_job()])
    assert not fit_fast_path([new_job(), new_job(**changes)])
    assert not fit_fast_path([new_job(), new_job(queue="other")])


def test_workers_take_the_fast_path_until_something_else_comes_and_again_after_a_while(
    store: Store, called: list[str], clock: ManualClock
) -> None:
    ids = ids_of(store, 30)
    store.insert([new_job(delay_ms=5_000)])
    called.clear()
    ended = [complete(job) for job in claim(store, 3)]
    store.settle_and_claim(WORKER, ended, [QueueClaim(DEFAULT, 1)], 1)
    plainly = called[:]
    clock.advance(ms=5_000)
    called.clear()

    jobs = [job.id for _ in range(SLOW_CALLS + 1) for job in claim(store)]

    assert plainly == ["settle_and_claim_fast"] * 2
    assert called == ["settle_and_claim_fast", *["settle_and_claim"] * SLOW_CALLS, "settle_and_claim_fast"]
    assert jobs == ids[4 : SLOW_CALLS + 5]


@pytest.mark.parametrize("before", [0, 3])
def test_behind_plain_jobs_the_other_script_goes_on(
    engine: Engine, store: Store, called: list[str], clock: ManualClock, before: int
) -> None:
    plain = ids_of(store, before) if before else []
    store.insert([new_job(task="unknown"), new_job(deadline_at=clock.now_ms() + 9 * DAY)])
    rest = ids_of(store, 2)
    called.clear()

    request = QueueClaim(DEFAULT, before + 2, lanes=frozenset(["task:t"]))
    jobs = store.settle_and_claim(WORKER, (), [request], before + 2).jobs

    assert called == ["settle_and_claim_fast", "settle_and_claim"]
    assert [job.id for job in jobs][:before] == plain
    assert jobs[-1].id == rest[0]
    assert problems(engine) == ()


def test_a_job_that_is_due_after_a_large_claim_is_told_as_the_last_call_knows_it(
    store: Store, clock: ManualClock
) -> None:
    store.insert([new_job()] * MAX_PER_CALL + [new_job(delay_ms=1)] * 50 + [new_job(delay_ms=5_001)])
    clock.advance(ms=1)

    answer = store.settle_and_claim(WORKER, (), [QueueClaim(DEFAULT, 2 * MAX_PER_CALL)], 2 * MAX_PER_CALL)

    assert len(answer.jobs) == MAX_PER_CALL + 50
    assert answer.next_due_ms == 5_000


@pytest.mark.shows("R-SWEEP-06")
def test_many_lost_leases_are_taken_over_a_hundred_at_a_time(
    engine: Engine, store: Store, called: list[str], clock: ManualClock
) -> None:
    for number in range(10):
        store.insert([new_job()] * 25)
        claim(store, 25, worker=WorkerId(f"dead-{number % 5}"))
        clock.advance(ms=1)
    clock.advance(ms=DAY)
    called.clear()

    swept = store.sweep(OTHER_WORKER, 230)

    assert called == ["sweep"] * 3
    assert [job.seq for job in swept] == list(range(1, 231))
    assert len(store.sweep(OTHER_WORKER)) == 20
    assert problems(engine) == ()
