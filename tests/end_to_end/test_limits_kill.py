"""A worker process dies with a place under a limit: others go on within it, and no job is forgotten."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

MODULE: Final = """
from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from forebay import Forebay, current_job

app = Forebay(URL)
folder = Path(__file__).parent


@app.task(name="work", lease=2, limit_by={"tenant": "tenant"})
def work(tenant: str, number: int) -> int:
    if number == 0 and current_job().attempt == 1:
        (folder / "stuck.tmp").write_text(str(os.getpid()))
        (folder / "stuck.tmp").rename(folder / "stuck")
        while True:
            sleep(0.01)
    return number
"""
TENANTS: Final = ("a", "b", "c")


def elsewhere(tenant: str, number: int) -> int:
    raise NotImplementedError


@pytest.mark.shows("R-CONC-07", "R-SWEEP-26")
@pytest.mark.parametrize("engine", SHARED)
def test_limits_hold_when_a_worker_dies_and_no_job_is_forgotten(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    (tmp_path / "jobs.py").write_text(MODULE.replace("URL", repr(url)))
    with Forebay(url) as app:
        app.limits.set("key:tenant", concurrency=1)
        app.limits.set("global", concurrency=4)
        task = app.task(name="work", lease=2, limit_by={"tenant": "tenant"})(elsewhere)
        jobs = app.enqueue_many([task.job(TENANTS[n % 3], n) for n in range(18)])
        processes = [Process(tmp_path, "--threads", "3") for _ in range(2)]
        try:
            eventually((tmp_path / "stuck").exists, DEADLINE)
            os.kill(int((tmp_path / "stuck").read_text()), signal.SIGKILL)
            results = [job.result(timeout=2 * DEADLINE) for job in jobs]
        finally:
            for process in processes:
                process.popen.kill()
                process.popen.wait()

        assert results == list(range(18))
        records = [record for job in jobs if (record := app.client.job(job.id))]
        assert records[0].attempt > 1
        for tenant in TENANTS:
            own = [record for record in records if record.limit_keys == {"tenant": tenant}]
            spans = sorted((record.started_at or 0, record.finished_at or 0) for record in own)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
