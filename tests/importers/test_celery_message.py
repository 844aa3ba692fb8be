"""A backlog that a real Celery has written is run by a worker of ours, each task once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import celery
import pytest
import redis

from forebay import Forebay
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.stores.factory import open_engine
from tests.cli.command_runner import call, command, environment
from tests.importers import shop
from tests.importers.support import DATABASE, DEADLINE, PLACE, bring, old_url, ran, shop_app, until

WORKER = """
import celery

app = celery.Celery("old", broker={url!r})
app.conf.update(broker_transport_options={{"visibility_timeout": 3600}}, worker_prefetch_multiplier=1)


@app.task(name="{place}.add")
def add(a, b):
    return a + b
"""


@pytest.fixture
def producer(old: redis.Redis) -> Iterator[celery.Celery]:
    app = celery.Celery("old", broker=old_url(), set_as_current=False)
    app.task(name=f"{PLACE}.add")(shop.add)
    app.task(name=f"{PLACE}.mail")(shop.mail)
    yield app
    app.close()


def waits(old: redis.Redis) -> int:
    """How many messages the broker has, in lists and in the hands of workers."""
    lists = sum(old.llen(key) for key in old.scan_iter() if old.type(key) == b"list")
    return int(lists + old.hlen("unacked") + old.zcard("unacked_index"))


def test_a_backlog_is_run_with_the_right_results_and_nothing_is_left_behind(
    producer: celery.Celery, old: redis.Redis, url: str
) -> None:
    add, mail = (producer.tasks[f"{PLACE}.{name}"] for name in ("add", "mail"))
    sums = [add.delay(n, n).id for n in range(250)]
    rich = {
        "at": datetime(2030, 1, 31, 12, 0, tzinfo=UTC),
        "price": Decimal("9.90"),
        "number": UUID(int=7),
        "data": b"\xff\x00",
    }
    mails = [
        mail.apply_async(("ada",), {"subject": "Hi", **rich}, queue="mail").id,
        mail.apply_async(("bob",), queue="mail", priority=9).id,
        mail.apply_async(("cleo",), queue="mail", priority=3).id,
    ]

    done = bring("celery", "--from", old_url(), "--to", url)

    assert (done["found"], done["stored"], done["removed"], done["remaining"]) == (253, 253, 253, 0)
    assert (done["agrees"], done["left"], done["contested"]) == (True, [], [])
    assert done["queues"] == {"celery": 250, "mail": 3}
    assert waits(old) == 0
    app = shop_app(url)
    with app:
        assert [job.id for job in app.peek("mail")] == [mails[0], mails[2], mails[1]]
        assert [job.id for job in app.peek("celery", 1_000)] == sums
        assert ran(app, ["celery", "mail"], sums) == [2 * n for n in range(250)]
        ran(app, ["mail"], mails)
    assert sorted(shop.DONE) == [("ada", "Hi", *sorted(rich.items())), ("bob", ""), ("cleo", "")]


def test_times_and_limits_of_a_task_come_along(producer: celery.Celery, url: str) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    eta = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)  # noqa: TID251 - Celery's clock
    later = add.apply_async(
        (1, 2), eta=eta, expires=eta + timedelta(hours=1), time_limit=90, soft_time_limit=60
    )
    counted = add.apply_async((3, 4), countdown=3_600)

    done = bring("celery", "--from", old_url(), "--to", url)

    assert done["dropped"] == {"soft time limit": 1}
    with Forebay(url) as app:
        job = app.job(later.id).refresh()
        assert (job.state, job.run_at, job.timeout_ms) == (
            JobState.SCHEDULED,
            eta.timestamp() * 1_000,
            90_000,
        )
        assert job.expires_at == eta.timestamp() * 1_000 + 3_600_000
        assert job.metadata == {"imported": {"system": "celery", "queue": "celery"}}
        other = app.job(counted.id).refresh()
        assert (other.state, other.timeout_ms) == (JobState.SCHEDULED, None)
        assert abs(other.run_at - other.created_at - 3_600_000) < DEADLINE * 1_000


@contextmanager
def celery_worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "old.py").write_text(WORKER.format(url=old_url(), place=PLACE))
    words = [sys.executable, "-m", "celery", "-A", "old", "worker", "--pool", "solo", "--loglevel", "ERROR"]
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.DEVNULL) as worker:
        try:
            yield worker
        finally:
            worker.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_worker_held_when_it_ended_is_imported_and_a_living_one_is_noticed(
    producer: celery.Celery, old: redis.Redis, url: str, folder: Path, how: signal.Signals
) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    ids = {add.apply_async((n, 1), countdown=3_600).id for n in range(5)}
    with celery_worker(folder) as worker:
        until(lambda: old.hlen("unacked") == 5)
        refused = call("import", "celery", "--from", old_url(), "--to", url)
        os.kill(worker.pid, how)
        worker.wait(DEADLINE)
    assert refused.exit_code != 0
    assert "as Celery's workers do" in refused.stderr
    assert "--workers-stopped" in refused.stderr
    until(lambda: not server_clients(old))
    assert (old.hlen("unacked"), old.llen("celery")) == ((5, 0) if how is signal.SIGKILL else (0, 5))

    done = bring("celery", "--from", old_url(), "--to", url)

    assert (done["stored"], done["removed"], done["agrees"]) == (5, 5, True)
    assert waits(old) == 0
    with Forebay(url) as app:
        page = app.search()
        assert {job.id for job in page.jobs} == ids
        assert {job.state for job in page.jobs} == {JobState.SCHEDULED}


def server_clients(old: redis.Redis) -> list[object]:
    """Who waits for tasks there."""
    return [each for each in old.client_list() if each["cmd"] == "brpop"]


def test_what_cannot_be_carried_over_is_named_and_stays(
    producer: celery.Celery, old: redis.Redis, url: str
) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    plain = add.delay(1, 2).id
    linked = add.apply_async((1, 2), link=add.s(3)).id
    handled = add.apply_async((1, 2), link_error=add.s(3)).id
    celery.chain(add.s(1, 2), add.s(3)).apply_async()
    pickled = add.apply_async((1, 2), serializer="pickle").id
    compressed = add.apply_async((3, 4), compression="zlib").id
    old.lpush("celery", b"no message at all")

    done = bring("celery", "--from", old_url(), "--to", url, status=1)

    assert (done["found"], done["stored"], done["remaining"], done["agrees"]) == (7, 2, 5, True)
    why = {left["id"]: left["reason"] for left in done["left"]}
    assert why[linked].startswith("it has a callback (link)")
    assert why[handled].startswith("it has an errback (link_error)")
    assert why[pickled] == "its serializer is application/x-python-serialize, and only JSON is read"
    assert why["?"].startswith("its JSON cannot be read")
    assert "it has a rest of a chain" in "".join(why.values())
    assert waits(old) == 5
    with shop_app(url) as app:
        assert ran(app, ["celery"], [plain, compressed]) == [3, 7]


def test_headers_and_membership_of_a_group_are_said_to_be_dropped(producer: celery.Celery, url: str) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    add.apply_async((1, 2), headers={"tenant": "acme", "trace": "1"})
    celery.group(add.s(1, 2), add.s(3, 4)).apply_async()
    add.delay(5, 6)

    done = bring("celery", "--from", old_url(), "--to", url)

    assert done["dropped"] == {
        "headers of your own: tenant, trace": 1,
        "membership of a group (kept as a note)": 2,
    }


def test_a_message_of_protocol_1_is_read(old: redis.Redis, url: str) -> None:
    app = celery.Celery("old", broker=old_url(), set_as_current=False)
    app.conf.task_protocol = 1
    sent = app.send_task(f"{PLACE}.add", (20, 3))
    app.close()

    bring("celery", "--from", old_url(), "--to", url)

    with shop_app(url) as ours:
        assert ran(ours, ["celery"], [sent.id]) == [23]


def test_names_are_changed_and_other_queues_left_alone(
    producer: celery.Celery, old: redis.Redis, url: str
) -> None:
    sent = producer.send_task("shop.sum", (1, 2))
    producer.send_task("shop.sum", (1, 2), queue="other")

    words = ["--from", old_url(), "--to", url, "--only", "celery"]
    done = bring("celery", *words, "--queue", "celery=default", "--task-map", f"shop.sum={PLACE}.add")

    assert (done["queues"], done["tasks"]) == ({"default": 1}, {f"{PLACE}.add": 1})
    assert old.llen("other") == 1
    with shop_app(url) as app:
        assert ran(app, ["default"], [sent.id]) == [3]


def test_keys_of_the_broker_may_have_a_prefix(old: redis.Redis, url: str) -> None:
    app = celery.Celery("old", broker=old_url(), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "shop-"}
    app.send_task(f"{PLACE}.add", (20, 3))
    app.close()

    assert bring("celery", "--from", old_url(), "--to", url)["found"] == 0
    assert bring("celery", "--from", old_url(), "--to", url, "--prefix", "shop-")["stored"] == 1
    assert waits(old) == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    producer: celery.Celery, old: redis.Redis, url: str
) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    add.delay(1, 2)
    add.apply_async((1, 2), link=add.s(3))
    call("migrate", "--url", url)

    done = bring("celery", "--from", old_url(), "--to", url, "--dry-run", status=1)
    words = call("import", "celery", "--from", old_url(), "--to", url, "--dry-run").stdout

    assert (done["dry_run"], done["found"], done["stored"], len(done["left"])) == (True, 2, 1, 1)
    assert "1 job would be imported" in words
    assert "1 job would stay in the old queue" in words
    assert waits(old) == 2
    with Forebay(url) as app:
        assert app.counts() == {}


def test_words_that_fit_nothing_are_named(producer: celery.Celery, url: str) -> None:
    producer.send_task(f"{PLACE}.add", (1, 2))
    words = ["celery", "--from", old_url(), "--to", url]
    call("migrate", "--url", url)
    maps = ["--queue", "celery=default", "--queue", "cellery=default", "--task-map", "shop.ad=shop.add"]

    done = bring(*words, *maps, "--only", "celery", "--only", "orders", "--dry-run")
    shown = call("import", *words, *maps).stdout

    assert done["unmatched"] == ["--only orders", "--queue cellery=default", "--task-map shop.ad=shop.add"]
    assert (done["old_queues"], done["old_tasks"]) == (["celery"], [f"{PLACE}.add"])
    assert "Nothing was found for --queue cellery=default, --task-map shop.ad=shop.add" in shown


def test_the_tasks_of_an_app_say_what_the_messages_do_not(
    producer: celery.Celery, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "newshop.py").write_text(
        f"from forebay import Forebay\nfrom tests.importers import shop\napp = Forebay({url!r})\n"
        f'app.task(name="{PLACE}.add", retries=7, timeout=60, tags=["sums"])(shop.add)\n'
    )
    monkeypatch.syspath_prepend(folder)
    fits = producer.send_task(f"{PLACE}.add", (1, 2), time_limit=5).id
    plain = producer.send_task(f"{PLACE}.add", (1, 2)).id
    producer.send_task(f"{PLACE}.add", (1, 2, 3))
    producer.send_task("shop.gone")

    done = bring("celery", "--from", old_url(), "--app", "newshop:app", status=1)

    assert (done["stored"], done["unknown_tasks"]) == (3, ["shop.gone"])
    assert "cannot be called like this" in done["left"][0]["reason"]
    with Forebay(url) as app:
        limits = [
            (job.timeout_ms, job.policy.max_retries, job.tags)
            for job in map(app.client.job, [fits, plain])
            if job
        ]
        assert limits == [(5_000, 7, ("sums",)), (60_000, 7, ("sums",))]


def test_what_an_app_encrypts_is_not_stored_in_plain_words(
    producer: celery.Celery, old: redis.Redis, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b64encode(bytes(range(32))).decode()
    (folder / "secretshop.py").write_text(
        f"from forebay import Forebay\napp = Forebay({url!r}, encryption_keys='one={key}')\n"
    )
    monkeypatch.syspath_prepend(folder)
    sent = producer.send_task(f"{PLACE}.add", ("number of a card",)).id
    words = ["celery", "--from", old_url(), "--to", url, "--app", "secretshop:app"]

    refused = call("import", *words)
    assert refused.exit_code == 2
    assert "leave out --to" in refused.stderr
    assert waits(old) == 1
    monkeypatch.setenv("FOREBAY_ENCRYPTION_KEYS", f"one={key}")
    assert bring(*words)["stored"] == 1

    with closing(open_engine(url).reader()) as reader:
        [job] = reader.jobs([JobId(sent)])
    assert job is not None
    assert b"card" not in job.payload


def test_an_import_that_is_killed_in_the_middle_is_begun_again_and_makes_nothing_twice(
    producer: celery.Celery, old: redis.Redis, url: str, folder: Path
) -> None:
    add = producer.tasks[f"{PLACE}.add"]
    ids = [add.delay(n, 1).id for n in range(250)]
    call("migrate", "--url", url)
    words = command("import", "celery", "--from", old_url(), "--to", url)
    app = shop_app(url)

    # The server answers and takes nothing out: so it is killed when a page is stored and not yet removed.
    old.client_pause(int(DEADLINE * 1_000), all=False)
    try:
        with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.DEVNULL) as first:
            until(lambda: len(app.search(limit=1_000).jobs) == 100)
            first.kill()
        until(lambda: not _killed(old))
    finally:
        old.client_unpause()
    assert old.llen("celery") == 250
    done = bring("celery", "--from", old_url(), "--to", url)

    assert (done["already"], done["stored"], done["removed"], done["agrees"]) == (100, 150, 250, True)
    assert waits(old) == 0
    with app:
        assert sorted(job.id for job in app.search(limit=1_000).jobs) == sorted(ids)
        assert ran(app, ["celery"], ids) == [n + 1 for n in range(250)]


def _killed(old: redis.Redis) -> int:
    """Ends the connections of an import; how many there were."""
    mine = [
        each["id"] for each in old.client_list() if each["name"] == "forebay" and each["db"] == str(DATABASE)
    ]
    return sum(bool(old.client_kill_filter(_id=each)) for each in mine)


def test_bad_words_are_refused_with_the_way_out(url: str) -> None:
    for words, message in (
        (["--from", old_url()], "name the target"),
        (["--from", "amqp://rabbit", "--to", url], "no address of a Redis server"),
        (["--from", old_url(), "--to", url, "--queue", "celery"], "should be OLD=NEW"),
        (["--from", old_url(), "--to", url, "--queue", "celery=a b"], "cannot name a queue"),
        (
            ["--from", "redis://127.0.0.1:1/0", "--to", url],
            "look whether the server runs and --from names it",
        ),
    ):
        result = call("import", "celery", *words)
        assert result.exit_code != 0
        assert message in result.stderr, words
