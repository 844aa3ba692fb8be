"""Programs that live for a moment: what one of them held when it died is given to another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.compat.work_queue.queue import WorkQueue
from forebay.compat.work_queue.task import WorkTask
from forebay.stores.redis import connection
from forebay.stores.redis.lua_scripts import load_scripts
from tests.evidence.papers import ROOT, SkewedClock
from tests.evidence.store_clocks import SteppedStore, use_stepped_scripts
from tests.urls import SHARED

PROGRAMS: Final = 5
PAUSE_SECONDS: Final = 5


@pytest.mark.shows("R-SWEEP-01")
@pytest.mark.parametrize("way", ["queue", "consumer"])
@pytest.mark.parametrize("engine", SHARED)
def test_one_of_several_short_programs_takes_over_what_a_killed_one_held(
    engine: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "load_scripts", load_scripts)  # and back again after the test
    use_stepped_scripts()
    store = SteppedStore(engine, tmp_path)
    job_id = enqueued(way, store.url, SkewedClock(tmp_path / "clock-store"))
    assert run(way, store.url, tmp_path, "die") == [job_id]

    taken: list[str] = []
    for number in range(1, PROGRAMS + 1):
        # Time passes for the store between two programs, and for no other: none of them lives that long.
        store.step_to(number * PAUSE_SECONDS)
        taken += run(way, store.url, tmp_path)

    assert taken[:1] == [job_id]


def enqueued(way: str, url: str, clock: SkewedClock) -> str:
    if way == "queue":
        with WorkQueue(url, clock=clock) as queue:
            [task_id] = queue.enqueue([WorkTask(items=["a"])])
            return task_id
    with Forebay(url, clock=clock) as app:

        @app.task(name="work")
        def work() -> None:
            pass

        return work.enqueue().id


def run(way: str, url: str, folder: Path, *options: str) -> list[str]:
    """The ids of what a program has taken."""
    command = [sys.executable, "-m", "tests.evidence.short_lived", way, url, str(folder), *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == (-9 if options else 0)
    return done.stdout.split()
