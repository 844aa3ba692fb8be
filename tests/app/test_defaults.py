"""What an app says for all its jobs: call before task before app before what is built in."""

from __future__ import annotations

from contextlib import closing
from inspect import Parameter, signature
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob, PayloadError, RetryPolicy
from forebay.app.job_options import TaskOptions
from forebay.domain.job import NewJob
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.domain.retry_policy import Curve
from forebay.stores.factory import open_engine


def nothing() -> None: ...


def take(value: Any = None) -> None: ...


def app_with(**defaults: Any) -> Forebay:
    return Forebay("memory://", defaults=defaults)  # type: ignore[arg-type]  # the options of a test


SLOW = RetryPolicy(base_ms=60_000, factor=3.0, ceiling_ms=600_000, floor_ms=500, jitter_high=0.0)
QUICK = RetryPolicy(curve=Curve.FIXED, base_ms=10, max_retries=9)


# ------------------------------------------------------------------ which one wins


@pytest.mark.shows("R-RETRY-03")
def test_a_default_holds_for_every_job(url: str) -> None:
    options: TaskOptions = {"queue": "mail", "priority": 3, "timeout": 5, "tags": ["a"], "retries": 1}
    with Forebay(url, defaults=options) as app:
        known = app.task(name="t")(nothing).enqueue().refresh()
        unknown = app.enqueue("u").refresh()

        for job in (known, unknown):
            assert (job.queue, job.priority, job.timeout_ms, job.tags) == ("mail", 3, 5_000, ("a",))
            assert job.policy.max_retries == 1
        assert [job.id for job in app.peek()] == [known.id, unknown.id]
        with closing(app.consumer()) as consumer:
            assert [job.id for job in consumer.claim(2)] == [known.id, unknown.id]


@pytest.mark.parametrize(
    ("on_task", "on_call", "timeout_ms"),
    [({}, {}, 10_000), ({"timeout": 20}, {}, 20_000), ({"timeout": 20}, {"timeout": 30}, 30_000)],
)
def test_the_call_wins_over_the_task_and_the_task_over_the_app(
    on_task: Any, on_call: Any, timeout_ms: int
) -> None:
    task = app_with(timeout=10).task(name="t", **on_task)(nothing)

    assert task.using(**on_call).job().timeout_ms == timeout_ms


def test_a_call_may_take_back_what_the_app_says() -> None:
    app = app_with(timeout=10, expires=60)

    job = app.task(name="t")(nothing).using(timeout=None, expires=None).job()

    assert (job.timeout_ms, job.expires_at) == (None, None)


def test_a_worker_takes_the_apps_default_queue() -> None:
    app = app_with(queue="mail")

    assert app.queues() == ["mail"]
    app.task(name="t")(nothing)
    assert app.queues() == ["mail"]


@pytest.mark.shows("R-RETRY-20")
def test_base_factor_ceiling_floor_and_jitter_are_set_for_the_app_and_for_a_task() -> None:
    app = app_with(retry_policy=SLOW)

    assert app.task(name="all")(nothing).job().policy == SLOW
    assert app.task(name="one", retry_policy=QUICK)(nothing).job().policy == QUICK
    assert app.task(name="two")(nothing).using(retry_policy=QUICK).job().policy == QUICK


@pytest.mark.shows("R-RETRY-03")
@pytest.mark.parametrize(
    ("defaults", "on_task", "on_call", "policy"),
    [
        ({"retries": 5}, {}, {}, RetryPolicy(max_retries=5)),
        ({"retries": 5, "retry_policy": SLOW}, {"retries": 6}, {}, ("slow", 6)),
        ({"retry_policy": SLOW}, {"retries": 6}, {"max_crashes": 0}, ("slow", 6)),
        # A policy says how often, too: what lies below it is no longer asked.
        ({"retries": 5}, {"retry_policy": QUICK}, {}, QUICK),
        ({}, {"retries": 5}, {"retry_policy": QUICK}, QUICK),
        ({"max_crashes": 0}, {}, {"retry_policy": QUICK}, QUICK),
        ({"retries": 5}, {"retry_policy": QUICK}, {"retries": 7}, ("quick", 7)),
    ],
)
def test_a_policy_and_its_counts_come_from_the_highest_that_speaks(
    defaults: Any, on_task: Any, on_call: Any, policy: Any
) -> None:
    found = app_with(**defaults).task(name="t", **on_task)(nothing).using(**on_call).job().policy

    if isinstance(policy, RetryPolicy):
        assert found == policy
    else:
        assert (found.base_ms, found.max_retries) == ({"slow": 60_000, "quick": 10}[policy[0]], policy[1])


