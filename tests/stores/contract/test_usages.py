"""How limits stand: what runs under each, and what is left of its rate."""

from __future__ import annotations

from forebay.domain.concurrency_and_rate_limits import (
    GLOBAL,
    Limit,
    LimitUsage,
    key_scope,
    queue_scope,
    task_scope,
)
from forebay.domain.outcome import Completed
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, MAIL, SECOND, claimed, put, put_many, settle, start


def of(reader: Reader) -> dict[str, LimitUsage]:
    return {usage.limit.scope: usage for usage in reader.limit_usages()}


def test_without_limits_there_is_nothing_to_say(store: Store, reader: Reader) -> None:
    put_many(store, 2)
    start(store)

    assert reader.limit_usages() == []


def test_the_limit_of_a_queue_and_that_of_all_count_what_runs(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=queue_scope(DEFAULT), concurrency=2))
    store.save_limit(Limit(scope=GLOBAL, concurrency=5))
    put_many(store, 3)
    put_many(store, 2, queue=MAIL)
    claimed(store, 3)
    job = start(store, queue=MAIL)

    assert [(one.limit.scope, one.running, one.is_at_limit) for one in reader.limit_usages()] == [
        (GLOBAL, 3, False),
        (queue_scope(DEFAULT), 2, True),
    ]
    assert all(one.tokens is None and not one.is_out_of_tokens for one in reader.limit_usages())
    settle(store, job, Completed(b"1"))
    assert of(reader)[GLOBAL].running == 2


def test_a_lease_that_has_ended_is_not_counted(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=1))
    store.save_limit(Limit(scope=task_scope("a"), concurrency=1))
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    put(store, task="a", limit_keys={"tenant": "x"})
    start(store)
    assert [one.running for one in reader.limit_usages()] == [1, 1, 1]

    clock.advance(ms=30 * SECOND)

    assert [one.running for one in reader.limit_usages()] == [0, 0, 0]


def test_tokens_are_spent_and_come_back_with_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=queue_scope(DEFAULT), rate=2, per_ms=SECOND, burst=3))
    store.save_limit(Limit(scope=task_scope("a"), rate=1, per_ms=SECOND, burst=1))
    assert [one.tokens for one in reader.limit_usages()] == [3, 1]
    put_many(store, 2, task="a")
    put_many(store, 4, task="b")

    assert len(claimed(store, 10)) == 3

    assert [(one.tokens, one.is_out_of_tokens) for one in reader.limit_usages()] == [(0, True), (0, True)]
    clock.advance(ms=SECOND)
    assert [(one.tokens, one.is_out_of_tokens) for one in reader.limit_usages()] == [(2, False), (1, False)]


def test_a_limit_by_key_counts_all_its_values_and_has_no_tokens_of_its_own(
    store: Store, reader: Reader
) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1, rate=100))
    store.save_limit(Limit(scope=key_scope("tenants"), concurrency=9))
    for value in ("x", "x", "y", "z;"):
        put(store, limit_keys={"tenant": value})
    put(store, limit_keys={"tenants": "x"})

    assert len(claimed(store, 9)) == 4  # the second of x waits

    found = of(reader)
    assert (found[key_scope("tenant")].running, found[key_scope("tenants")].running) == (3, 1)
    assert found[key_scope("tenant")].tokens is None
    assert not found[key_scope("tenant")].is_at_limit


def test_the_limit_of_a_task_counts_its_jobs_of_all_queues(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=task_scope("a"), concurrency=2))
    put(store, task="a")
    put(store, task="a", queue=MAIL)
    put(store, task="ab")
    claimed(store, 5)
    claimed(store, 5, queue=MAIL)

    [usage] = reader.limit_usages()

    assert (usage.running, usage.is_at_limit) == (2, True)
