"""Fairness keys under limits: jobs that a full limit holds up are still served by their virtual times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope, task_scope
from forebay.domain.job import Job, NewJob
from forebay.domain.lane import is_limit_lane, limit_scope_of
from forebay.domain.outcome import Completed
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, SECOND, W1, W2, ended, put, together
from tests.stores.support import claim, complete, new_job

TASK = Limit(scope=task_scope("send"), concurrency=1)
KEY = Limit(scope=key_scope("host"), concurrency=1)
limits = pytest.mark.parametrize("limit", [TASK, KEY], ids=["task", "key"])


def jobs_of(key: str, jobs: int, **changes: Any) -> list[NewJob]:
    """Jobs that both limits are for."""
    keys = {"host": "a.example"} | ({"fairness": key} if key else {})
    return [new_job(**{"task": "send", "limit_keys": keys} | changes) for _ in range(jobs)]


def fairness_key_in(job: Job) -> str:
    return job.limit_keys.get("fairness", "")


def served(store: Store, rounds: int, running: Sequence[Job], most: int = 8) -> Iterator[str]:
    """End the running jobs and claim again, so often; the fairness keys of the claimed jobs."""
    for _ in range(rounds):
        request = QueueClaim(DEFAULT, most)
        running = store.settle_and_claim(
            W1, [ended(job, Completed(b"1")) for job in running], [request], room=most
        ).jobs
        yield from map(fairness_key_in, running)


@limits
@pytest.mark.shows("R-PRI-36")
def test_jobs_behind_a_full_limit_are_served_by_the_turns_of_their_fairness_keys(
    store: Store, limit: Limit
) -> None:
    store.save_limit(limit)
    store.insert(jobs_of("acme", 60))
    running = claim(store, 8)
    store.insert(jobs_of("small", 5))

    order = list(served(store, 12, running))

    assert order[:10].count("small") == 5, order
    assert order[10:] == ["acme", "acme"]


@limits
def test_a_fairness_key_that_comes_later_does_not_wait_for_a_backlog_behind_the_limit(
    store: Store, reader: Reader, limit: Limit
) -> None:
    store.save_limit(limit)
    store.insert(jobs_of("acme", 60))
    running = claim(store, 8)
    assert [held.jobs for held in reader.lanes() if held.lane.startswith("limit:")] == [59]
    store.insert(jobs_of("small", 3))

    order = list(served(store, 6, running, most=1))

    assert order.count("small") == 3, order


@limits
def test_weights_count_behind_a_full_limit(store: Store, limit: Limit) -> None:
    store.save_queue(DEFAULT, {"fairness_weights": {"gold": 3}})
    store.save_limit(limit)
    store.insert([*jobs_of("gold", 40), *jobs_of("trial", 40)])

    order = list(served(store, 24, claim(store, 8)))

    assert 17 <= order.count("gold") <= 19, order


@limits
def test_a_fairness_key_that_keeps_inserting_does_not_take_the_places_of_another(
    store: Store, limit: Limit
) -> None:
    store.save_limit(limit)
    store.insert([*jobs_of("acme", 4), *jobs_of("small", 10)])
    running: Sequence[Job] = claim(store, 8)

    order: list[str] = []
    for _ in range(12):
        store.insert(jobs_of("acme", 1, priority=50))
        ends = [ended(job, Completed(b"1")) for job in running]
        running = store.settle_and_claim(W1, ends, [QueueClaim(DEFAULT, 8)], room=8).jobs
        order += map(fairness_key_in, running)

    assert 5 <= order.count("small") <= 7, order


def test_a_fairness_key_behind_a_limit_takes_turns_with_fairness_keys_that_have_none(store: Store) -> None:
    store.save_limit(Limit(scope=TASK.scope, concurrency=2))
    store.insert([*jobs_of("limited", 30), *jobs_of("free", 30, task="other")])
    running = claim(store, 2)

    order = list(served(store, 8, running, most=2))

    assert len(order) == 16
    assert 6 <= order.count("free") <= 10, order


@limits
def test_every_job_behind_a_limit_runs_however_fairness_keys_are_mixed(store: Store, limit: Limit) -> None:
    store.save_limit(limit)
    store.insert([*jobs_of("a", 7), *jobs_of("", 5), *jobs_of("b", 2), *jobs_of("c", 1)])

    running = claim(store, 4)
    order = [*map(fairness_key_in, running), *served(store, 14, running, most=4)]

    assert Counter(order) == {"a": 7, "": 5, "b": 2, "c": 1}
    assert claim(store, 4) == []


@limits
def test_jobs_of_fairness_keys_come_back_when_the_limit_is_removed(
    store: Store, reader: Reader, limit: Limit
) -> None:
    store.save_limit(limit)
    store.insert([*jobs_of("a", 9), *jobs_of("b", 9)])
    assert len(claim(store, 8)) == 1

    store.drop_limit(limit.scope)

    assert Counter(map(fairness_key_in, claim(store, 8))) == {"a": 4, "b": 4}
    assert len(claim(store, 20)) == 9
    assert reader.lanes() == []


def test_a_rate_gives_its_tokens_by_the_turns_of_fairness_keys(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=TASK.scope, rate=1, burst=1))
    store.insert(jobs_of("acme", 20))
    assert len(claim(store, 8)) == 1
    store.insert(jobs_of("small", 4))
    claim(store, 8)

    order: list[str] = []
    for _ in range(10):
        clock.advance(ms=SECOND)
        order += map(fairness_key_in, claim(store, 8))

    assert (len(order), order.count("small")) == (10, 4)


def test_cancelled_jobs_of_a_fairness_key_leave_its_place_behind_the_limit_to_others(store: Store) -> None:
    store.save_limit(TASK)
    [running] = [put(store, task="send", limit_keys={"fairness": "a"})]
    gone = [put(store, task="send", limit_keys={"fairness": "b"}) for _ in range(3)]
    last = put(store, task="send", limit_keys={"fairness": "c"})
    [job] = claim(store, 8)
    assert job.id == running

    store.cancel(gone)

    assert [
        one.id for one in store.settle_and_claim(W1, [complete(job)], [QueueClaim(DEFAULT, 8)], room=8).jobs
    ] == [last]


@limits
def test_the_limit_of_a_job_behind_it_is_named(store: Store, reader: Reader, limit: Limit) -> None:
    store.save_limit(limit)
    store.insert(jobs_of("a", 3))
    claim(store, 8)

    [held] = reader.lanes()

    assert is_limit_lane(held.lane)
    assert limit_scope_of(held.lane).startswith(limit.scope)
    assert "\t" not in limit_scope_of(held.lane)


@limits
def test_workers_that_claim_at_once_never_exceed_the_limit_and_leave_no_job(
    engine: Engine, store: Store, limit: Limit
) -> None:
    store.save_limit(limit)
    store.insert([*jobs_of("a", 20), *jobs_of("b", 10), *jobs_of("", 10)])
    done: list[str] = []

    def work(worker: Store) -> int:
        most, running = 0, list[Job]()
        while len(done) < 40:
            ends = [ended(job, Completed(b"1")) for job in running]
            name = W1 if worker is store else W2
            running = list(worker.settle_and_claim(name, ends, [QueueClaim(DEFAULT, 3)], room=3).jobs)
            done.extend(job.id for job in running)
            most = max(most, len(running))
        worker.settle_and_claim(W2, [ended(job, Completed(b"1")) for job in running])
        return most

    assert max(together(engine, [work, work])) == 1
    assert len(set(done)) == len(done) == 40
