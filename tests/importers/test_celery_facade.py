"""Functions decorated for Celery do the same under the real package and under our calls of its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from forebay import ConfigError, Forebay, JobFailed
from forebay.compat.celery import app as facade
from forebay.compat.celery.app import AsyncResult, Celery, shared_task
from tests.cli.command_runner import environment
from tests.importers.support import DEADLINE, old_url
from tests.stores.redis_support import server

TASKS = '''
from pathlib import Path

from {package} import Celery, shared_task

app = {make}


@app.task
def add(a, b):
    return a + b


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def flaky(self, times):
    """Asks for another attempt so often."""
    if self.request.retries < times:
        raise self.retry(exc=ValueError("not yet"))
    return [self.request.retries, list(self.request.args), self.name]


@app.task(bind=True)
def late(self):
    if self.request.retries == 0:
        self.retry(countdown=0.01, max_retries=1)
    return self.request.retries


@app.task(autoretry_for=(KeyError,), retry_kwargs={{"max_retries": 2, "countdown": 0}})
def counted(path, enough):
    """Fails until it has been called often enough."""
    with Path(path).open("a") as file:
        file.write("x")
    if len(Path(path).read_text()) < enough:
        raise KeyError(path)
    return len(Path(path).read_text())


@app.task(
    bind=True,
    autoretry_for=(OSError,),
    dont_autoretry_for=(FileNotFoundError,),
    retry_backoff=1,
    retry_jitter=False,
)
def missing(self):
    if self.request.retries == 0:
        raise OSError("again after a second")
    raise FileNotFoundError("never again")


@app.task
def broken(path):
    with Path(path).open("a") as file:
        file.write("x")
    raise ValueError("as it was to be expected")


@app.task
def calls_another(a):
    return add(a, 1) + flaky(0)[0]


@shared_task(name="{name}.shared")
def shared(word):
    return word.upper()
'''


def outcomes(tasks: ModuleType, folder: Path) -> list[Any]:
    """What becomes of one of each."""
    past = datetime.now(UTC) - timedelta(hours=1)  # noqa: TID251 - Celery's clock
    chosen = f"{tasks.__name__}-7"
    sent = [
        tasks.add.delay(2, 3),
        tasks.add.delay(2, b=4),
        tasks.add.apply_async((2,), {"b": 5}),
        tasks.add.apply_async(args=[2, 6], countdown=1, task_id=chosen),
        tasks.add.apply_async((2, 7), eta=past),
        tasks.add.apply_async((2, 8), expires=past),
        tasks.add.apply_async((2, 9), queue="celery", priority=3, expires=3_600),
        tasks.flaky.delay(0),
        tasks.flaky.delay(2),
        tasks.flaky.delay(3),
        tasks.late.delay(),
        tasks.counted.delay(str(folder / f"{tasks.__name__}.two"), 2),
        tasks.counted.delay(str(folder / f"{tasks.__name__}.nine"), 9),
        tasks.missing.delay(),
        tasks.broken.delay(str(folder / f"{tasks.__name__}.broken")),
        tasks.calls_another.delay(4),
        tasks.shared.delay("ada"),
        tasks.app.send_task(f"{tasks.__name__}.add", (3, 4)),
    ]
    found = []
    for each in sent:
        value = each.get(timeout=DEADLINE, propagate=False)
        assert each.ready()
        found.append((each.status, each.successful(), each.failed(), value if each.successful() else None))
    assert sent[3].id == chosen
    assert tasks.app.AsyncResult(chosen).get(timeout=1) == 8
    files = sorted(
        path.name.partition(".")[2] + path.read_text() for path in folder.glob(f"{tasks.__name__}.[tnb]*")
    )
    return [*found, files, tasks.add(1, 1), tasks.flaky(0), tasks.flaky.max_retries]


def made(folder: Path, name: str, package: str, make: str) -> ModuleType:
    (folder / f"{name}.py").write_text(TASKS.format(package=package, make=make, name=name))
    return import_module(name)


@contextmanager
def celery_worker(folder: Path, module: str) -> Iterator[None]:
    words = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        module,
        "worker",
        "--pool",
        "solo",
        "--loglevel",
        "CRITICAL",
    ]
    with subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.DEVNULL) as worker:
        try:
            yield
        finally:
            worker.terminate()


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(folder)
    for name in ("theirs", "ours"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(facade, "_SHARED", [])
    monkeypatch.setattr(facade, "_APPS", [])
    return folder


def test_the_same_functions_do_the_same_under_both(here: Path, old: redis.Redis, url: str) -> None:
    theirs = made(
        here, "theirs", "celery", f"Celery('theirs', broker={old_url()!r}, backend={server().url(8)!r})"
    )
    ours = made(here, "ours", "forebay.compat.celery", f"Celery('ours', broker={url!r})")
    with celery_worker(here, "theirs"):
        expected = outcomes(theirs, here)
    theirs.app.close()

    with ours.app.forebay.run_worker(queues=["celery"], threads=2):
        found = outcomes(ours, here)
    ours.app.close()

    named = [str(each).replace("theirs", "ours") for each in expected]
    assert [str(each) for each in found] == named
    assert expected[0] == ("SUCCESS", True, False, 5)
    assert [each[0] for each in expected[:18]].count("FAILURE") == 4


def test_a_worker_program_runs_what_another_program_has_asked_for(here: Path, url: str) -> None:
    ours = made(here, "ours", "forebay.compat.celery", f"Celery('ours', broker={url!r})")
    (here / "ours.py").write_text((here / "ours.py").read_text() + "\n\nqueue = app.forebay\n")
    result = ours.add.delay(20, 3)

    words = [sys.executable, "-m", "forebay", "worker", "ours:queue", "--threads", "1"]
    with subprocess.Popen(words, cwd=here, env=environment(), stderr=subprocess.DEVNULL) as worker:
        value = result.get(timeout=DEADLINE)
        worker.terminate()

    assert (value, result.state, result.result, worker.returncode) == (23, "SUCCESS", 23, 0)
    ours.app.close()


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    made = Celery("shop", broker=url)
    yield made
    made.close()


def test_settings_say_where_tasks_go_and_how_long_they_may_take(app: Celery) -> None:
    app.conf.task_routes = {"shop.mail.*": {"queue": "mail"}}
    app.conf.update(task_default_queue="rest", task_time_limit=60, task_serializer="json", timezone="UTC")
    routed = app.task(lambda: None, name="shop.mail.send")
    plain = app.task(lambda: None, name="shop.sum", time_limit=5, priority=9)

    jobs = [task.delay().handle.refresh() for task in (routed, plain)]

    assert [(job.queue, job.timeout_ms, job.priority) for job in jobs] == [
        ("mail", 60_000, 0),
        ("rest", 5_000, -9),
    ]
    assert app.forebay.queues() == ["mail", "rest"]
    with pytest.raises(ConfigError, match="before the app is first used"):
        app.conf.task_default_queue = "later"


def test_a_job_is_revoked_and_an_unknown_id_is_pending(app: Celery) -> None:
    task = app.task(lambda: None, name="shop.nothing")
    result = task.apply_async(countdown=3_600)
    assert (result.state, result.ready(), result.result) == ("PENDING", False, None)

    result.revoke()

    assert (result.state, app.AsyncResult("absent").status) == ("REVOKED", "PENDING")
    assert result == app.AsyncResult(result.id)


def test_an_unwanted_result_is_not_kept(app: Celery) -> None:
    silent = app.task(lambda: 7, name="shop.silent", ignore_result=True)

    with app.forebay.run_worker():
        assert (silent.delay().get(timeout=DEADLINE), silent()) == (None, 7)


def test_a_failure_says_what_went_wrong(app: Celery) -> None:
    @app.task
    def fail() -> None:
        raise KeyError("teapot")

    with app.forebay.run_worker():
        result = fail.delay()
        with pytest.raises(JobFailed, match="teapot"):
            result.get(timeout=DEADLINE)


def test_what_is_not_offered_is_refused_with_the_way_out(app: Celery) -> None:
    @app.task(bind=True)
    def task(self: Any) -> None:
        self.retry(throw=False)

    wrongs: dict[Callable[[], object], str] = {
        (lambda: task.s(1)): "workflow",
        (lambda: task.apply_async(link=1)): "follow-up",
        (lambda: task.apply_async(eta=1)): "eta must be a datetime",
        (lambda: task.apply_async(countdown=1, eta=datetime.now(UTC))): "not both",  # noqa: TID251
        (lambda: task.apply_async(priority=10)): "from 0, which comes first",
        (lambda: task.apply_async(serializer="pickle")): "always 'json'",
        (lambda: task.delay().forget()): "results are kept in the store",
        (lambda: task.apply_async(headers={"x": 1})): "as an argument of the task",
        (lambda: app.on_after_configure): "declare schedules",
        (lambda: app.add_periodic_task(1, 2)): "declare schedules",
        (lambda: app.task(lambda: None, name="f", base=object)): "use hooks of app.forebay",
        (lambda: setattr(app.conf, "worker_concurrency", 3)): "forebay worker",
        (lambda: task.apply_async(routing_key="x")): "name the queue",
        (lambda: app.teapot): "docs/guide/importing.md lists",
        (lambda: app.task(lambda: None, name="a", rate_limit="1/s")): "forebay limits",
        (lambda: app.task(lambda: None, name="b", soft_time_limit=3)): "is_overdue",
        (lambda: app.task(lambda: None, name="c", acks_late=False)): "always True",
        (lambda: app.task(lambda: None, name="d", max_retries=None)): "from 0 to 100",
        (lambda: app.task(lambda: None, name="e", retry_kwargs={"eta": 1})): "max_retries and countdown",
        (lambda: setattr(app.conf, "beat_schedule", {})): "schedules",
        (lambda: setattr(app.conf, "timezone", "Europe/Berlin")): "always 'UTC'",
        (lambda: app.conf.update(task_always_eager=True)): "forebay.testing",
        (lambda: Celery("x", broker="memory://", backend="redis://")): "results are kept in the store",
        (lambda: app.autodiscover_tasks): "import the modules",
        task: "option of retry",
        (lambda: task.request.delivery_info): "current_job",
    }
    for wrong, words in wrongs.items():
        with pytest.raises(ConfigError, match=words):
            wrong()
    assert not hasattr(task, "s")


def test_shared_tasks_need_an_app_and_belong_to_all(here: Path) -> None:
    shared = shared_task(name="shop.shared")(lambda word: word * 2)
    with pytest.raises(ConfigError, match="no app yet"):
        shared("a")

    with Forebay("memory://") as inner:
        app = Celery("shop", broker=inner)
        assert (shared("a"), shared.name) == ("aa", "shop.shared")
        with app.forebay.run_worker(queues=["celery"]):
            result = shared.delay("b")
            assert isinstance(result, AsyncResult)
            assert result.get(timeout=DEADLINE) == "bb"


@pytest.mark.parametrize("name", ["chain", "group", "chord", "signals", "signature", "current_app", "Reject"])
def test_an_import_of_what_is_not_offered_says_the_way_out(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the name {name} of Celery is not offered here: [a-z]"):
        exec(f"from forebay.compat.celery import {name}", {})  # noqa: S102 - the words of a program


def test_an_unknown_name_is_an_ordinary_import_error() -> None:
    with pytest.raises(ImportError, match="teapot"):
        exec("from forebay.compat.celery import teapot", {})  # noqa: S102 - as above


def test_a_result_is_looked_up_by_the_id_of_its_job(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    result = double.delay(4)
    with app.forebay.run_worker():
        assert AsyncResult(result.id).get(timeout=DEADLINE) == 8
    assert AsyncResult(result.id, app=app) == result

    monkeypatch.setattr("forebay.compat.celery.result.APPS", [])
    with pytest.raises(ConfigError, match=r"belongs to no app yet: make a Celery\(...\) first"):
        AsyncResult(result.id)
