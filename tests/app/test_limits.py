"""`app.limits` on every engine, and the program of the guide."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from forebay import Forebay, current_job
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import ConfigError


@pytest.mark.shows("R-CONC-05", "R-RATE-06")
def test_limits_are_set_listed_and_removed(app: Forebay) -> None:
    app.limits.set("queue:mail", rate=5, per=60, burst=7)
    app.limits.set("global", concurrency=9)

    assert app.limits.list() == [
        Limit(scope="global", concurrency=9),
        Limit(scope="queue:mail", rate=5, per_ms=60_000, burst=7),
    ]
    assert app.limits.remove("global")
    assert not app.limits.remove("global")


def test_coroutines_have_the_same(app: Forebay) -> None:
    async def scene() -> None:
        limit = await app.limits.set_async("global", concurrency=9)
        assert await app.limits.list_async() == [limit]
        assert await app.limits.remove_async("global")

    asyncio.run(scene())


def test_a_wrong_limit_is_refused(app: Forebay) -> None:
    with pytest.raises(ConfigError, match="is no scope"):
        app.limits.set("mail", concurrency=1)


@pytest.mark.shows("R-CONC-10", "R-CONC-06")
def test_workers_run_no_more_than_a_limit_allows_and_all_in_the_end(live_app: Forebay) -> None:
    live_app.limits.set("global", concurrency=2)

    @live_app.task
    def count(n: int) -> int:
        return n

    with live_app.run_worker(threads=3), live_app.run_worker(threads=3):
        jobs = live_app.enqueue_many([count.job(n) for n in range(40)])
        results = [job.result(timeout=120) for job in jobs]

    assert results == list(range(40))
    records = [record for job in jobs if (record := live_app.client.job(job.id))]
    spans = sorted((record.started_at or 0, record.finished_at or 0) for record in records)
    for start, _ in spans:
        # What ended in this very millisecond may have ended before.
        assert sum(begin <= start < end for begin, end in spans) <= 2


def test_keys_come_from_arguments_by_name_or_by_a_function(app: Forebay) -> None:
    @app.task(limit_by={"tenant": "account", "pair": lambda account, n=1: f"{account}/{n}"})
    def work(account: str, n: int = 1) -> None: ...

    assert work.job("acme").limit_keys == {"tenant": "acme", "pair": "acme/1"}
    assert work.job(account="acme", n=2).limit_keys == {"tenant": "acme", "pair": "acme/2"}
    assert work.using(limit_keys={"tenant": "other"}).job("acme").limit_keys["tenant"] == "other"


def test_a_key_from_an_argument_that_is_not_there_is_refused(app: Forebay) -> None:
    @app.task(limit_by={"tenant": "account"})
    def work(n: int) -> None: ...

    with pytest.raises(ConfigError, match="has no argument 'account'"):
        work.job(1)


def test_a_sequence_comes_from_arguments_by_name_or_by_a_function(app: Forebay) -> None:
    @app.task(sequence_by="account")
    def work(account: str, n: int = 1) -> None: ...

    assert work.job("acme").sequence == "account:acme"
    assert work.using(sequence_by=lambda account, n=1: f"{account}/{n}").job("acme", 2).sequence == "acme/2"
    assert work.using(sequence="nightly").job("acme").sequence == "nightly"
    assert work.using(sequence=None).job("acme").sequence is None
    with pytest.raises(ConfigError, match="has no argument 'tenant', which sequence_by names"):
        work.using(sequence_by="tenant").job("acme")


def test_a_task_says_what_it_has_cost_and_is_charged_for_it(live_app: Forebay) -> None:
    live_app.limits.set("queue:default", rate=100, burst=50)

    @live_app.task(cost=2)
    def spend(tokens: int) -> None:
        current_job().set_cost(tokens)

    with live_app.run_worker(threads=1):
        first = spend.enqueue(100)
        first.wait(timeout=120)
        second = spend.enqueue(2)
        second.wait(timeout=120)

    # From the start of the first on 48 were left of 50, and 98 more were spent. So 51 have to be earned, a
    # hundred in a second.
    assert (second.refresh().started_at or 0) - (first.refresh().started_at or 0) >= 400


@pytest.mark.shows("R-RATE-06")
def test_workers_keep_limits_by_key_and_forget_no_job(live_app: Forebay) -> None:
    live_app.limits.set("key:tenant", concurrency=1)
    live_app.limits.set("global", concurrency=5)

    @live_app.task(limit_by={"tenant": "tenant"})
    def count(tenant: str, n: int) -> int:
        return n

    with live_app.run_worker(threads=3), live_app.run_worker(threads=3):
        jobs = live_app.enqueue_many([count.job("abcd"[n % 4], n) for n in range(60)])
        results = [job.result(timeout=120) for job in jobs]

    assert results == list(range(60))
    for tenant in range(4):
        records = [record for job in jobs[tenant::4] if (record := live_app.client.job(job.id))]
        spans = sorted((record.started_at or 0, record.finished_at or 0) for record in records)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
