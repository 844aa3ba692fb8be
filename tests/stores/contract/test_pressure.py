"""Back-pressure: a queue takes no more new jobs a second than its rates allow, and says when to ask again."""

from __future__ import annotations

import pytest

from forebay.domain.job import Dependency
from forebay.domain.outcome import Completed
from forebay.domain.queue_counts import Counts
from forebay.domain.throughput import THROUGHPUT_JOBS, Throughput
from forebay.errors import QueueFull, RateLimited
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    SECOND,
    T0,
    W1,
    counts_of,
    ended,
    put,
    put_many,
    settle,
    started,
    together,
)
from tests.stores.support import new_job


def work_off(store: Store, n: int) -> None:
    """Complete so many pending jobs of the mail queue."""
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(MAIL, n)], room=n).jobs
    store.settle_and_claim(W1, [ended(job, Completed(b"1")) for job in jobs])


def refused(store: Store, n: int = 1, **changes: object) -> RateLimited:
    """What is said about n jobs that come together."""
    with pytest.raises(RateLimited) as caught:
        store.insert([new_job(queue=MAIL, **changes)] * n)
    return caught.value


@pytest.mark.shows("R-RATE-01", "R-RATE-10")
def test_a_queue_takes_a_burst_and_then_as_many_a_second_as_its_rate(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 4, "enqueue_burst": 3})
    put_many(store, 2, queue=MAIL)
    put(other_store, queue=MAIL)

    error = refused(store)
    clock.advance(ms=249)
    refused(other_store)
    clock.advance(ms=1)
    put(other_store, queue=MAIL)

    assert (error.queue, error.client, error.limit, error.retry_after) == (MAIL, None, 4, 0.25)
    assert refused(store).retry_after == 0.25
    assert counts_of(reader, MAIL) == Counts(pending=4)


@pytest.mark.shows("R-RATE-02")
def test_each_client_has_a_bucket_of_its_own_with_a_burst_of_twice_its_rate(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(MAIL, {"client_rate": 2})
    put_many(store, 4, queue=MAIL, client="web")

    error = refused(store, client="web")
    put_many(store, 4, queue=MAIL, client="shop")
    put_many(store, 4, queue=MAIL)
    unnamed = refused(store)
    clock.advance(ms=500)
    put(store, queue=MAIL, client="web")

    assert (error.client, error.limit, error.retry_after) == ("web", 2, 0.5)
    assert (unnamed.client, unnamed.retry_after) == ("", 0.5)
    assert counts_of(reader, MAIL) == Counts(pending=13)


def test_a_job_has_to_fit_under_the_rate_of_its_queue_and_that_of_its_client(store: Store) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 3, "enqueue_burst": 3, "client_rate": 1, "client_burst": 2})
    put_many(store, 2, queue=MAIL, client="web")

    theirs = refused(store, client="web")
    put(store, queue=MAIL, client="shop")
    shared = refused(store, client="shop")

    assert (theirs.client, shared.client) == ("web", None)


def test_a_whole_batch_takes_all_its_tokens_or_none(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 10, "enqueue_burst": 5})
    put_many(store, 3, queue=MAIL)

    error = refused(store, 4)
    put_many(store, 2, queue=MAIL)
    clock.advance(ms=400)
    put_many(store, 4, queue=MAIL)

    assert error.retry_after == 0.2
    assert counts_of(reader, MAIL) == Counts(pending=9)


def test_a_batch_that_never_fits_is_told_so(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 10, "enqueue_burst": 5})

    error = refused(store, 6)

    assert error.retry_after is None
    assert "ask for fewer" in str(error)
    assert counts_of(reader, MAIL) == Counts()


def test_jobs_of_a_batch_that_do_not_run_now_want_no_room(store: Store, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"max_length": 2})
    put_many(store, 2, queue=MAIL)
    work_off(store, 2)
    parent = put(store)
    put_many(store, 2, queue=MAIL)

    later = [new_job(queue=MAIL, delay_ms=HOUR), new_job(queue=MAIL, depends_on=(Dependency(parent),))]

    with pytest.raises(QueueFull) as caught:
        store.insert([*later, new_job(queue=MAIL)])

    assert caught.value.retry_after == 30


def test_a_batch_in_parts_is_taken_as_far_as_it_fits(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 10, "enqueue_burst": 2})

    receipts = store.insert([new_job(queue=MAIL), new_job(), *[new_job(queue=MAIL)] * 3], atomic=False)

    assert [receipt.is_new for receipt in receipts] == [True, True, True, False, False]
    assert [getattr(receipt.error, "retry_after", None) for receipt in receipts[3:]] == [0.1, 0.1]
    assert counts_of(reader, MAIL) == Counts(pending=2)


def test_jobs_that_wait_for_a_time_or_for_others_take_tokens_too(store: Store) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 2})
    parent = put(store)
    put(store, queue=MAIL, delay_ms=HOUR)
    put(store, queue=MAIL, depends_on=(Dependency(parent),))

    assert refused(store, delay_ms=HOUR).retry_after == 1
    assert refused(store, depends_on=(Dependency(parent),)).retry_after == 1