# ------------------------------------------------------------------ wrong defaults


@pytest.mark.parametrize(
    ("defaults", "named"),
    [
        ({"timeout": 0}, "timeout must be"),
        ({"retries": -1}, "retries must be"),
        ({"queue": "my queue"}, "cannot name a queue"),
        ({"retry_policy": "fast"}, "no retry preset 'fast'"),
        ({"colour": "red"}, "no option 'colour'"),
        ({"unique_key": "k"}, "no option 'unique_key'"),
        ([], "defaults must be a dict"),
    ],
)
def test_a_wrong_default_is_named_when_the_app_is_made(defaults: Any, named: str) -> None:
    with pytest.raises((ConfigError, InvalidJob), match=named):
        Forebay("memory://", defaults=defaults)


def test_later_changes_of_the_callers_own_dict_do_not_reach_the_app() -> None:
    defaults: TaskOptions = {"priority": 1}
    app = Forebay("memory://", defaults=defaults)

    defaults["priority"] = 2

    assert app.task(name="t")(nothing).job().priority == 1


# ------------------------------------------------------------------ how large a payload may be


@pytest.mark.shows("R-ENQ-22", "R-ENQ-23", "R-CFG-50")
def test_a_payload_at_the_apps_limit_is_taken_and_one_byte_more_is_refused(url: str) -> None:
    with Forebay(url, max_payload=2_000) as app:
        task = app.task(name="t")(take)
        room = 2_000 - len(task.job("").payload)

        assert len(task.enqueue("x" * room).refresh().payload) == 2_000
        assert app.enqueue("u", ["x" * room]).is_new
        for enqueue in (task.enqueue, lambda text: app.enqueue("u", [text])):
            with pytest.raises(PayloadError, match=r"limit is 2,000, and args\[0\] is the largest"):
                enqueue("x" * (room + 1))
        assert app.counts()[app.default_queue].pending == 2


def test_a_made_job_is_held_to_the_apps_limit_too(url: str) -> None:
    large = NewJob(task="t", payload=b"x" * 2_001)
    with Forebay(url, max_payload=2_000) as app:
        for enqueue in (
            lambda: app.enqueue(large),
            lambda: app.enqueue_many([NewJob(task="t"), large]),
            lambda: app.enqueue_tx(object(), [large]),
        ):
            with pytest.raises(
                PayloadError, match=r"2,001 bytes, the limit \(max_payload\) is 2,000"
            ) as caught:
                enqueue()
            assert caught.value.field == "payload"
        assert app.counts() == {}


def test_made_jobs_within_the_limit_are_taken_and_what_is_no_job_is_refused(url: str) -> None:
    no_job: Any = "send"
    with Forebay(url, max_payload=2_000) as app:
        handles = app.enqueue_many([NewJob(task="t", payload=b"x" * size) for size in (0, 1_999, 2_000)])

        assert [handle.is_new for handle in handles] == [True] * 3
        with pytest.raises(InvalidJob, match="only jobs made by task"):
            app.enqueue_many([NewJob(task="t"), no_job])
        assert app.counts()[app.default_queue].pending == 3


@pytest.mark.shows("R-CFG-50")
@pytest.mark.parametrize("limit", [1_023, MAX_PAYLOAD + 1, 0, -1, 2_000.0, "2000", True])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="payload limit must be from 1,024 to 1,048,576 bytes"):
        Forebay("memory://", max_payload=limit)


# ------------------------------------------------------------------ how little must be said


@pytest.mark.shows("R-NFR-15")
@pytest.mark.parametrize("call", [Forebay, Forebay.run_worker, Forebay.consumer, open_engine])
def test_no_more_than_an_address_must_be_said(call: Any) -> None:
    parameters = signature(call).parameters.values()

    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is Parameter.empty and parameter.name != "self"
    ]
    assert required in ([], ["url"])
