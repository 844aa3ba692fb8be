"""Limits on Redis: who has a place, and what is left of rates by key, as they lie there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope, task_scope
from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.outcome import Completed, Interrupted
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.store import RedisStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DAY, DEFAULT, HOUR, MINUTE, SECOND, ended
from tests.stores.support import WORKER, claim, new_job

TENANT = key_scope("tenant")


@pytest.fixture
def engine(redis: ModuleType, clock: ManualClock) -> RedisEngine:
    engine: RedisEngine = redis.make_engine(clock)
    return engine


@pytest.fixture
def store(engine: RedisEngine) -> Iterator[RedisStore]:
    with closing(engine.store()) as store:
        yield store


class StoredKeys:
    """Keys of a store at its server."""

    def __init__(self, client: Any, tag: str) -> None:
        self._client, self._tag = client, tag

    def slots(self) -> dict[str, list[str]]:
        """Return the jobs that have a slot, by scope."""
        return {
            scope.decode(): ids.decode().lstrip("0123456789").strip("\0").split("\0\0")
            for scope, ids in self._fields()
            if scope.startswith((b"key:", b"task:"))
        }

    def put_slot(self, scope: str, *ids: str) -> None:
        packed = str(len(ids)) + "".join(f"\0{one}\0" for one in ids)
        self._client.hset(f"{self._tag}:limit_slots", scope, packed)
        for one in ids:
            self._client.hset(f"{self._tag}:limit_slots", f"\0{one}\0", scope)

    def spoil_body(self, job: Job) -> None:
        self._client.set(f"{self._tag}:body:{job.seq}", b"\0")

    def holders(self) -> list[str]:
        """Return the jobs that have slots, as stored by job."""
        return [field.decode().strip("\0") for field, _ in self._fields() if field.startswith(b"\0")]

    def _fields(self) -> Iterable[tuple[bytes, bytes]]:
        found: dict[bytes, bytes] = self._client.hgetall(f"{self._tag}:limit_slots")
        return found.items()

    def buckets(self) -> tuple[int, int]:
        return int(self._client.hlen(f"{self._tag}:rate_buckets")), int(
            self._client.zcard(f"{self._tag}:rate_bucket_expiry")
        )


@pytest.fixture
def kept(redis: ModuleType, engine: RedisEngine) -> StoredKeys:
    return StoredKeys(redis.admin(), engine.address.tag)


def of(tenant: str, **changes: Any) -> NewJob:
    return new_job(limit_keys={"tenant": tenant}, **changes)


def settle_and_claim(store: RedisStore, done: list[Job], room: int = 10) -> list[Job]:
    ends = [ended(job, Completed()) for job in done]
    return list(store.settle_and_claim(WORKER, ends, [QueueClaim(DEFAULT, room)], room).jobs)


@pytest.mark.shows("R-CONC-03")
def test_places_are_kept_by_scope_and_go_with_their_jobs(store: RedisStore, kept: StoredKeys) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=9))
    store.save_limit(Limit(scope=task_scope("other"), concurrency=9))
    store.insert([of("a"), of("a"), of("b", task="other"), new_job(), of('q"\\'), of("é")])
    a, again, b, _, quoted, accented = jobs = claim(store, 9)

    assert kept.slots() == {
        "key:tenant:a": [a.id, again.id],
        "key:tenant:b": [b.id],
        "task:other": [b.id],
        'key:tenant:q"\\': [quoted.id],
        "key:tenant:é": [accented.id],
    }
    settle_and_claim(store, [a, b, quoted, accented])
    assert (kept.slots(), kept.holders()) == ({"key:tenant:a": [again.id]}, [again.id])
    settle_and_claim(store, [job for job in jobs if job not in (a, b, quoted, accented)])
    assert (kept.slots(), kept.holders()) == ({}, [])


def test_a_job_that_ends_and_begins_again_in_one_call_keeps_one_place(
    store: RedisStore, kept: StoredKeys
) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    store.insert([of("a")])
    [job] = claim(store)

    [again] = store.settle_and_claim(WORKER, [ended(job, Interrupted())], [QueueClaim(DEFAULT, 1)], 1).jobs

    assert (again.id, kept.slots(), kept.holders()) == (job.id, {"key:tenant:a": [job.id]}, [job.id])


def test_places_that_jobs_have_left_behind_count_for_nothing_and_go(
    store: RedisStore, kept: StoredKeys
) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=2))
    [waiting] = store.insert([of("a")])
    kept.put_slot("key:tenant:a", "absent", waiting.id or "")

    [job] = claim(store)

    assert (kept.slots(), kept.holders()) == ({"key:tenant:a": [job.id]}, [job.id])


def test_the_place_of_one_whose_name_is_part_of_another_is_not_mixed_up(
    store: RedisStore, kept: StoredKeys
) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=9))
    store.insert([of("a", id=JobId("xx")), of("a", id=JobId("x"))])
    long, short = claim(store, 2)

    settle_and_claim(store, [short])

    assert kept.slots() == {"key:tenant:a": [long.id]}


def test_a_damaged_body_keeps_no_worker_from_claims_under_limits(store: RedisStore, kept: StoredKeys) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    store.insert([of("a")])
    [job] = claim(store)
    kept.spoil_body(job)
    store.settle_and_claim(WORKER, [ended(job, Interrupted())])
    store.insert([of("a")])

    jobs = claim(store, 2)

    assert [one.limit_keys for one in jobs] == [{}, {"tenant": "a"}]


def test_what_is_left_of_a_rate_by_key_is_known_until_it_is_full_also_by_a_slower_rate(
    store: RedisStore, kept: StoredKeys, clock: ManualClock
) -> None:
    store.save_limit(Limit(scope=TENANT, rate=1_000, burst=1))
    store.insert([of("a") for _ in range(3)])
    assert len(claim(store, 3)) == 1
    store.save_limit(Limit(scope=TENANT, rate=1, per_ms=HOUR, burst=1))

    clock.advance(ms=MINUTE)
    store.prune()
    assert (claim(store, 3), kept.buckets()) == ([], (1, 1))
    clock.advance(ms=HOUR)
    store.prune()
    assert kept.buckets() == (0, 0)
    assert len(claim(store, 3)) == 1


def test_what_is_left_under_a_limit_that_was_removed_is_forgotten(
    store: RedisStore, kept: StoredKeys, clock: ManualClock
) -> None:
    store.save_limit(Limit(scope=TENANT, rate=1))
    store.insert([of("a")])
    claim(store)
    store.drop_limit(TENANT)

    clock.advance(ms=MINUTE)
    store.prune()

    assert kept.buckets() == (0, 0)


@pytest.mark.parametrize(("changes", "tokens"), [(20, 7), (21, 2), (25, 2)])
def test_after_many_changes_of_a_rate_the_time_before_them_counts_for_nothing(
    store: RedisStore, clock: ManualClock, changes: int, tokens: int
) -> None:
    store.save_limit(Limit(scope=TENANT, rate=1, burst=9))
    store.insert([of("a") for _ in range(30)])
    assert len(claim(store, 30)) == 9
    clock.advance(ms=5 * SECOND)
    for burst in range(10, 10 + changes):
        store.save_limit(Limit(scope=TENANT, rate=1, per_ms=DAY, burst=burst))
    clock.advance(ms=2 * DAY)

    assert len(claim(store, 30)) == tokens
