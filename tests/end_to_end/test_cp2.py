"""CP2: handlers, concurrency and time limits of real workers, in threads, coroutines and processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.urls import SHARED, url_of
from tests.worker.executors.isolated_worker import is_alive
from tests.worker.support import eventually

pytestmark = pytest.mark.engine("sqlite")  # executors are the same on every engine

MODULE: Final = """
import asyncio
import os
from pathlib import Path
from time import sleep

from forebay import Forebay

app = Forebay("{url}")
folder = Path(__file__).parent


def say(word: str) -> None:
    part = folder / f"{{word}}.part"
    part.write_text(str(os.getpid()))
    part.rename(folder / word)


def told(mode: str, number: int, words: list[str], flag: bool) -> list[object]:
    return [mode, number, words, flag]


def hold(number: int) -> int:
    say(f"started-{{number}}")
    while not (folder / "go on").exists():
        sleep(0.01)
    return number


def linger(number: int) -> None:
    say(f"pid-{{number}}")
    try:
        sleep(5)
    finally:
        say(f"woke-{{number}}")


for mode, options in (("threads", {{}}), ("isolated", {{"isolated": True}})):

    def tell(number: int, words: list[str], *, flag: bool, mode: str = mode) -> list[object]:
        return told(mode, number, words, flag)

    app.task(name=f"{{mode}} tell", **options)(tell)
    app.task(name=f"{{mode}} other", **options)(say)
    app.task(name=f"{{mode}} hold", **options)(hold)
    app.task(name=f"{{mode}} linger", **options)(linger)


@app.task(name="coroutines tell")
async def tell_soon(number: int, words: list[str], *, flag: bool) -> list[object]:
    return told("coroutines", number, words, flag)


@app.task(name="coroutines hold")
async def hold_soon(number: int) -> int:
    say(f"started-{{number}}")
    while not (folder / "go on").exists():
        await asyncio.sleep(0.01)
    return number


@app.task(name="coroutines linger")
async def linger_soon(number: int) -> None:
    linger(number)  # which holds the event loop
"""


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture(params=["threads", "coroutines", "isolated"])
def mode(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def app(tmp_path: Path, url: str) -> Iterator[Forebay]:
    """The store of a worker process with three slots of each kind."""
    (tmp_path / "jobs.py").write_text(MODULE.format(url=url))
    worker = Process(
        tmp_path, "--threads", "3", "--coroutines", "3", "--isolated", "3", "--drain-timeout", "0"
    )
    try:
        with Forebay(url) as app:
            worker.wait_for_output("runs")
            yield app
    finally:
        worker.popen.kill()
        worker.popen.wait()


@pytest.mark.shows("R-TEST-11")
def test_cp2_2_the_right_handler_is_called_with_the_right_arguments(app: Forebay, mode: str) -> None:
    job = app.enqueue(f"{mode} tell", [7, ["a", "b"]], {"flag": True})

    assert job.result(timeout=DEADLINE) == [mode, 7, ["a", "b"], True]


@pytest.mark.shows("R-TEST-14")
def test_cp2_5_with_room_for_three_of_five_long_jobs_three_run_and_then_two(
    app: Forebay, tmp_path: Path, mode: str
) -> None:
    jobs = [app.enqueue(f"{mode} hold", [number]) for number in range(5)]

    def started() -> list[Path]:
        return [file for file in tmp_path.glob("started-*") if file.suffix != ".part"]

    eventually(lambda: len(started()) == 3, DEADLINE)
    eventually(lambda: app.counts()["default"].running == 3, DEADLINE)  # type: ignore[index]
    assert len(started()) == 3
    (tmp_path / "go on").touch()

    assert [job.result(timeout=DEADLINE) for job in jobs] == [0, 1, 2, 3, 4]


@pytest.mark.shows("R-TEST-15", "R-EDGE-78", "R-WORK-18")
def test_cp2_6_a_sleep_of_five_seconds_with_a_limit_of_one_fails_by_its_timeout_while_it_still_sleeps(
    app: Forebay, tmp_path: Path, mode: str
) -> None:
    # On a machine that is busy with other things a worker may come so late that a sleep is over: then again.
    for number in range(5):
        job = app.enqueue(f"{mode} linger", [number], timeout=1, retries=0).wait(timeout=DEADLINE)
        has_woken = (tmp_path / f"woke-{number}").exists()
        assert job.state is JobState.DEAD
        assert job.reason == "Timeout: ran longer than 1 s"
        if not has_woken:
            break
    else:
        pytest.fail("no attempt was settled before its code came back")
    # Isolated jobs lose their process, the others share the worker's. One that was stopped before its first
    # line, on a busy machine, has not said which one it had.
    for pid in [int(file.read_text()) for file in tmp_path.glob("pid-?")]:
        eventually(lambda pid=pid: is_alive(pid) is (mode != "isolated"), DEADLINE)  # type: ignore[misc]
    again = app.enqueue(f"{mode} tell", [7, ["a"]], {"flag": True})
    assert again.result(timeout=DEADLINE) == [mode, 7, ["a"], True]
