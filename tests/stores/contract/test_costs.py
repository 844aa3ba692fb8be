"""Jobs that cost other than one token of the rates they are under, and what is charged afterwards."""

from __future__ import annotations

import pytest

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope, task_scope
from forebay.domain.job import MAX_COST, WorkerId
from forebay.domain.outcome import Completed, Discarded, Failed, Interrupted, Lost, Outcome, Parked
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    MAIL,
    MINUTE,
    SECOND,
    W1,
    claimed,
    ended,
    look,
    put,
    put_many,
    settle,
    start,
)

HERE = queue_scope(DEFAULT)


def test_a_costly_job_takes_its_cost_and_the_next_waits_until_that_is_earned(
    store: Store, clock: ManualClock
) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=10))
    ids = put_many(store, 5, cost=4)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 5)], room=5)

    assert [job.id for job in answer.jobs] == ids[:3]  # 10, 6, 2, and then it owes 2
    assert [job.cost for job in answer.jobs] == [4, 4, 4]
    assert answer.next_due_ms == 3 * SECOND
    clock.advance(ms=3 * SECOND - 1)
    assert claimed(store, 5) == []
    clock.advance(ms=1)
    assert claimed(store, 5) == ids[3:4]


@pytest.mark.parametrize("scope", [GLOBAL, HERE, task_scope("t"), key_scope("tenant")])
def test_a_bucket_owes_at_most_its_burst_after_a_start(store: Store, clock: ManualClock, scope: str) -> None:
    store.save_limit(Limit(scope=scope, rate=1, burst=3))
    costly = put(store, task="t", cost=MAX_COST, limit_keys={"tenant": "a"})
    plain = put(store, task="t", limit_keys={"tenant": "a"})

    assert claimed(store, 5) == [costly]  # and then it owes 3
    clock.advance(ms=4 * SECOND - 1)
    assert claimed(store, 5) == []
    clock.advance(ms=1)
    assert claimed(store, 5) == [plain]


@pytest.mark.parametrize("scope", [GLOBAL, HERE, task_scope("t"), key_scope("tenant")])
def test_a_bucket_owes_at_most_its_burst_after_a_charge(store: Store, clock: ManualClock, scope: str) -> None:
    store.save_limit(Limit(scope=scope, rate=1, burst=3))
    put(store, task="t", limit_keys={"tenant": "a"})
    settle(store, start(store), Completed(cost=MAX_COST))
    plain = put(store, task="t", limit_keys={"tenant": "a"})

    clock.advance(ms=4 * SECOND - 1)
    assert claimed(store, 5) == []
    clock.advance(ms=1)
    assert claimed(store, 5) == [plain]


def test_a_debt_is_cut_with_the_burst_of_its_limit(store: Store, clock: ManualClock) -> None:
    for scope in (HERE, key_scope("tenant")):
        store.save_limit(Limit(scope=scope, rate=1, burst=100))
    put(store, cost=150, limit_keys={"tenant": "a"})
    start(store)  # and then it owes 50
    plain = put(store, limit_keys={"tenant": "a"})
    for scope in (HERE, key_scope("tenant")):
        store.save_limit(Limit(scope=scope, rate=1, burst=2))

    clock.advance(ms=3 * SECOND - 1)
    assert claimed(store, 5) == []
    clock.advance(ms=1)
    assert claimed(store, 5) == [plain]


def test_a_refund_is_at_most_a_burst(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=3))
    put(store, cost=MAX_COST)
    settle(store, start(store), Completed(cost=0))  # it owed 3, and got back 3
    plain = put(store)

    assert claimed(store, 5) == []
    clock.advance(ms=SECOND)
    assert claimed(store, 5) == [plain]


def test_plain_jobs_behind_a_costly_one_start_as_far_as_it_leaves_tokens(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=10))
    costly = put(store, cost=8)
    plain = put_many(store, 9)

    assert claimed(store, 10) == [costly, *plain[:2]]
    assert claimed(store, 10) == []


