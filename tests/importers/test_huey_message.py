"""A backlog that a real Huey has written is run by a worker of ours, each task once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import huey
import pytest
import redis
from huey.serializer import SignedSerializer

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.integrations.importers.importer import Importer
from tests.cli.command_runner import call
from tests.importers import shop
from tests.importers.support import bring, old_url, ran, shop_app

TRUST = "--trust-pickle"
Make = Callable[..., Any]


class Killed(Exception):
    """The import came to an end."""


def killed(*_: object) -> None:
    raise Killed


@pytest.fixture(params=["redis", "priorities", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'huey.db'}" if kind == "sqlite" else old_url()


@pytest.fixture
def make(kind: str, old: redis.Redis, folder: Path) -> Iterator[Make]:
    """Makes a real Huey of this kind."""
    with ExitStack() as later:

        def made(name: str = "shop", **options: Any) -> Any:
            if kind == "sqlite":
                made = huey.SqliteHuey(name, filename=str(folder / "huey.db"), **options)
                later.callback(made.storage.close)
                return made
            return (huey.RedisHuey if kind == "redis" else huey.PriorityRedisHuey)(
                name, url=old_url(), **options
            )

        yield made


def words(place: str, url: str) -> list[str]:
    return ["huey", "--from", place, "--to", url, TRUST]


def test_a_backlog_is_run_with_the_right_results_and_nothing_is_left_behind(
    make: Make, place: str, url: str
) -> None:
    old = make()
    add, mail = old.task()(shop.add), old.task()(shop.mail)
    sums = [add(n, n).id for n in range(230)]
    rich = {"at": datetime(2030, 1, 31, 12, 0, tzinfo=UTC), "price": Decimal("9.90"), "codes": frozenset({1})}
    sent = mail("ada", subject="Hi", **rich).id

    done = bring(*words(place, url))

    assert (done["found"], done["stored"], done["removed"], done["remaining"]) == (231, 231, 231, 0)
    assert (done["agrees"], done["queues"], len(old)) == (True, {"shop": 231}, 0)
    with shop_app(url) as app:
        assert [job.id for job in app.peek("shop", 1_000)] == [*sums, sent]
        assert ran(app, ["shop"], sums) == [2 * n for n in range(230)]
        ran(app, ["shop"], [sent])
    assert [*shop.DONE] == [("ada", "Hi", *sorted(rich.items()))]


def test_tasks_that_are_scheduled_come_along_from_the_queue_and_from_the_schedule(
    make: Make, place: str, url: str
) -> None:
    old = make()
    add = old.task(retries=4, retry_delay=30)(shop.add)
    eta = datetime(2050, 1, 31, 12, 0)  # noqa: DTZ001 - Huey takes a time without a zone for UTC
    listed = add.schedule(args=(1, 2), eta=eta).id
    moved = add.schedule(args=(3, 4), eta=eta + timedelta(days=1)).id
    # As its consumer does it: what is not due goes from the queue to the schedule.
    for _ in range(2):
        task = old.dequeue()
        if task.id == moved:
            old.add_schedule(task)
        else:
            old.enqueue(task)

    done = bring(*words(place, url))

    assert (done["stored"], done["agrees"], old.scheduled_count()) == (2, True, 0)
    with Forebay(url) as app:
        jobs = [app.job(each).refresh() for each in (listed, moved)]
        at = eta.replace(tzinfo=UTC).timestamp() * 1_000
        assert [(job.state, job.run_at) for job in jobs] == [
            (JobState.SCHEDULED, at),
            (JobState.SCHEDULED, at + 86_400_000),
        ]
        assert [(job.policy.max_retries, job.policy.delay_ms(3, 1.0)) for job in jobs] == [(4, 30_000)] * 2


def test_what_cannot_be_carried_over_is_named_and_stays(make: Make, place: str, url: str) -> None:
    old = make()
    add, mail = old.task()(shop.add), old.task()(shop.mail)
    chained = add.s(1, 2).then(add, 3)
    old.enqueue(chained)
    revoked = add(5, 6)
    revoked.revoke()
    odd = mail(shop.Basket())

    done = bring(*words(place, url), status=1)

    why = {left["id"]: left["reason"] for left in done["left"]}
    assert why[chained.id].startswith("it has a pipeline (then)")
    assert why[revoked.id].startswith("it was revoked")
    assert "its pickle holds tests.importers.shop.Basket, and only plain data is read" in why.values()
    assert (len(why), done["agrees"], len(old)) == (3, True, 3)
    assert odd.id not in why  # unreadable: the id is inside the pickle


def test_a_task_that_waits_several_times_is_run_as_often(make: Make, place: str, url: str, kind: str) -> None:
    old = make()
    task = old.task()(shop.add).s(1, 2)
    for _ in range(3):
        old.enqueue(task)
    waits = len(old)  # a set of priorities may hold it once
    assert waits == 3 or kind == "priorities"

    call("migrate", "--url", url)
    preview = bring(*words(place, url), "--dry-run")
    done = bring(*words(place, url))

    assert (preview["stored"], preview["remaining"]) == (waits, waits)
    assert (done["stored"], done["already"], done["agrees"], len(old)) == (waits, 0, True, 0)
    assert bring(*words(place, url))["found"] == 0


def test_a_task_that_is_enqueued_again_after_an_import_is_carried_by_the_next(
    make: Make, place: str, url: str
) -> None:
    old = make()
    task = old.task()(shop.add).s(1, 2)
    done = []
    for _ in range(3):
        old.enqueue(task)
        done.append(bring(*words(place, url)))

    assert [(each["stored"], each["already"], each["agrees"]) for each in done] == [(1, 0, True)] * 3
    with shop_app(url) as app:
        ids = [job.id for job in app.peek("shop", 10)]
        assert (len(ids), ran(app, ["shop"], ids)) == (3, [3, 3, 3])


def test_what_is_left_is_named_as_often_as_it_waits_by_every_import(make: Make, place: str, url: str) -> None:
    old = make()
    add = old.task()(shop.add)
    chained = add.s(1, 2).then(add, 3)
    for _ in range(3):
        old.enqueue(chained)
    add(4, 5)

    done = [bring(*words(place, url), status=1) for _ in range(2)]

    assert [(each["stored"], each["already"], each["agrees"]) for each in done] == [
        (1, 0, True),
        (0, 0, True),
    ]
    assert [[left["id"] for left in each["left"]] for each in done] == [[chained.id] * len(old)] * 2


def test_one_that_was_stored_and_not_taken_out_is_told_from_one_that_came_later(
    make: Make, place: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make()
    add = old.task()(shop.add)
    task = add.s(1, 2)
    old.enqueue(task)
    later = add.schedule(args=(3, 4), eta=datetime(2050, 1, 31, 12, 0))  # noqa: DTZ001 - UTC to Huey
    with monkeypatch.context() as patched:
        patched.setattr(Importer, "_remove_stored", killed)
        assert isinstance(call("import", *words(place, url)).exception, Killed)
    old.enqueue(task)
    waits = len(old)
    # As a consumer does it that was started in between: what is not due goes to the schedule.
    for _ in range(waits):
        each = old.dequeue()
        if each.id == later.id:
            old.add_schedule(each)
        else:
            old.enqueue(each)

    done = bring(*words(place, url))

    assert (done["found"], done["agrees"], len(old), old.scheduled_count()) == (waits, True, 0, 0)
    assert (done["stored"], done["already"]) == (waits - 2, 2)
    with shop_app(url) as app:
        assert len(app.peek("shop", 10)) == waits - 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_file_keeps_no_table_of_ours(make: Make, place: str, url: str, folder: Path) -> None:
    make().task()(shop.add)(1, 2)

    done = bring(*words(place, url))

    with closing(sqlite3.connect(folder / "huey.db")) as file:
        tables = [name for (name,) in file.execute("select name from sqlite_master where type = 'table'")]
    assert (done["removed"], "task" in tables, "forebay_import" in tables) == (1, True, False)


def test_nothing_is_read_without_a_word_about_pickles(make: Make, place: str, url: str) -> None:
    make().task()(shop.add)(1, 2)

    done = bring("huey", "--from", place, "--to", url, status=1)

    assert (done["stored"], "--trust-pickle" in done["left"][0]["reason"]) == (0, True)


@pytest.mark.parametrize("kind", ["priorities", "sqlite"], indirect=True)
def test_priorities_and_limits_come_along(make: Make, place: str, url: str) -> None:
    old = make()
    add = old.task(priority=5, retries=2, retry_delay=10, retry_backoff=3)(shop.add)
    plain = old.task(name="plain")(shop.add)
    low = plain(1, 2).id
    high = add(3, 4).id
    expiring = add.schedule(args=(5, 6), delay=60, expires=120).id

    bring(*words(place, url), "--task-map", "tests.importers.shop.plain=tests.importers.shop.add")

    with Forebay(url) as app:
        assert [job.id for job in app.peek("shop")] == [high, low]
        job = app.job(high).refresh()
        assert [job.policy.delay_ms(failures, 1.0) for failures in (1, 2)] == [10_000, 30_000]
        last = app.job(expiring).refresh()
        assert last.expires_at is not None
        assert 0 < last.expires_at - last.created_at <= 120_000


@pytest.mark.parametrize("kind", ["redis", "sqlite"], indirect=True)
def test_compressed_and_signed_messages_are_read(make: Make, place: str, url: str) -> None:
    packed = make("packed", compression=True).task()(shop.add)(1, 2).id
    signed = make("signed", serializer=SignedSerializer(secret="s", salt="t")).task()(shop.add)(3, 4).id  # noqa: S106

    assert bring(*words(place, url))["stored"] == 2

    with shop_app(url) as app:
        assert ran(app, ["packed", "signed"], [packed, signed]) == [3, 7]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_file_that_is_none_of_hueys_is_refused(make: Make, place: str, url: str, folder: Path) -> None:
    call("migrate", "--url", url)

    missing = call("import", *words(f"sqlite:///{folder}/nothing.db", url))
    other = call("import", *words(url, "sqlite:///other.db"))

    assert "there is no file" in missing.stderr
    assert "holds no tasks of Huey" in other.stderr
    assert not (folder / "nothing.db").exists()


def test_a_queue_is_named_as_its_program_names_it(make: Make, place: str, url: str) -> None:
    old = make("simple.test")
    old.task()(shop.add)(1, 2)

    done = bring(*words(place, url), "--queue", "simple.test=default", "--only", "simple.test")

    assert (done["queues"], done["unmatched"], done["remaining"]) == ({"default": 1}, [], 0)


def test_a_name_that_huey_was_told_not_to_clean_is_found_as_it_is(old: redis.Redis, url: str) -> None:
    huey.RedisHuey("simple.test", url=old_url(), clean_name=False).task()(shop.add)(1, 2)

    done = bring(*words(old_url(), url), "--queue", "simple.test=default")

    assert (done["queues"], done["unmatched"]) == ({"default": 1}, [])
