"""Staggered queues: of jobs that come due together only some become pending at a time."""

from __future__ import annotations

import pytest

from forebay.domain.job import QueueName
from forebay.domain.outcome import Failed
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import BOOM, DEFAULT, HOUR, MAIL, SECOND, W1, W2, put_many, settle
from tests.stores.support import claim


def pending(reader: Reader, queue: QueueName = DEFAULT) -> int:
    return reader.counts([queue])[queue].pending


@pytest.mark.shows("R-SCHED-04", "R-CFG-32")
def test_jobs_that_come_due_together_are_released_a_few_at_a_time(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"promote_per_second": 100})
    put_many(store, 60, delay_ms=SECOND)
    put_many(store, 30, delay_ms=SECOND, queue=MAIL)
    clock.advance(SECOND)

    store.promote()
    first = pending(reader), pending(reader, MAIL)
    store.promote()
    clock.advance(99)
    store.promote()
    too_early = pending(reader)
    clock.advance(1)
    store.promote()

    assert (first, too_early, pending(reader)) == ((10, 30), 10, 20)


@pytest.mark.shows("R-SCHED-04")
def test_claims_release_no_more_and_say_when_to_ask_again(store: Store, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"promote_per_second": 20})
    put_many(store, 5, delay_ms=SECOND)
    clock.advance(SECOND)

    answers = []
    for worker in (W1, W2, W1):
        answers.append(store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, 50)], room=50))
        clock.advance(50)

    assert [len(answer.jobs) for answer in answers] == [2, 0, 2]
    assert [answer.next_due_ms for answer in answers] == [100, 50, 100]


def test_a_fairness_key_may_be_called_like_the_setting(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"fairness_weights": {"promote_per_second": 5}})
    put_many(store, 6, delay_ms=SECOND)
    clock.advance(SECOND)

    jobs = claim(store, 3)
    store.promote()

    assert (len(jobs), pending(reader)) == (3, 3)


@pytest.mark.shows("R-RETRY-29")
def test_retries_after_an_outage_are_released_gradually(store: Store, clock: ManualClock) -> None:
    put_many(store, 30)
    for job in claim(store, 30):
        settle(store, job, Failed(BOOM, SECOND))
    store.save_queue(DEFAULT, {"promote_per_second": 10})
    clock.advance(HOUR)

    had = []
    for _ in range(4):
        had.append(len(claim(store, 50)))
        clock.advance(100)

    assert had == [1, 1, 1, 1]


def test_a_queue_that_is_staggered_no_more_releases_the_rest_at_once(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"promote_per_second": 1})
    put_many(store, 5, delay_ms=SECOND)
    clock.advance(SECOND)
    store.promote()

    store.save_queue(DEFAULT, {"promote_per_second": None})

    assert len(claim(store, 9)) == 5


def test_jobs_that_are_due_at_once_do_not_wait(store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT, {"promote_per_second": 1})

    put_many(store, 5)

    assert pending(reader) == 5


def test_a_staggered_queue_that_is_long_behind_is_no_problem(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"promote_per_second": 1})
    put_many(store, 3, delay_ms=SECOND)
    clock.advance(HOUR)
    store.acquire_maintenance("promote", SECOND)
    store.promote()

    assert reader.health().problems == ()