def test_jobs_that_cost_nothing_take_nothing(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=4))
    free = put_many(store, 4, cost=0)
    plain = put_many(store, 5)

    assert claimed(store, 4) == free
    assert claimed(store, 9) == plain[:4]


def test_costs_count_under_a_global_rate_together(store: Store) -> None:
    store.save_limit(Limit(scope=GLOBAL, rate=1, burst=10))
    put_many(store, 2, cost=4)
    put_many(store, 5, queue=MAIL, cost=2)

    first = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 5), QueueClaim(MAIL, 5)], room=10)

    assert [job.cost for job in first.jobs] == [4, 4, 2]


def test_costs_count_for_each_value_of_a_key(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), rate=1, burst=5))
    costly = put_many(store, 3, cost=5, limit_keys={"tenant": "a"})
    cheap = put_many(store, 2, limit_keys={"tenant": "b"})

    assert sorted(claimed(store, 10)) == sorted([costly[0], *cheap])
    clock.advance(ms=SECOND)
    assert claimed(store, 10) == [costly[1]]
    clock.advance(ms=4 * SECOND)
    assert claimed(store, 10) == []
    clock.advance(ms=SECOND)
    assert claimed(store, 10) == [costly[2]]


@pytest.mark.parametrize(
    "outcome", [Completed(cost=7), Failed(BOOM, MINUTE, cost=7), Discarded(BOOM, cost=7)], ids=str
)
def test_what_an_attempt_has_cost_beyond_its_cost_is_charged_at_its_end(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    for scope in (HERE, key_scope("tenant")):
        store.save_limit(Limit(scope=scope, rate=1, burst=4))
    put(store, cost=2, limit_keys={"tenant": "a"})
    settle(store, start(store), outcome)  # 4, 2, and then it owes 3
    other = put(store)
    same = put(store, limit_keys={"tenant": "a"})

    assert claimed(store, 5) == []
    clock.advance(ms=4 * SECOND)
    assert claimed(store, 5) == [other]
    clock.advance(ms=SECOND)
    assert claimed(store, 5) == [same]


def test_what_an_attempt_has_not_cost_is_given_back_but_no_more_than_there_is_room_for(
    store: Store, clock: ManualClock
) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=4))
    ids = put_many(store, 6, cost=4)

    settle(store, start(store), Completed(cost=1))  # 3 are left
    settle(store, start(store), Completed(cost=0))  # it owes 1, and then 3 are left
    clock.advance(ms=MINUTE)
    settle(store, start(store), Completed(cost=0))

    assert claimed(store, 6) == ids[3:4]


@pytest.mark.parametrize(
    "outcome", [Interrupted(started=False), Lost("gone", started=False), Parked("payload:9")], ids=str
)
def test_a_job_that_is_handed_back_unstarted_gives_its_tokens_back(store: Store, outcome: Outcome) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=3))
    store.save_limit(Limit(scope=key_scope("tenant"), rate=1, burst=3))
    put(store, cost=3, limit_keys={"tenant": "a"})

    settle(store, start(store), outcome)
    others = put_many(store, 3, queue=MAIL, limit_keys={"tenant": "a"})

    assert claimed(store, 5, queue=MAIL) == others


def test_a_refused_settlement_charges_nothing(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=3))
    put(store)
    job = start(store)

    settle(store, job, Completed(cost=100), WorkerId("w2"))
    more = put_many(store, 2)

    assert claimed(store, 5) == more
    assert look(reader, job.id).state == "running"


def test_a_settlement_of_an_earlier_attempt_charges_nothing_next_to_that_of_the_last(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=4))
    put(store)
    early = start(store)
    settle(store, early, Interrupted())
    last = start(store)

    answer = store.settle_and_claim(W1, [ended(early, Completed(cost=100)), ended(last, Completed())])
    more = put_many(store, 3)

    assert answer.settled == (last.id,)
    assert claimed(store, 5) == more[:2]


def test_a_queue_without_limits_asks_for_nothing(store: Store) -> None:
    put(store, cost=100)
    settle(store, start(store), Completed(cost=7))
    put(store, cost=0)

    assert start(store).cost == 0
