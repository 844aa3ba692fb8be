"""Back-pressure: throughputs, and the turnstile through which new jobs come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.backpressure import queue_full_error, time_until_room
from forebay.domain.concurrency_and_rate_limits import Bucket, Limit
from forebay.domain.enqueue_rates import EnqueueRateLimiter, is_rate, rates_of, time_until_tokens
from forebay.domain.job import Dependency, JobId, NewJob, QueueName
from forebay.domain.queue import MAX_RATE, Queue, QueueSettings
from forebay.domain.throughput import THROUGHPUT_JOBS, THROUGHPUT_WINDOW_MS, Throughput, throughput_of
from forebay.errors import ConfigError, RateLimited

NOW = 1_700_000_000_000
MAIL = QueueName("mail")


def queue(**settings: int) -> Queue:
    return Queue(name=MAIL, settings=QueueSettings().with_changes(settings))


def job(client: str | None = None, name: str = "mail") -> NewJob:
    return NewJob(task="t", queue=QueueName(name), client=client)


def turnstile(jobs: Sequence[NewJob] = (), **stored: Bucket) -> EnqueueRateLimiter:
    return EnqueueRateLimiter(
        NOW, {scope.replace("_", ":"): bucket for scope, bucket in stored.items()}.get, jobs
    )


@pytest.mark.parametrize(
    ("jobs", "first_at", "throughput"),
    [
        (0, None, Throughput(0, THROUGHPUT_WINDOW_MS)),
        (7, NOW - 50, Throughput(7, THROUGHPUT_WINDOW_MS)),
        (THROUGHPUT_JOBS, NOW - 2_000, Throughput(THROUGHPUT_JOBS, 2_000)),
        (THROUGHPUT_JOBS, NOW, Throughput(THROUGHPUT_JOBS, 1)),
    ],
)
def test_a_throughput_is_that_of_a_minute_or_of_a_thousand_jobs(
    jobs: int, first_at: int | None, throughput: Throughput
) -> None:
    assert throughput_of(jobs, first_at, NOW) == throughput


def test_a_throughput_says_how_long_jobs_take() -> None:
    assert Throughput(4, THROUGHPUT_WINDOW_MS).wait_ms(6) == 90_000
    assert Throughput(4, THROUGHPUT_WINDOW_MS).wait_ms(0) == 0
    assert Throughput(0, THROUGHPUT_WINDOW_MS).wait_ms(6) is None


def test_a_queue_without_rates_has_none() -> None:
    assert list(rates_of(queue(), "web")) == []
    assert not queue().settings.has_rates


def test_rates_are_of_all_clients_and_of_one() -> None:
    rates = list(rates_of(queue(enqueue_rate=5, client_rate=2, client_burst=3), "web"))

    assert [(rate.scope, rate.client) for rate in rates] == [
        ("enqueue:mail", None),
        ("client:mail:web", "web"),
    ]
    assert [rate.limit.burst_size for rate in rates] == [10, 3]
    assert all(is_rate(rate.scope) for rate in rates)
    assert not is_rate("key:tenant:acme")


def test_who_has_no_token_takes_none() -> None:
    limiter = turnstile(client_mail_web=Bucket(999, NOW))

    with pytest.raises(RateLimited) as caught:
        limiter.take_tokens(queue(enqueue_rate=5, client_rate=2), job("web"))

    assert limiter.changed_buckets == {}
    assert (caught.value.queue, caught.value.client, caught.value.retry_after) == ("mail", "web", 0.001)
    assert "of client 'web'" in str(caught.value)


def test_clients_without_a_name_are_one() -> None:
    limiter = turnstile()
    limited = queue(client_rate=1, client_burst=1)
    limiter.take_tokens(limited, job())

    with pytest.raises(RateLimited, match="of clients without a name, 1 at once: try again in 1 s"):
        limiter.take_tokens(limited, job())


def test_a_batch_waits_for_what_all_of_it_takes() -> None:
    jobs = [job("web"), job("shop"), job("web"), job("web", "other"), job("web")]
    limiter = turnstile(jobs)
    limited = queue(client_rate=10, client_burst=2)
    small = queue(client_rate=10, client_burst=3)
    limiter.take_tokens(limited, jobs[0])
    limiter.take_tokens(limited, jobs[2])

    with pytest.raises(RateLimited) as never:
        limiter.take_tokens(limited, jobs[4])

    later = turnstile(jobs, client_mail_web=Bucket(1_500, NOW))
    later.take_tokens(small, jobs[0])
    with pytest.raises(RateLimited) as caught:
        later.take_tokens(small, jobs[2])
    assert never.value.retry_after is None
    assert caught.value.retry_after == 0.15


@given(
    rate=st.integers(1, 50),
    burst=st.integers(1, 50),
    waits=st.lists(st.integers(0, 500), max_size=60),
)
def test_in_no_stretch_of_time_come_more_than_the_burst_and_the_rate(
    rate: int, burst: int, waits: list[int]
) -> None:
    limited, stored, times, now = queue(enqueue_rate=rate, enqueue_burst=burst), dict[str, Bucket](), [], NOW
    for wait in waits:
        now += wait
        limiter = EnqueueRateLimiter(now, stored.get, ())
        try:
            limiter.take_tokens(limited, job())
        except RateLimited as error:
            soon = EnqueueRateLimiter(now + round((error.retry_after or 0) * 1_000), stored.get, ())
            soon.take_tokens(limited, job())
            continue
        stored |= limiter.changed_buckets
        times.append(now)

    for i, first in enumerate(times):
        for j, last in enumerate(times[i:], 1):
            assert j <= burst + (last - first) * rate / 1_000


def test_a_wait_for_several_counts_all_of_them() -> None:
    limit = Limit(scope="queue:mail", rate=10, burst=4)

    assert time_until_tokens(limit, Bucket(4_000, NOW), 4, NOW) == 0
    assert time_until_tokens(limit, Bucket(500, NOW), 3, NOW) == 250
    assert time_until_tokens(limit, Bucket(4_000, NOW), 5, NOW) is None


def test_room_comes_when_as_many_are_worked_off_as_want_in() -> None:
    batch = [job(), job(), job(name="other")]

    def after(length: int, limit: int, together: Sequence[NewJob] = ()) -> int | None:
        return time_until_room(
            lambda: Throughput(60, THROUGHPUT_WINDOW_MS),
            "mail",
            NOW,
            length=length,
            limit=limit,
            batch=together,
        )

    assert after(5, 5) == 1_000
    assert after(7, 5, batch) == 4_000
    assert after(5, 1, batch) is None


def test_jobs_that_do_not_run_now_want_no_room() -> None:
    batch = [job()]
    for waits in ({"delay_ms": 5}, {"run_at": NOW + 5}, {"depends_on": (Dependency(JobId("p")),)}):
        batch.append(NewJob(task="t", queue=MAIL, **waits))

    wait = time_until_room(
        lambda: Throughput(60, THROUGHPUT_WINDOW_MS), "mail", NOW, length=1, limit=1, batch=batch
    )

    assert wait == 1_000


def test_a_full_queue_is_an_error_with_a_time_or_without() -> None:
    assert queue_full_error("mail", 5, 1_500).retry_after == 1.5
    assert queue_full_error("mail", 5, None).retry_after is None


def test_a_burst_goes_with_its_rate() -> None:
    limited = queue(client_rate=1, client_burst=8, enqueue_rate=5).settings

    free = limited.with_changes({"client_rate": None})

    assert (free.client_rate, free.client_burst, free.enqueue_rate) == (None, None, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enqueue_rate": 0}, "enqueue_rate must be a whole number from 1"),
        ({"client_rate": MAX_RATE + 1}, "client_rate must be"),
        ({"client_burst": 5}, "client_burst goes with client_rate"),
        ({"enqueue_rate": 1, "enqueue_burst": 3_601}, "enqueue_burst must be a whole number from 1 to 3600"),
    ],
)
def test_wrong_rates_are_refused_by_name(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        queue(**settings)
