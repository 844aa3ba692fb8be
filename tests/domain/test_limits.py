"""Limits: what they take, and buckets that are never wrong by a part of a token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.concurrency_and_rate_limits import (
    GLOBAL,
    MAX_LIMIT,
    Bucket,
    Limit,
    limit_scope,
    narrow_scopes,
    queue_scope,
    scopes_of,
    usage_of,
)
from forebay.domain.job import DAY_MS, MAX_COST, QueueName
from forebay.errors import ConfigError

LIMITS = st.builds(
    Limit,
    scope=st.just(GLOBAL),
    rate=st.integers(1, MAX_LIMIT),
    per_ms=st.integers(1, DAY_MS),
    burst=st.none() | st.integers(1, MAX_LIMIT),
)
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"scope": "mail", "rate": 1}, "'mail' is no scope"),
        ({"scope": 7, "rate": 1}, "7 is no scope"),
        ({"scope": "queue:", "rate": 1}, "the scope of a limit: '' cannot name a queue"),
        ({"scope": "queue:a b", "rate": 1}, "the scope of a limit: 'a b' cannot name a queue"),
        ({"scope": GLOBAL}, "the limit of global needs a concurrency or a rate"),
        ({"scope": GLOBAL, "concurrency": 0}, "concurrency must be a whole number from 1"),
        ({"scope": GLOBAL, "concurrency": True}, "concurrency must be a whole number from 1"),
        ({"scope": GLOBAL, "rate": 1_000_001}, "rate must be a whole number from 1 to 1000000"),
        ({"scope": GLOBAL, "rate": 1, "burst": 0}, "burst must be a whole number"),
        ({"scope": GLOBAL, "rate": 1, "per_ms": 0}, "per_ms must be a whole number"),
        ({"scope": GLOBAL, "concurrency": 1, "burst": 2}, "burst and per_ms go with a rate"),
        ({"scope": GLOBAL, "concurrency": 1, "per_ms": 2}, "burst and per_ms go with a rate"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Limit(**values)


def test_a_scope_is_for_all_or_for_a_queue() -> None:
    assert Limit(scope=GLOBAL, rate=1).queue is None
    assert Limit(scope=queue_scope("mail"), rate=1).queue == QueueName("mail")
    assert scopes_of("mail") == ("global", "queue:mail")


@pytest.mark.shows("R-RATE-08", "R-CFG-28")
def test_a_burst_starts_at_once_and_the_rest_by_and_by() -> None:
    limit = Limit(scope=GLOBAL, rate=10)
    bucket = limit.full_bucket(NOW)

    assert limit.tokens(bucket, NOW) == 20
    bucket = limit.spend(bucket, 20, NOW)

    assert (limit.tokens(bucket, NOW), limit.wait_ms(bucket, NOW)) == (0, 100)
    assert [limit.tokens(bucket, NOW + ms) for ms in (99, 100, 199, 200, 2_000, 9_000)] == [
        0,
        1,
        1,
        2,
        20,
        20,
    ]
    assert limit.wait_ms(bucket, NOW + 150) == 0


@pytest.mark.shows("R-RATE-10")
def test_time_that_runs_backwards_gives_nothing_and_counts_from_there() -> None:
    limit = Limit(scope=GLOBAL, rate=10)
    bucket = limit.spend(limit.full_bucket(NOW), 20, NOW)

    back = limit.refill(bucket, NOW - 60_000)

    assert back == Bucket(0, NOW - 60_000)
    assert limit.tokens(back, NOW - 59_900) == 1


def test_tokens_that_are_given_back_never_overflow() -> None:
    limit = Limit(scope=GLOBAL, rate=1, burst=2)

    assert limit.spend(Bucket(0, NOW), -1, NOW) == Bucket(1_000, NOW)
    assert limit.spend(limit.full_bucket(NOW), -5, NOW) == limit.full_bucket(NOW)


@given(LIMITS, st.lists(st.tuples(st.integers(0, DAY_MS), st.integers(-MAX_COST, MAX_COST)), max_size=20))
def test_a_bucket_owes_and_holds_at_most_its_burst(limit: Limit, steps: list[tuple[int, int]]) -> None:
    bucket, now, most = limit.full_bucket(NOW), NOW, limit.burst_size * limit.per_ms
    for passed, tokens in steps:
        now += passed
        bucket = limit.spend(bucket, tokens, now)
        assert -most <= bucket.token_parts <= most


def test_a_refund_gives_back_no_more_than_the_start_took() -> None:
    limit = Limit(scope=GLOBAL, rate=1, burst=3)
    owing = limit.spend(Bucket(1_000, NOW), MAX_COST, NOW)

    assert owing == Bucket(-3_000, NOW)
    assert limit.spend(owing, -MAX_COST, NOW) == Bucket(0, NOW)


def test_a_debt_of_a_higher_limit_is_cut() -> None:
    assert Limit(scope=GLOBAL, rate=1, burst=3).refill(Bucket(-90_000, NOW), NOW + 1) == Bucket(
        -2_999, NOW + 1
    )


@given(LIMITS, st.lists(st.tuples(st.integers(0, DAY_MS), st.integers(0, 2 * MAX_LIMIT)), max_size=20))
def test_no_sequence_of_starts_exceeds_a_rate(limit: Limit, steps: list[tuple[int, int]]) -> None:
    bucket, now, started = limit.full_bucket(NOW), NOW, 0
    for passed, wanted in steps:
        now += passed
        taken = min(wanted, limit.tokens(bucket, now))
        bucket = limit.spend(bucket, taken, now)
        started += taken
        assert 0 <= bucket.token_parts <= limit.burst_size * limit.per_ms
        assert started <= limit.burst_size + (now - NOW) * (limit.rate or 0) // limit.per_ms
        assert bucket.token_parts < 2**53


@given(LIMITS, st.integers(0, 10**14))
def test_a_wait_is_long_enough_and_no_longer(limit: Limit, parts: int) -> None:
    bucket = Bucket(min(parts, limit.burst_size * limit.per_ms), NOW)
    wait = limit.wait_ms(bucket, NOW)

    assert limit.tokens(bucket, NOW + wait) >= 1
    assert wait == 0 or limit.tokens(bucket, NOW + wait - 1) == 0


@given(LIMITS, LIMITS, st.integers(0, 10**14))
def test_a_change_gives_no_tokens(old: Limit, new: Limit, parts: int) -> None:
    bucket = Bucket(min(parts, old.burst_size * old.per_ms), NOW)

    assert new.tokens(new.convert_bucket(old, bucket, NOW), NOW) <= old.tokens(bucket, NOW)


def test_a_rate_that_is_new_begins_full() -> None:
    limit = Limit(scope=GLOBAL, rate=3)
    other = Limit(scope=GLOBAL, concurrency=3)

    assert limit.convert_bucket(None, Bucket(0, 0), NOW) == limit.full_bucket(NOW)
    assert limit.convert_bucket(other, other.full_bucket(NOW), NOW) == limit.full_bucket(NOW)


def test_a_job_counts_for_its_task_and_for_each_of_its_keys() -> None:
    found = list(narrow_scopes("send", {"tenant": "a:b", "host": "x"}))

    assert found == [("task:send", "task:send"), ("key:host", "key:host:x"), ("key:tenant", "key:tenant:a:b")]
    assert [limit_scope(scope) for _, scope in found] == [of for of, _ in found]


@pytest.mark.parametrize(
    ("scope", "is_narrow"), [(GLOBAL, False), ("queue:a", False), ("task:a", True), ("key:a", True)]
)
def test_limits_of_tasks_and_keys_are_for_some_jobs_of_a_queue(scope: str, is_narrow: bool) -> None:
    assert Limit(scope=scope, rate=1).is_narrow is is_narrow


def test_a_limit_by_key_says_which_kind_of_key() -> None:
    assert Limit(scope="key:tenant", concurrency=1).kind == "tenant"
    assert Limit(scope="task:send", concurrency=1).kind is None


@pytest.mark.parametrize(
    ("limit", "running", "is_busy"),
    [
        (Limit(scope=GLOBAL, concurrency=2), 1, False),
        (Limit(scope=GLOBAL, concurrency=2), 2, True),
        (Limit(scope=GLOBAL, rate=2), 9, False),
        (Limit(scope="key:tenant", concurrency=2), 9, False),
    ],
)
def test_a_limit_is_busy_while_as_many_run_as_may(limit: Limit, running: int, is_busy: bool) -> None:
    assert usage_of(limit, limit.full_bucket(0), running, 0).is_at_limit is is_busy


def test_a_rate_is_spent_until_it_has_a_token_again() -> None:
    limit = Limit(scope=GLOBAL, rate=1, per_ms=1_000, burst=2)
    bucket = limit.spend(limit.full_bucket(0), 2, 0)

    assert [usage_of(limit, bucket, 0, now).tokens for now in (0, 999, 1_000)] == [0, 0, 1]
    assert [usage_of(limit, bucket, 0, now).is_out_of_tokens for now in (0, 1_000)] == [True, False]


def test_of_a_limit_by_key_or_without_a_rate_no_tokens_are_told() -> None:
    for limit in (Limit(scope="key:tenant", rate=1), Limit(scope=GLOBAL, concurrency=1)):
        assert usage_of(limit, limit.full_bucket(0), 0, 0).tokens is None
