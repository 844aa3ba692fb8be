"""A worker process dies with the first job of a sequence: the others wait for it, and run in order."""

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


@app.task(name="work", lease=2, retries=0, sequence_by="account")
def work(account: str, number: int) -> int:
    if number == 0 and current_job().attempt == 1:
        (folder / "stuck.tmp").write_text(str(os.getpid()))
        (folder / "stuck.tmp").rename(folder / "stuck")
        while True:
            sleep(0.01)
    if number == 4:
        raise RuntimeError("no luck")
    return number
"""
ACCOUNTS: Final = ("a", "b", "c")
JOBS: Final = 15


def elsewhere(account: str, number: int) -> int:
    raise NotImplementedError


@pytest.mark.parametrize("engine", SHARED)
def test_sequences_keep_their_order_when_a_worker_dies(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    (tmp_path / "jobs.py").write_text(MODULE.replace("URL", repr(url)))
    with Forebay(url) as app:
        task = app.task(name="work", lease=2, retries=0, sequence_by="account")(elsewhere)
        jobs = app.enqueue_many([task.job(ACCOUNTS[n % 3], n) for n in range(JOBS)])
        processes = [Process(tmp_path, "--threads", "3") for _ in range(2)]
        try:
            eventually((tmp_path / "stuck").exists, DEADLINE)
            os.kill(int((tmp_path / "stuck").read_text()), signal.SIGKILL)
            records = [job.wait(timeout=2 * DEADLINE) for job in jobs]
        finally:
            for process in processes:
                process.popen.kill()
                process.popen.wait()

        assert [record.state for record in records] == [
            "dead" if number == 4 else "completed" for number in range(JOBS)
        ]
        assert records[0].attempt > 1
        for account in range(len(ACCOUNTS)):
            spans = [(record.started_at or 0, record.finished_at or 0) for record in records[account::3]]
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
