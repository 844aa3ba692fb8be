"""Limits: never more leases than a concurrency allows, never more starts than a rate does, whichever worker
claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope, task_scope
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed, Failed, Lost
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    SECOND,
    SWEEPER,
    T0,
    W1,
    W2,
    claimed,
    counts_of,
    ended,
    lease,
    look,
    put,
    put_many,
    settle,
    start,
    states,
    together,
)

HERE = queue_scope(DEFAULT)


def both(n: int) -> list[QueueClaim]:
    return [QueueClaim(MAIL, n), QueueClaim(DEFAULT, n)]


def took(store: Store, n: int, worker: WorkerId = W1) -> list[Job]:
    return list(store.settle_and_claim(worker, claims=both(n), room=n).jobs)


@pytest.mark.shows("R-CONC-01", "R-CONC-08", "R-CONC-10", "R-CFG-70")
def test_the_global_limit_bounds_the_jobs_of_all_queues(store: Store, other_store: Store) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=3))
    put_many(store, 5)
    put_many(store, 5, queue=MAIL)

    first = took(store, 2)
    rest = took(other_store, 10, W2)

    assert (len(first), len(rest)) == (2, 1)
    assert took(store, 10) == []


@pytest.mark.shows("R-CONC-05", "R-QUEUE-13", "R-LEASE-12")
def test_the_limit_of_a_queue_leaves_other_queues_alone(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=2))
    put_many(store, 5)
    put_many(store, 5, queue=MAIL)

    jobs = took(store, 20)

    assert sorted(job.queue for job in jobs) == [DEFAULT] * 2 + [MAIL] * 5


def test_a_claim_that_settles_takes_the_places_it_frees(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=3))
    put_many(store, 10)
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 10)], room=10).jobs

    answer = store.settle_and_claim(
        W1, [ended(job, Completed(b"1")) for job in jobs[:2]], [QueueClaim(DEFAULT, 10)], room=10
    )

    assert (len(jobs), len(answer.jobs)) == (3, 2)


def test_a_retry_frees_its_place(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=1))
    put_many(store, 2)
    settle(store, start(store), Failed(BOOM, HOUR))

    assert len(claimed(store, 5)) == 1


@pytest.mark.shows("R-CONC-02", "R-CONC-07", "R-SWEEP-26")
def test_a_lease_that_has_ended_does_not_count(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=1))
    store.save_limit(Limit(scope=GLOBAL, concurrency=1))
    put_many(store, 3)
    start(store, W1)
    assert claimed(store, 1, W2) == []

    clock.advance(ms=30 * SECOND)

    assert len(claimed(store, 2, W2)) == 1
    [swept] = store.sweep(SWEEPER)
    assert settle(store, swept, Lost("it died"), SWEEPER).settled == (swept.id,)
    assert claimed(store, 1) == []


@pytest.mark.shows("R-CONC-02")
def test_a_renewed_lease_counts(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=1))
    put_many(store, 2)
    job = start(store, W1)
    clock.advance(ms=20 * SECOND)
    store.renew(W1, [lease(job)])

    clock.advance(ms=20 * SECOND)

    assert claimed(store, 1, W2) == []


def test_a_job_that_is_ended_by_force_frees_its_place(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=1))
    put_many(store, 2)

    store.cancel([start(store).id], force=True)

    assert len(claimed(store, 1)) == 1


def test_a_job_that_is_ended_by_force_opens_the_lane_to_its_place(store: Store, other_store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    ids = put_many(store, 2, limit_keys={"tenant": "a"})
    running = start(store)
    assert claimed(store, 1, W2) == []

    other_store.cancel([running.id], force=True)

    assert claimed(store, 1, W2) == ids[1:]


@pytest.mark.shows("R-RATE-06", "R-RATE-07", "R-RATE-08", "R-TEST-58", "R-BUG-30", "R-WORK-24")
def test_a_rate_lets_its_burst_start_at_once_and_the_rest_by_and_by(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=HERE, rate=10, burst=20))
    put_many(store, 30)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 30)], room=30)
    assert (len(answer.jobs), answer.next_due_ms) == (20, 100)

    clock.advance(ms=99)
    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 10)], room=10)
    assert (len(answer.jobs), answer.next_due_ms) == (0, 1)

    starts: list[int] = []
    for _ in range(10):
        clock.advance(ms=1 if not starts else 100)
        starts.append(len(claimed(store, 10)))
    assert starts == [1] * 10


@pytest.mark.shows("R-CFG-28")
def test_a_burst_is_twice_the_rate_by_default(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=GLOBAL, rate=3, per_ms=MINUTE))
    put_many(store, 30)

    assert len(claimed(store, 30)) == 6
    clock.advance(ms=MINUTE)
    assert len(claimed(store, 30)) == 3
    clock.advance(ms=HOUR)
    assert len(claimed(store, 30)) == 6


def test_jobs_that_are_not_there_take_no_tokens(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, rate=1, burst=3))
    put_many(store, 1)

    assert len(claimed(store, 10)) == 1
    put_many(store, 5)
    assert len(claimed(store, 10)) == 2


@pytest.mark.shows("R-RATE-10")
def test_a_clock_that_is_set_back_gives_no_tokens_and_takes_none(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=HERE, rate=10, burst=10))
    put_many(store, 30)
    assert len(claimed(store, 30)) == 10

    clock.set(T0 - MINUTE)
    assert claimed(store, 30) == []
    clock.advance(ms=100)
    assert len(claimed(store, 30)) == 1


def test_all_limits_hold_together(store: Store) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=4, rate=1, burst=6))
    store.save_limit(Limit(scope=HERE, concurrency=9, rate=2, burst=3))
    put_many(store, 10)
    put_many(store, 10, queue=MAIL)

    first = claimed(store, 10)
    second = claimed(store, 10, queue=MAIL)

    assert (len(first), len(second)) == (3, 1)


@pytest.mark.shows("R-CONC-10")
def test_a_job_under_two_keys_counts_with_those_of_one_that_start_in_the_same_claim(store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=2))
    store.save_limit(Limit(scope=key_scope("host"), concurrency=9))
    first = put(store, limit_keys={"tenant": "a"})
    second, third = (put(store, limit_keys={"tenant": "a", "host": "h"}) for _ in range(2))

    jobs = took(store, 9)
    assert [job.id for job in jobs] == [first, second]
    assert took(store, 9, W2) == []

    settle(store, jobs[0], Completed())
    assert [job.id for job in took(store, 9, W2)] == [third]


@pytest.mark.shows("R-EDGE-54")
def test_a_lowered_limit_stops_nothing_and_holds_new_jobs_back(store: Store, reader: Reader) -> None:
    put_many(store, 10)
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 5)], room=5).jobs

    store.save_limit(Limit(scope=HERE, concurrency=2))

    assert claimed(store, 5) == []
    assert counts_of(reader).running == 5
    store.settle_and_claim(W1, [ended(job, Completed(b"1")) for job in jobs[:4]])
    assert len(claimed(store, 5)) == 1


def test_a_change_is_seen_by_handles_that_are_open(store: Store, other_store: Store) -> None:
    put_many(store, 10)
    assert len(claimed(other_store, 1, W2)) == 1

    store.save_limit(Limit(scope=HERE, concurrency=2))
    assert len(claimed(other_store, 5, W2)) == 1
    store.save_limit(Limit(scope=HERE, concurrency=4))
    assert len(claimed(other_store, 5, W2)) == 2
    store.drop_limit(HERE)
    assert len(claimed(other_store, 5, W2)) == 5


def test_a_changed_rate_gives_no_burst(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, rate=2, burst=2))
    put_many(store, 30)
    assert len(claimed(store, 30)) == 2

    store.save_limit(Limit(scope=HERE, rate=20, per_ms=MINUTE, burst=20))

    assert claimed(store, 30) == []


def test_the_largest_rate_of_a_key_can_be_changed(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), rate=999_999, per_ms=DAY, burst=1_000_000))
    put_many(store, 9, limit_keys={"tenant": "a"})
    assert len(claimed(store, 1)) == 1
    clock.advance(ms=7)

    store.save_limit(Limit(scope=key_scope("tenant"), rate=1_000_000, per_ms=DAY - 1, burst=1_000_000))
    assert len(claimed(store, 1)) == 1
    store.save_limit(Limit(scope=key_scope("tenant"), rate=1, per_ms=DAY, burst=3))

    assert len(claimed(store, 9)) == 3


def test_time_before_a_change_counts_by_the_rate_of_a_key_as_it_was_and_later_time_by_the_new_one(
    store: Store, clock: ManualClock
) -> None:
    tenant = key_scope("tenant")
    store.save_limit(Limit(scope=tenant, rate=1, burst=9))
    put_many(store, 30, limit_keys={"tenant": "a"})
    assert len(claimed(store, 30)) == 9
    clock.advance(ms=3 * SECOND)
    store.save_limit(Limit(scope=tenant, rate=1, per_ms=HOUR, burst=9))
    clock.advance(ms=HOUR)
    store.save_limit(Limit(scope=tenant, rate=1, per_ms=DAY, burst=9))
    clock.advance(ms=HOUR)

    assert len(claimed(store, 30)) == 4


def test_to_save_a_limit_as_it_is_changes_nothing(store: Store, clock: ManualClock) -> None:
    limit = Limit(scope=key_scope("tenant"), rate=1, burst=9)
    store.save_limit(limit)
    put_many(store, 30, limit_keys={"tenant": "a"})
    assert len(claimed(store, 30)) == 9
    clock.advance(ms=5 * SECOND)

    for _ in range(25):
        store.save_limit(limit)

    assert len(claimed(store, 30)) == 5


def test_a_key_whose_limit_gets_a_rate_again_begins_with_a_full_bucket(
    store: Store, clock: ManualClock
) -> None:
    rate = Limit(scope=key_scope("tenant"), rate=1, per_ms=HOUR, burst=2)
    store.save_limit(rate)
    put_many(store, 9, limit_keys={"tenant": "a"})
    assert len(claimed(store, 9)) == 2

    clock.advance(ms=1)
    store.save_limit(Limit(scope=rate.scope, concurrency=3))
    assert len(claimed(store, 9)) == 1
    clock.advance(ms=1)
    store.save_limit(rate)

    assert len(claimed(store, 9)) == 2


def test_a_zero_character_in_metadata_keeps_no_worker_from_claims_under_limits(store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=2))
    put_many(store, 3, limit_keys={"tenant": "a"}, metadata={"a": "x\0y", "\0": 1})
    first = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)
    [job] = store.settle_and_claim(
        W1, [ended(first.jobs[0], Completed())], [QueueClaim(DEFAULT, 1)], room=1
    ).jobs

    answer = store.settle_and_claim(W1, [ended(job, Completed())], [QueueClaim(DEFAULT, 9)], room=9)

    assert answer.settled == (job.id,)
    assert [job.metadata for job in answer.jobs] == [{"a": "x\0y", "\0": 1}]


@pytest.mark.parametrize(("cost", "wait"), [(1, 334), (2, 1_334)])
def test_parts_of_a_token_are_counted_anew_alike_on_every_engine(
    store: Store, clock: ManualClock, cost: int, wait: int
) -> None:
    tenant = key_scope("tenant")
    store.save_limit(Limit(scope=tenant, rate=1, per_ms=3, burst=1))
    put_many(store, 2, limit_keys={"tenant": "a"}, cost=cost)
    assert len(claimed(store, 2)) == 1
    clock.advance(ms=2)

    store.save_limit(Limit(scope=tenant, rate=1, per_ms=1_000, burst=1))

    # Two thirds of a token, or a third of one that is owed, and no more than that.
    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)
    assert (answer.jobs, answer.next_due_ms) == ((), wait)


def test_limits_are_listed_by_scope_and_leave_a_trace(store: Store, reader: Reader) -> None:
    mail = Limit(scope=queue_scope(MAIL), concurrency=1)
    everywhere = Limit(scope=GLOBAL, rate=5, per_ms=MINUTE, burst=7)
    store.save_limit(mail, actor="ann")
    store.save_limit(everywhere, actor="bob")

    assert reader.limits() == [everywhere, mail]
    assert store.drop_limit(GLOBAL, actor="cid")
    assert not store.drop_limit(GLOBAL)
    assert reader.limits() == [mail]
    reported = [
        (event.actor, event.detail) for _, event in reader.audit() if event.kind is EventKind.LIMIT_CHANGED
    ]
    assert reported == [("cid", "removed global"), ("bob", "saved global"), ("ann", "saved queue:mail")]


@pytest.mark.shows("R-CONC-03")
def test_claims_at_once_do_not_exceed_a_limit_together(engine: Engine, store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=5))
    store.save_limit(Limit(scope=HERE, rate=1, per_ms=HOUR, burst=4))
    put_many(store, 50)
    put_many(store, 50, queue=MAIL)
    workers = [WorkerId(f"w{n}") for n in range(8)]

    taken = together(engine, [partial(took, n=2, worker=worker) for worker in workers])

    jobs = [job for one in taken for job in one]
    assert len(jobs) == 5
    assert sum(job.queue == DEFAULT for job in jobs) <= 4


@pytest.mark.shows("R-CONC-01", "R-CONC-02", "R-RATE-10")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_history_of_claims_exceeds_its_limits(
    store: Store, clock: ManualClock, data: st.DataObject
) -> None:
    queue = QueueName(f"q{next(NUMBERS)}")
    limit = data.draw(
        st.builds(
            Limit,
            scope=st.just(queue_scope(queue)),
            concurrency=st.integers(1, 5),
            rate=st.integers(1, 5),
            per_ms=st.integers(1, 2_000),
            burst=st.integers(1, 6),
        )
    )
    store.save_limit(limit)
    put_many(store, 40, queue=queue)
    starts: list[int] = []
    held: list[Job] = []
    for _ in range(data.draw(st.integers(1, 12))):
        to_end = held[: data.draw(st.integers(0, 3))]
        n = data.draw(st.integers(1, 8))
        answer = store.settle_and_claim(
            W1, [ended(job, Completed(b"1")) for job in to_end], [QueueClaim(queue, n)], room=n
        )
        held = [*held[len(to_end) :], *answer.jobs]
        starts += [job.started_at or 0 for job in answer.jobs]
        assert len(held) <= (limit.concurrency or 0)
        clock.advance(ms=data.draw(st.integers(0, 700)))
    for first, at in enumerate(starts):
        for last in range(first, len(starts)):
            allowed = limit.burst_size + (starts[last] - at) * (limit.rate or 0) // limit.per_ms
            assert last - first + 1 <= allowed
    for job in held:
        settle(store, job, Completed(b"1"))


NUMBERS = count()


def test_a_paused_queue_and_other_states_are_as_they_were(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=1))
    ids = put_many(store, 3)

    job = start(store)

    assert job.id == ids[0]
    assert counts_of(reader).pending == 2
    assert job.state is JobState.RUNNING


# Limits of tasks and of keys


def keyed(store: Store, tenant: str, n: int = 1, **changes: Any) -> list[JobId]:
    return put_many(store, n, limit_keys={"tenant": tenant}, **changes)


def tenants(jobs: Sequence[Job]) -> list[str]:
    return [job.limit_keys["tenant"] for job in jobs]


def taken(store: Store, n: int, worker: WorkerId = W1) -> list[Job]:
    return list(store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, n)], room=n).jobs)


TENANT = key_scope("tenant")


def test_the_limit_of_a_task_holds_up_no_other_task(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope="task:slow", concurrency=2))
    slow = put_many(store, 5, task="slow")
    quick = put_many(store, 3, task="quick")

    jobs = taken(store, 10)

    assert [job.id for job in jobs] == [*slow[:2], *quick]
    assert counts_of(reader).pending == 3
    assert look(reader, slow[2]).lane == "limit:task:slow"
    answer = store.settle_and_claim(W1, [ended(jobs[0], Completed(b"1"))], [QueueClaim(DEFAULT, 5)], room=5)
    assert [job.id for job in answer.jobs] == [slow[2]]


@pytest.mark.shows("R-PRI-33")
def test_each_value_of_a_key_has_a_limit_of_its_own(store: Store) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    keyed(store, "a", 5)
    keyed(store, "b", 5)
    put_many(store, 2)

    jobs = taken(store, 20)

    assert [job.limit_keys.get("tenant") for job in jobs] == ["a", "b", None, None]


def test_keys_are_kept_with_the_job(store: Store, reader: Reader) -> None:
    [job_id] = put_many(store, 1, limit_keys={"tenant": "a", "host": "h:1"})

    assert look(reader, job_id).limit_keys == {"tenant": "a", "host": "h:1"}
    [job] = taken(store, 1)
    assert job.limit_keys == {"tenant": "a", "host": "h:1"}
    settle(store, job, Completed(b"1"))
    assert look(reader, job_id).limit_keys == {"tenant": "a", "host": "h:1"}


def test_what_waits_at_its_limit_comes_back_in_order_with_each_end(store: Store) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    ids = keyed(store, "a", 4)
    late = []
    [job] = taken(store, 9)
    for _ in range(3):
        late += keyed(store, "a")
        [next_job] = store.settle_and_claim(
            W1, [ended(job, Completed(b"1"))], [QueueClaim(DEFAULT, 9)], room=9
        ).jobs
        assert next_job.id == ids[ids.index(job.id) + 1]
        job = next_job
    [next_job] = store.settle_and_claim(
        W1, [ended(job, Completed(b"1"))], [QueueClaim(DEFAULT, 9)], room=9
    ).jobs
    assert next_job.id == late[0]


def test_an_end_in_one_settle_and_claim_is_seen_by_the_next_claim_of_any_worker(
    store: Store, other_store: Store
) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    ids = keyed(store, "a", 3)
    [job] = taken(store, 3)
    assert taken(other_store, 3, W2) == []

    settle(store, job, Failed(BOOM, HOUR))

    assert [one.id for one in taken(other_store, 3, W2)] == [ids[1]]


def test_a_lease_that_ends_opens_the_lane(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    ids = keyed(store, "a", 3)
    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 3)], room=3)
    assert answer.next_due_ms == 30 * SECOND

    clock.advance(ms=30 * SECOND)

    assert [one.id for one in taken(store, 3, W2)] == [ids[1]]


def test_a_rate_by_key_opens_its_lanes_with_the_time(store: Store, clock: ManualClock) -> None:
    store.save_limit(Limit(scope=TENANT, rate=1, burst=2))
    keyed(store, "a", 5)
    keyed(store, "b", 1)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 9)], room=9)
    assert (tenants(answer.jobs), answer.next_due_ms) == (["a", "a", "b"], SECOND)
    clock.advance(ms=SECOND - 1)
    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 9)], room=9)
    assert (tenants(answer.jobs), answer.next_due_ms) == ([], 1)
    clock.advance(ms=1)
    assert tenants(taken(store, 9)) == ["a"]
    clock.advance(ms=2 * SECOND)
    assert tenants(taken(store, 9)) == ["a", "a"]


def test_a_backlog_of_one_key_holds_up_no_other(store: Store) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    keyed(store, "a", 300)
    keyed(store, "b", 1)

    found = [tenant for _ in range(4) for tenant in tenants(taken(store, 5))]

    assert sorted(found) == ["a", "b"]


def test_a_higher_or_dropped_limit_lets_more_in(store: Store) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    keyed(store, "a", 9)
    assert len(taken(store, 9)) == 1

    store.save_limit(Limit(scope=TENANT, concurrency=3))
    assert len(taken(store, 9)) == 2
    store.drop_limit(TENANT)
    assert len(taken(store, 9)) == 6


def test_jobs_at_their_limit_can_be_cancelled_and_updated(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    ids = keyed(store, "a", 4)
    [job] = taken(store, 9)

    store.cancel([ids[1]])
    store.update_job(ids[3], JobUpdate(priority=50))

    assert states(reader, ids) == [
        JobState.RUNNING,
        JobState.CANCELLED,
        JobState.PENDING,
        JobState.PENDING,
    ]
    [next_job] = store.settle_and_claim(
        W1, [ended(job, Completed(b"1"))], [QueueClaim(DEFAULT, 9)], room=9
    ).jobs
    assert next_job.id == ids[3]


def test_limits_by_task_key_and_queue_hold_together(store: Store) -> None:
    store.save_limit(Limit(scope=HERE, concurrency=4))
    store.save_limit(Limit(scope="task:t", concurrency=3))
    store.save_limit(Limit(scope=TENANT, concurrency=2))
    store.save_limit(Limit(scope=key_scope("host"), concurrency=1))
    put_many(store, 3, limit_keys={"tenant": "a", "host": "x"})
    put_many(store, 3, limit_keys={"tenant": "a", "host": "y"})
    put_many(store, 3, limit_keys={"tenant": "a", "host": "z"})
    put_many(store, 3, limit_keys={"tenant": "b"})
    put_many(store, 3, task="u")

    jobs = taken(store, 20)

    assert [(job.task, job.limit_keys) for job in jobs] == [
        ("t", {"tenant": "a", "host": "x"}),
        ("t", {"tenant": "a", "host": "y"}),
        ("t", {"tenant": "b"}),
        ("u", {}),
    ]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    most=st.integers(1, 3),
    values=st.lists(st.sampled_from(["a", "b", "ax", "ay", "by", "cy"]), min_size=1, max_size=20),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), max_size=12),
)
def test_no_history_of_claims_exceeds_limits_by_key_and_none_is_forgotten(
    store: Store, reader: Reader, most: int, values: list[str], steps: list[tuple[int, int]]
) -> None:
    number = next(NUMBERS)
    kinds = [f"a{number}", f"b{number}"]  # each job has a key of the first kind, some have one of the second
    queue, task = QueueName(f"q-{number}"), f"t-{number}"
    store.save_limit(Limit(scope=task_scope(task), concurrency=2 * most))
    for kind in kinds:
        store.save_limit(Limit(scope=key_scope(kind), concurrency=most))
    ids = [
        put(store, queue=queue, task=task, limit_keys=dict(zip(kinds, value, strict=False)))
        for value in values
    ]
    held: list[Job] = []
    for ends, n in [*steps, *[(3, 8)] * 30]:
        settlements = [ended(job, Completed(b"1")) for job in held[:ends]]
        answer = store.settle_and_claim(W1, settlements, [QueueClaim(queue, n)], room=n)
        held = [*held[ends:], *answer.jobs]
        counted = Counter(pair for job in held for pair in job.limit_keys.items())
        assert all(running <= most for running in counted.values())
        assert len(held) <= 2 * most
    assert set(states(reader, ids)) == {JobState.COMPLETED}
    for scope in [task_scope(task), *map(key_scope, kinds)]:
        store.drop_limit(scope)


def test_a_claim_that_looks_further_because_some_are_at_their_limit_keeps_it_there_too(store: Store) -> None:
    store.save_limit(Limit(scope=key_scope("tenant"), concurrency=2))
    ids = [put(store, limit_keys={"tenant": tenant}) for tenant in "aaaaaabcaaaba"]

    assert claimed(store, 8) == [ids[at] for at in (0, 1, 6, 7, 11)]


# When to ask again


def fill(store: Store) -> None:
    store.save_limit(Limit(scope=GLOBAL, concurrency=1))


def pause(store: Store) -> None:
    store.save_queue(DEFAULT, state=QueueState.PAUSED)


def drop(store: Store) -> None:
    store.drop_queue(DEFAULT, force=True)


@pytest.mark.parametrize("close", [fill, pause, drop])
def test_an_open_lane_of_a_queue_that_gives_nothing_keeps_no_worker_busy(
    store: Store, close: Callable[[Store], None]
) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    put_many(store, 1, queue=MAIL)
    keyed(store, "a", 3)
    [job] = taken(store, 3)
    start(store, queue=MAIL)
    settle(store, job, Completed(b"1"))
    close(store)

    answers = [store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 3)], room=3) for _ in range(2)]

    assert [answer.jobs for answer in answers] == [(), ()]
    assert answers[1].next_due_ms != 0


def test_a_claim_that_has_put_enough_aside_asks_to_be_called_again(store: Store) -> None:
    store.save_limit(Limit(scope=TENANT, concurrency=1))
    keyed(store, "a", 350)
    keyed(store, "b")
    assert tenants(taken(store, 1)) == ["a"]

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)
    while not answer.jobs and answer.next_due_ms == 0:
        answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1)

    assert tenants(answer.jobs) == ["b"]
    assert store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).next_due_ms != 0


def test_a_limit_that_is_removed_and_set_again_begins_anew(store: Store, clock: ManualClock) -> None:
    limit = Limit(scope=key_scope("tenant"), rate=1, per_ms=MINUTE, burst=2)
    store.save_limit(limit)
    put_many(store, 2, limit_keys={"tenant": "a"})
    assert len(claimed(store, 5)) == 2

    store.drop_limit(limit.scope)
    clock.advance(ms=1)
    store.save_limit(limit)
    again = put_many(store, 3, limit_keys={"tenant": "a"})

    assert claimed(store, 5) == again[:2]