def test_a_job_that_is_not_stored_takes_no_token(store: Store) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 2, "max_length": 1})
    put(store, queue=MAIL, unique_key="k")
    [receipt] = store.insert([new_job(queue=MAIL, unique_key="k")])
    with pytest.raises(QueueFull):
        put(store, queue=MAIL)

    put(store, queue=MAIL, delay_ms=HOUR)

    assert not receipt.is_new
    assert refused(store, delay_ms=HOUR).retry_after == 1


def test_what_a_task_hands_back_is_accepted_at_any_rate(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 1})
    put(store, queue=MAIL)
    job = started(store)

    settle(store, job, Completed(b"1"), follow_ups=(new_job(queue=MAIL),) * 3)

    assert counts_of(reader, MAIL) == Counts(pending=4)


def test_a_changed_rate_gives_no_second_burst(store: Store, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 2})
    put_many(store, 2, queue=MAIL)

    store.save_queue(MAIL, {"enqueue_rate": 10, "enqueue_burst": 20})
    error = refused(store)
    clock.advance(ms=100)
    put(store, queue=MAIL)
    store.save_queue(MAIL, {"enqueue_rate": None})

    assert error.retry_after == 0.1
    assert len(put_many(store, 50, queue=MAIL)) == 50


def test_a_clock_that_is_set_back_gives_no_tokens_and_delays_no_job_for_long(
    store: Store, clock: ManualClock
) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 2})
    put_many(store, 2, queue=MAIL)

    clock.set(T0 - SECOND)
    error = refused(store)
    clock.advance(ms=SECOND)
    again = refused(store)
    clock.set(T0 - HOUR)
    put_many(store, 2, queue=MAIL)

    assert (error.retry_after, again.retry_after) == (1, 1)
    assert refused(store).retry_after == 1


@pytest.mark.shows("R-RATE-09", "R-EDGE-84")
def test_a_bucket_that_is_pruned_is_a_full_one(store: Store, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"client_rate": 1, "client_burst": 9})
    put_many(store, 9, queue=MAIL, client="web")
    clock.advance(ms=8 * SECOND)
    store.prune()
    early = refused(store, 9, client="web")

    clock.advance(ms=3 * HOUR)
    store.prune()

    assert early.retry_after == 1
    assert len(put_many(store, 9, queue=MAIL, client="web")) == 9


@pytest.mark.shows("R-RATE-07")
def test_two_who_enqueue_at_once_share_one_bucket(engine: Engine, store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 10})

    def fill(mine: Store) -> int:
        receipts = [mine.insert([new_job(queue=MAIL)], atomic=False)[0] for _ in range(8)]
        return sum(receipt.is_new for receipt in receipts)

    accepted = together(engine, [fill, fill])

    assert sum(accepted) == 10
    assert counts_of(reader, MAIL) == Counts(pending=10)


def test_queues_without_rates_are_left_alone(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"enqueue_rate": 1, "enqueue_burst": 1})
    put(store, queue=MAIL)

    put_many(store, 30, client="web")

    assert counts_of(reader, DEFAULT) == Counts(pending=30)


# How long it takes


def test_a_full_queue_says_when_its_throughput_promises_room(store: Store, clock: ManualClock) -> None:
    store.save_queue(MAIL, {"max_length": 6})
    put_many(store, 6, queue=MAIL)
    work_off(store, 4)
    clock.advance(ms=10 * SECOND)
    put_many(store, 4, queue=MAIL)

    with pytest.raises(QueueFull) as one:
        put(store, queue=MAIL)
    with pytest.raises(QueueFull) as three:
        put_many(store, 3, queue=MAIL)
    with pytest.raises(QueueFull) as seven:
        put_many(store, 7, queue=MAIL)

    assert (one.value.retry_after, three.value.retry_after) == (15, 45)
    assert seven.value.retry_after is None


def test_without_a_completed_job_the_time_until_there_is_room_is_unknown(
    store: Store, clock: ManualClock
) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put(store, queue=MAIL)
    work_off(store, 1)
    put(store, queue=MAIL)
    clock.advance(ms=MINUTE)

    with pytest.raises(QueueFull) as caught:
        put(store, queue=MAIL)

    assert caught.value.retry_after is None


def test_the_throughput_of_a_queue_is_that_of_its_last_minute(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put_many(store, 5, queue=MAIL)
    work_off(store, 2)
    clock.advance(ms=30 * SECOND)
    work_off(store, 1)

    now = reader.throughputs([MAIL, DEFAULT])
    clock.advance(ms=30 * SECOND)
    later = reader.throughputs([MAIL])

    assert now == {MAIL: Throughput(3, MINUTE), DEFAULT: Throughput(0, MINUTE)}
    assert later == {MAIL: Throughput(1, MINUTE)}
    assert reader.throughputs([]) == {}


def test_the_throughput_of_a_quick_queue_is_seen_by_the_time_of_a_thousand_jobs(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put_many(store, THROUGHPUT_JOBS, queue=MAIL)
    work_off(store, THROUGHPUT_JOBS)
    clock.advance(ms=6 * SECOND)

    throughput = reader.throughputs([MAIL])[MAIL]

    # An engine that counts a whole minute at no cost may do so.
    assert throughput in (Throughput(THROUGHPUT_JOBS, 6 * SECOND), Throughput(THROUGHPUT_JOBS, MINUTE))
