"""A backlog that a real RQ has written is run by a worker of ours, each job once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from rq.job import Dependency

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.integrations.importers.redis_client import SourceRedis
from forebay.integrations.importers.rq_source import RqPlace, RqSource
from tests.cli.command_runner import call
from tests.importers import shop
from tests.importers.support import bring, old_url, ran, shop_app

TRUST = "--trust-pickle"


@pytest.fixture
def queue(old: redis.Redis) -> rq.Queue:
    return rq.Queue("default", connection=old)


def keys(old: redis.Redis) -> set[str]:
    """What RQ has there, but for the names of its queues and for what it caches."""
    return {
        key
        for key in map(bytes.decode, old.scan_iter())
        if key.startswith(("rq:job:", "rq:queue:", "rq:scheduled", "rq:deferred"))
    }


def words(url: str) -> list[str]:
    return ["rq", "--from", old_url(), "--to", url]


def test_a_backlog_is_run_with_the_right_results_and_nothing_is_left_behind(
    queue: rq.Queue, old: redis.Redis, url: str
) -> None:
    sums = [queue.enqueue(shop.add, n, n).id for n in range(230)]
    first = queue.enqueue(shop.add, 0, 1, at_front=True).id
    other = rq.Queue("mail", connection=old)
    rich = {"on": date(2030, 1, 31), "price": Decimal("9.90"), "codes": {1, 2}}
    mail = other.enqueue(shop.mail, "ada", subject="Hi", **rich).id

    done = bring(*words(url), TRUST)

    assert (done["found"], done["stored"], done["removed"], done["remaining"]) == (232, 232, 232, 0)
    assert (done["agrees"], done["queues"]) == (True, {"default": 231, "mail": 1})
    assert keys(old) == set()
    with shop_app(url) as app:
        assert [job.id for job in app.peek("default", 1_000)] == [first, *sums]
        assert ran(app, ["default", "mail"], [first, *sums]) == [1, *(2 * n for n in range(230))]
        ran(app, ["mail"], [mail])
    assert [*shop.DONE] == [("ada", "Hi", *sorted(rich.items()))]


def test_scheduled_jobs_keep_their_time(queue: rq.Queue, old: redis.Redis, url: str) -> None:
    at = datetime(2050, 1, 31, 12, 0, tzinfo=UTC)
    late = queue.enqueue_at(at, shop.add, 1, 2).id
    soon = queue.enqueue_in(timedelta(hours=1), shop.add, 3, 4).id

    bring(*words(url), TRUST)

    assert keys(old) == set()
    with Forebay(url) as app:
        jobs = [app.job(each).refresh() for each in (late, soon)]
        assert [job.state for job in jobs] == [JobState.SCHEDULED, JobState.SCHEDULED]
        assert jobs[0].run_at == at.timestamp() * 1_000


def test_jobs_come_after_those_they_depend_on(queue: rq.Queue, old: redis.Redis, url: str) -> None:
    first = queue.enqueue(shop.mail, "first")
    second = queue.enqueue(shop.mail, "second", depends_on=first)
    third = queue.enqueue(shop.mail, "third", depends_on=Dependency([second], allow_failure=True))

    preview = bring(*words(_made(url)), TRUST, "--dry-run")
    done = bring(*words(url), TRUST)

    assert preview["stored"] == done["stored"] == 3
    assert (done["agrees"], keys(old)) == (True, set())
    with shop_app(url) as app:
        assert [app.job(job.id).refresh().state for job in (second, third)] == [JobState.BLOCKED] * 2
        assert [edge.on_failure for job in (second, third) for edge in app.job(job.id).parents()] == [
            "hold",
            "ignore",
        ]
        ran(app, ["default"], [third.id])
    assert [to for to, _ in shop.DONE] == ["first", "second", "third"]


def test_a_job_whose_parent_cannot_come_stays_too(queue: rq.Queue, url: str) -> None:
    parent = queue.enqueue(shop.mail, "first", on_success=rq.Callback(shop.add))
    child = queue.enqueue(shop.mail, "second", depends_on=parent)

    done = bring(*words(url), TRUST, status=1)

    why = {left["id"]: left["reason"] for left in done["left"]}
    assert why[parent.id].startswith("it has a callback (on_success)")
    assert why[child.id] == f"it depends on {parent.id}, which was not carried over"


def _made(url: str) -> str:
    call("migrate", "--url", url)
    return url


def test_what_a_job_says_about_itself_comes_along(queue: rq.Queue, url: str) -> None:
    job = queue.enqueue(
        shop.add,
        1,
        2,
        job_timeout=90,
        ttl=3_600,
        result_ttl=5,
        meta={"order": 7},
        retry=rq.Retry(max=4, interval=[10, 60]),
    )

    done = bring(*words(url), TRUST)

    assert done["dropped"] == {"result_ttl": 1, "retry intervals after the first": 1}
    with Forebay(url) as app:
        found = app.job(job.id).refresh()
        assert (found.timeout_ms, found.policy.max_retries) == (90_000, 4)
        assert [found.policy.delay_ms(failures, 1.0) for failures in (1, 4)] == [10_000, 10_000]
        assert found.metadata == {"imported": {"system": "rq", "queue": "default", "meta": {"order": 7}}}
        assert found.expires_at is not None
        assert 0 < found.expires_at - found.created_at <= 3_600_000


def test_a_job_that_says_nothing_of_retries_is_not_retried_as_in_rq(queue: rq.Queue, url: str) -> None:
    job = queue.enqueue(shop.fail, "no")

    bring(*words(url), TRUST)

    with Forebay(url) as app:
        found = app.job(job.id).refresh()
        assert (found.policy.max_retries, found.timeout_ms) == (0, 180_000)


def test_pickles_are_read_only_when_an_option_says_so_and_json_always(
    queue: rq.Queue, old: redis.Redis, url: str
) -> None:
    pickled = queue.enqueue(shop.add, 1, 2)
    plain = rq.Queue("default", connection=old, serializer="json").enqueue(shop.add, 3, 4)

    done = bring(*words(url), status=1)

    assert (done["stored"], done["remaining"]) == (1, 1)
    [left] = done["left"]
    assert (left["id"], "--trust-pickle" in left["reason"]) == (pickled.id, True)
    with shop_app(url) as app:
        assert ran(app, ["default"], [plain.id]) == [7]


def test_what_cannot_be_carried_over_is_named_and_stays(queue: rq.Queue, old: redis.Redis, url: str) -> None:
    cases: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
        "method": (
            shop.Basket().total,
            {},
            "its pickle holds tests.importers.shop.Basket, and only plain data",
        ),
        "class": (shop.mail, {"args": (shop.Basket(),)}, "its pickle holds tests.importers.shop.Basket"),
        "repeat": (shop.add, {"args": (1, 2), "repeat": rq.Repeat(times=2)}, "it has repetitions"),
    }
    for name, (function, options, _) in cases.items():
        queue.enqueue(function, job_id=name, **options)
    old.rpush("rq:queue:default", "absent")

    done = bring(*words(url), TRUST, status=1)

    why = {left["id"]: left["reason"] for left in done["left"]}
    assert {name: why[name].startswith(message) for name, (_, _, message) in cases.items()} == dict.fromkeys(
        cases, True
    )
    assert why["absent"] == "there is no job of this id any more"
    assert (done["agrees"], old.llen("rq:queue:default")) == (True, 4)


def test_a_later_job_under_an_id_that_was_used_before_is_a_job_of_its_own(queue: rq.Queue, url: str) -> None:
    with shop_app(url) as app:
        for day in ("monday", "tuesday"):
            queue.enqueue(shop.mail, day, job_id="nightly")
            assert bring(*words(url), TRUST)["stored"] == 1
            with app.run_worker(queues=["default"]):
                for job in app.search().jobs:
                    app.job(job.id).wait(timeout=60)

    assert [to for to, _ in shop.DONE] == ["monday", "tuesday"]


@pytest.fixture
def registered(old: redis.Redis, queue: rq.Queue) -> Iterator[rq.SimpleWorker]:
    worker = rq.SimpleWorker([queue], connection=old)
    worker.register_birth()  # type: ignore[no-untyped-call]  # theirs
    yield worker
    worker.register_death()  # type: ignore[no-untyped-call]  # theirs


def test_a_worker_that_lives_is_noticed(
    registered: rq.SimpleWorker, queue: rq.Queue, url: str, folder: Path
) -> None:
    queue.enqueue(shop.add, 1, 2)

    refused = call("import", *words(url), TRUST)

    assert refused.exit_code != 0
    assert f"workers of RQ: {registered.name}" in refused.stderr
    assert bring(*words(url), TRUST, "--workers-stopped")["stored"] == 1


def test_a_job_that_was_gone_from_its_place_keeps_what_it_says(old: redis.Redis) -> None:
    queue = rq.Queue("mail", connection=old)
    gone, there = (queue.enqueue(shop.add, n, n).id for n in range(2))
    old.lrem("rq:queue:mail", 1, gone)  # as a worker takes it

    with closing(RqSource(SourceRedis(old_url()))) as source:
        done = source.remove([RqPlace("rq:queue:mail", each) for each in (gone, there)])

    assert done == [False, True]
    assert [old.exists(f"rq:job:{each}") for each in (gone, there)] == [1, 0]
