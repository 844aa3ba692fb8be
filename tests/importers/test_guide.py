"""The page about moving in does what it says, with the real packages, from its own words alone."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import huey
import pytest
import redis
import rq

from forebay import Forebay
from tests.cli.command_runner import command, environment, program
from tests.docs.pages import fenced, run, text
from tests.importers.support import DEADLINE
from tests.redis_server import RedisServer

PAGE: Final = "guide/importing.md"
ADDRESS: Final = "redis://localhost:6379/"


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    started = RedisServer()
    yield started
    started.close()


@pytest.fixture
def shop(own: RedisServer, folder: Path) -> Path:
    """A folder with the files of the page, whose server is that of the test."""
    with redis.Redis(port=own.port) as client:
        client.flushall()
    for block in fenced(text(PAGE)):
        if block.language == "python":
            [name] = re.findall(r"^# ([\w/]+\.py)$", block.body.partition("\n")[0])
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(block.body.replace(ADDRESS, f"redis://127.0.0.1:{own.port}/"))
    return folder


def commands(start: str) -> list[str]:
    """The commands of the page that begin like this, in their order."""
    bodies = [block.body for block in fenced(text(PAGE)) if block.language == "console"]
    lines = [line.strip() for body in bodies for line in body.splitlines()]
    return [line for line in lines if line.startswith(f"$ forebay {start}")]


def given(folder: Path, line: str, own: RedisServer) -> subprocess.CompletedProcess[str]:
    words = line.replace(ADDRESS, f"redis://127.0.0.1:{own.port}/")
    return program(folder, *shlex.split(words.removeprefix("$ forebay ")))


@contextmanager
def working(folder: Path, *words: str) -> Iterator[None]:
    with subprocess.Popen(
        command("worker", *words), cwd=folder, env=environment(), stderr=subprocess.DEVNULL
    ) as worker:
        try:
            yield
        finally:
            worker.terminate()


def test_a_backlog_of_celery_comes_over_as_the_page_says(shop: Path, own: RedisServer) -> None:
    sent = run(shop, "backlog.py")
    assert (sent.returncode, sent.stderr) == (0, "")
    [migrate], [look, bring] = commands("migrate"), commands("import celery")
    [serve] = commands("worker")
    [promised] = [block.body for block in fenced(text(PAGE)) if "would be imported" in block.body]

    assert given(shop, migrate, own).returncode == 0
    listed = given(shop, look, own)
    brought = given(shop, bring, own)
    again = given(shop, bring, own)

    lines = [line.removeprefix("    ") for line in promised.splitlines()]
    assert (
        listed.stdout.replace(f"127.0.0.1:{own.port}", "localhost:6379").splitlines()[: len(lines)] == lines
    )
    assert listed.returncode == brought.returncode == again.returncode == 1
    assert "3 jobs imported" in brought.stdout
    assert "1 job in the old queue now: as reported above" in brought.stdout
    assert serve.removeprefix("$ ") in brought.stdout
    assert "0 jobs imported" in again.stdout
    with (
        Forebay(f"sqlite:///{shop / 'jobs.db'}") as app,
        working(shop, *shlex.split(serve.removeprefix("$ forebay worker "))),
    ):
        jobs = {(job.task, job.state.value != "scheduled"): job.id for job in app.search().jobs}
        assert len(jobs) == 3
        assert app.job(jobs["shop.send", True]).result(timeout=DEADLINE) == "sent to ada@example.com"
        assert app.job(jobs["shop.bill", True]).result(timeout=DEADLINE) == 42
        assert app.job(jobs["shop.send", False]).refresh().policy.max_retries == 5


def test_jobs_of_rq_come_over_as_the_page_says(shop: Path, own: RedisServer) -> None:
    with redis.Redis(port=own.port, db=1) as client:
        old = rq.Queue("mail", connection=client).enqueue("mails.send", "ada@example.com")
    [bring] = commands("import rq")

    assert given(shop, bring, own).returncode == 0
    new = run(shop, "mail_app.py")

    assert (new.stdout, new.stderr) == ("queued\n", "")
    with Forebay(f"sqlite:///{shop / 'jobs.db'}") as app, working(shop, "mail_app:app", "--queues", "mail"):
        assert app.job(old.id).result(timeout=DEADLINE) == "sent to ada@example.com"
        results = {app.job(job.id).result(timeout=DEADLINE) for job in app.search().jobs}
        assert results == {"sent to ada@example.com", "sent to cleo@example.com"}


def test_tasks_of_huey_come_over_as_the_page_says(shop: Path, own: RedisServer) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    places = (
        huey.RedisHuey("shop", url=own.url(2)),
        huey.SqliteHuey("shop", filename=str(shop / "huey.db")),
    )
    ids = [place.task(name="add")(add)(20, 3).id for place in places]
    places[1].storage.close()  # Python 3.13 warns of an open file that is collected in a later test

    for line in commands("import huey"):
        done = given(shop, line, own)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout

    with Forebay(f"sqlite:///{shop / 'jobs.db'}") as app:
        app.task(name=f"{__name__}.add")(add)
        with app.run_worker():
            assert [app.job(each).result(timeout=DEADLINE) for each in ids] == [23, 23]


def test_tasks_of_celery_run_inside_a_project_of_django(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "proj.settings")
    (shop / "proj" / "__init__.py").write_text("from proj.celery import app\n")
    (shop / "orders" / "__init__.py").touch()
    settings = "INSTALLED_APPS = ['orders']\nSHOP = 'a shop'\nDATABASES = {}\nSECRET_KEY = 'x'\n"
    (shop / "proj" / "settings.py").write_text(settings)
    ask = (
        "import django; django.setup(); from orders.tasks import send; "
        f"print(send.delay(11).get(timeout={DEADLINE}))"
    )

    with working(shop, "proj.queue:queue"):
        answer = run(shop, "-c", ask)

    assert (answer.stdout, answer.stderr) == ("order 11 sent by a shop\n", "")
