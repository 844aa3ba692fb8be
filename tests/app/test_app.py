"""The one object that a program holds in its hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from threading import get_ident

import pytest

from forebay import ConfigError, Forebay, StoreError
from forebay.domain.job_states import JobState
from forebay.testing.manual_clock import ManualClock


def double(number: int) -> int:
    return 2 * number


async def double_async(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def where() -> int:
    return get_ident()


# ------------------------------------------------------------------ what importing loads


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a fresh interpreter has after it has imported Forebay."""
    script = "import sys; from forebay import Forebay; print('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "name",
    [
        "asyncio",
        "base64",
        "concurrent.futures",
        "ctypes",
        "logging",
        "multiprocessing",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "forebay.worker",
        "forebay.maintenance",
        "forebay.app.job_context",
        "forebay.domain.settlement",
        "forebay.stores.contract.claims_and_results",
        "forebay.stores.memory",
        "forebay.stores.postgres",
        "forebay.stores.sqlite",
    ],
)
def test_a_program_that_imports_forebay_does_not_load(name: str, loaded: set[str]) -> None:
    assert name not in loaded


def test_a_program_that_enqueues_loads_no_worker_and_no_event_loop(tmp_path: Path) -> None:
    script = (
        "import sys, forebay; app = forebay.Forebay('sqlite:///jobs.db'); "
        "app.task(name='t')(lambda: None).enqueue(); "
        "print([name for name in ('asyncio', 'concurrent.futures', 'forebay.worker') if name in sys.modules])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert answer.stdout == "[]\n"


def test_a_worker_loads_no_event_loop_before_it_has_a_coroutine(tmp_path: Path) -> None:
    script = (
        "import sys, forebay; app = forebay.Forebay('sqlite:///jobs.db')\n"
        "handle = app.task(name='t')(lambda: sorted({'asyncio', 'ssl'} & sys.modules.keys())).enqueue()\n"
        "with app.run_worker(): print(handle.result(60))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert answer.stdout == "[]\n"


# ------------------------------------------------------------------ address and life


def test_without_an_address_jobs_live_in_a_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with Forebay() as app:
        assert list(tmp_path.iterdir()) == []  # nothing is opened before it is needed
        app.task(double).enqueue(1)

    assert (tmp_path / "forebay.db").is_file()


@pytest.mark.parametrize("url", ["mysql://localhost/jobs", "jobs.db", "", "sqlite://", "memory://here"])
def test_an_address_that_names_no_store_is_refused_with_those_that_do(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory://|sqlite:///"):
        Forebay(url)


def test_an_app_is_closed_at_the_end_of_its_block(url: str) -> None:
    with Forebay(url) as app:
        task = app.task(double)
        task.enqueue(1)

    with pytest.raises(StoreError, match="this app is closed"):
        task.enqueue(2)


@pytest.mark.shows("R-ENQ-18", "R-ENQ-19")
def test_what_was_enqueued_outlives_the_program(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Forebay(url) as app:
        job_id = app.task(name="double")(double).enqueue(4).id

    with Forebay(url) as app:
        app.task(name="double")(double)
        with app.run_worker(threads=1):
            assert app.job(job_id).result(timeout=120) == 8


SCRIPT = """
from forebay import Forebay
app = Forebay()
@app.task
def send(): ...
print(send.name)
"""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["jobs.py"], "jobs.send"), (["-m", "jobs"], "jobs.send"), (["-c", SCRIPT], "__main__.send")],
)
def test_a_task_of_the_program_itself_is_called_as_a_worker_would_import_it(
    arguments: list[str], name: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(SCRIPT)

    run = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert run.stdout == f"{name}\n"


# ------------------------------------------------------------------ expiry


def test_a_job_that_has_not_started_in_time_is_cancelled(app: Forebay, clock: ManualClock) -> None:
    handle = app.task(name="double", expires=60)(double).enqueue(1)

    clock.advance(seconds=61)
    app.client.write(lambda store: store.promote())

    job = handle.refresh()
    assert (job.state, job.reason) == (JobState.CANCELLED, "expired")


# ------------------------------------------------------------------ embedded workers


@pytest.mark.shows("R-JOB-08")
def test_jobs_are_run_while_the_block_lasts(live_app: Forebay) -> None:
    plain, coroutine = live_app.task(double), live_app.task(double_async)

    with live_app.run_worker(threads=2):
        handles = [task.enqueue(n) for n in range(20) for task in (plain, coroutine)]
        results = [handle.result(timeout=120) for handle in handles]

    assert results == [2 * n for n in range(20) for _ in "ab"]


def test_tasks_are_run_in_other_threads_and_nothing_is_run_after_the_block(live_app: Forebay) -> None:
    task = live_app.task(name="where")(where)

    with live_app.run_worker(threads=1):
        there = task.enqueue().result(timeout=120)
    after = task.enqueue()

    assert there != get_ident()
    assert after.refresh().state is JobState.PENDING


def test_a_worker_takes_the_queues_of_the_apps_tasks(live_app: Forebay) -> None:
    mail = live_app.task(name="mail", queue="mail")(double)
    post = live_app.task(name="post", queue="post")(double)

    assert live_app.queues() == ["mail", "post"]
    with live_app.run_worker(threads=1):
        assert (mail.enqueue(1).result(120), post.enqueue(2).result(120)) == (2, 4)


def test_a_worker_may_be_told_which_queues_to_take(live_app: Forebay) -> None:
    task = live_app.task(double)

    with live_app.run_worker(threads=1, queues=["urgent"]):
        left, run = task.enqueue(1), task.using(queue="urgent").enqueue(2)
        assert run.result(timeout=120) == 4

    assert left.refresh().state is JobState.PENDING


def test_an_app_without_tasks_takes_the_default_queue() -> None:
    assert Forebay("memory://").queues() == ["default"]


def test_one_text_is_not_a_list_of_queues(live_app: Forebay) -> None:
    with (
        pytest.raises(ConfigError, match=r"write queues=\['mail'\]"),
        live_app.run_worker(queues="mail"),
    ):
        pytest.fail("it was started")


def test_a_block_may_come_again(live_app: Forebay) -> None:
    task = live_app.task(double)

    results = []
    for number in range(3):
        with live_app.run_worker(threads=1):
            results.append(task.enqueue(number).result(timeout=120))

    assert results == [0, 2, 4]


def test_an_error_in_the_block_stops_the_worker_and_is_raised(live_app: Forebay) -> None:
    task = live_app.task(double)

    with pytest.raises(ZeroDivisionError), live_app.run_worker(threads=1):
        raise ZeroDivisionError

    assert task.enqueue(1).refresh().state is JobState.PENDING
