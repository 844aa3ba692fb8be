"""Limits: a worker that frees a slot that it does not take itself wakes those that may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Semaphore

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope
from forebay.domain.outcome import Completed, Discarded
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from tests.stores.contract.steps import BOOM, DAY, DEFAULT, MAIL, W1, W2, ended, put, start, started

DEADLINE = 120.0


@contextmanager
def listening(engine: Engine) -> Iterator[Semaphore]:
    """A listener from here on; each wake-up releases once."""
    notified = Semaphore(0)
    listener = engine.wakeups()
    listener.start(notified.release)
    try:
        # Those that listen over a connection say once that it is there, since hints may have been missed.
        if engine.features.name in ("postgresql", "redis"):
            assert notified.acquire(timeout=DEADLINE)
        yield notified
    finally:
        listener.close()


def test_a_place_of_a_key_whose_job_went_to_another_one_wakes_others(engine: Engine, store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    first = started(store, limit_keys={"tenant": "a"})
    waiting = put(store, limit_keys={"tenant": "a"})
    assert store.settle_and_claim(W2, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs == ()
    other = put(store, limit_keys={"tenant": "b"}, priority=9)

    with listening(engine) as notified:
        done = store.settle_and_claim(W1, [ended(first, Completed(b"1"))], [QueueClaim(DEFAULT, 1)], room=1)
        assert notified.acquire(timeout=DEADLINE), (
            "no worker is told that there is a slot for the other tenant"
        )

    assert [job.id for job in done.jobs] == [other]
    assert start(store, W2).id == waiting


def test_a_place_of_a_key_whose_jobs_wait_in_another_queue_wakes_others(engine: Engine, store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    first = started(store, limit_keys={"tenant": "a"})
    waiting = put(store, queue=MAIL, limit_keys={"tenant": "a"})
    assert store.settle_and_claim(W2, claims=[QueueClaim(MAIL, 1)], room=1).jobs == ()
    other = put(store)

    with listening(engine) as notified:
        done = store.settle_and_claim(W1, [ended(first, Completed(b"1"))], [QueueClaim(DEFAULT, 1)], room=1)
        assert notified.acquire(timeout=DEADLINE), "no worker is told that there is a slot in the other queue"

    assert [job.id for job in done.jobs] == [other]
    assert start(store, W2, MAIL).id == waiting


@pytest.mark.parametrize("claims", [0, 1])
@pytest.mark.parametrize("others", [(), (Limit(scope=GLOBAL, concurrency=9),)], ids=["alone", "global too"])
def test_a_place_of_a_queue_that_its_worker_does_not_ask_wakes_others(
    engine: Engine, store: Store, claims: int, others: tuple[Limit, ...]
) -> None:
    for limit in (Limit(scope=queue_scope(MAIL), concurrency=1), *others):
        store.save_limit(limit)
    first = started(store, queue=MAIL)
    waiting = put(store, queue=MAIL)
    assert store.settle_and_claim(W2, claims=[QueueClaim(MAIL, 1)], room=1).jobs == ()
    # The queue that the worker asks is one that it knows.
    store.settle_and_claim(W1, [ended(started(store), Completed(b"1"))], [QueueClaim(DEFAULT, 1)], room=1)
    expected = [put(store) for _ in range(claims)]

    with listening(engine) as notified:
        done = store.settle_and_claim(W1, [ended(first, Completed(b"1"))], [QueueClaim(DEFAULT, 1)], room=1)
        assert notified.acquire(timeout=DEADLINE), "no worker is told that the queue has a slot"

    assert [job.id for job in done.jobs] == expected
    assert start(store, W2, MAIL).id == waiting


def test_the_place_of_one_of_two_queues_wakes_others_though_the_other_queue_took_the_room(
    engine: Engine, store: Store
) -> None:
    store.save_limit(Limit(scope=queue_scope(MAIL), concurrency=1))
    first = started(store, queue=MAIL)
    waiting = put(store, queue=MAIL)
    assert store.settle_and_claim(W2, claims=[QueueClaim(MAIL, 1)], room=1).jobs == ()
    other = put(store)

    with listening(engine) as notified:
        done = store.settle_and_claim(
            W1, [ended(first, Completed(b"1"))], [QueueClaim(DEFAULT, 1), QueueClaim(MAIL, 1)], room=1
        )
        assert notified.acquire(timeout=DEADLINE), "no worker is told that the queue has a slot"

    assert [job.id for job in done.jobs] == [other]
    assert start(store, W2, MAIL).id == waiting


@pytest.mark.parametrize("scope", [GLOBAL, queue_scope(DEFAULT)])
def test_tokens_that_are_given_back_wake_others(engine: Engine, store: Store, scope: str) -> None:
    store.save_limit(Limit(scope=scope, rate=1, per_ms=DAY, burst=4))
    first = started(store, cost=4)
    waiting = [put(store), put(store)]
    assert store.settle_and_claim(W2, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs == ()

    with listening(engine) as notified:
        done = store.settle_and_claim(
            W1, [ended(first, Completed(b"1", cost=0))], [QueueClaim(DEFAULT, 1)], room=1
        )
        assert notified.acquire(timeout=DEADLINE), "no worker is told that there are tokens again"

    assert [*(job.id for job in done.jobs), start(store, W2).id] == waiting


def test_a_job_that_is_ended_by_one_who_knows_no_limits_frees_its_place(
    store: Store, other_store: Store
) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    first = started(store, limit_keys={"tenant": "a"})
    waiting = put(store, limit_keys={"tenant": "a"})
    assert store.settle_and_claim(W2, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs == ()

    other_store.settle_and_claim(W1, [ended(first, Discarded(BOOM))])

    assert start(store, W2).id == waiting
