"""Schedulers that are killed in the middle of firing: each run becomes a job exactly once all the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.app.schedules import all_schedules
from forebay.domain.job import NewJob
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.stores.contract.store import Store
from tests.end_to_end.worker_processes import DEADLINE
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

MINUTE: Final = 60_000
SCHEDULES: Final = 150
MISSED: Final = 8
# Small batches, no throughput limit, no turns: nothing but the store keeps them from firing the same run
# twice.
PROGRAM: Final = """
import sys
from random import random
from forebay import Forebay
from forebay.app.due_schedules import fire_due

store = Forebay(sys.argv[1]).engine.store()
while True:
    fire_due(store, random, 3)
"""


def started(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdin=subprocess.DEVNULL)


def save_overdue(app: Forebay) -> int:
    """Schedules of every minute whose last runs were missed; the time of the first of them."""
    first = app.client.read(lambda reader: reader.now()) // MINUTE * MINUTE - (MISSED - 1) * MINUTE

    def save(store: Store) -> None:
        for number in range(SCHEDULES):
            definition = ScheduleDefinition(
                name=f"s{number}", job=NewJob(task="t"), every_ms=MINUTE, catch_up_limit=100
            )
            assert store.save_schedule(Schedule(definition=definition, next_run_at=first, check_at=first))

    app.client.write(save)
    return first


@pytest.mark.shows("R-TEST-31", "R-TEST-46")
@pytest.mark.shows("R-SCHED-37", "R-EDGE-36", "R-EDGE-38", "R-SCHED-55", "R-SCHED-48")
@pytest.mark.parametrize("engine", SHARED)
def test_each_run_is_enqueued_once_whichever_scheduler_is_killed(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    with Forebay(url) as app:
        first = save_overdue(app)

        def reached(share: float) -> bool:
            return sum(one.enqueued_runs > 0 for one in app.client.read(all_schedules)) >= share * SCHEDULES

        processes = [started(url), started(url)]
        try:
            for share in (0.2, 0.5, 0.8):
                eventually(partial(reached, share), DEADLINE)
                processes[-2].kill()
                processes.append(started(url))
            eventually(partial(reached, 1.0), DEADLINE)
        finally:
            for process in processes:
                process.kill()
                process.wait()

        schedules = app.client.read(all_schedules)
        runs = defaultdict(list)
        after: str | None = None
        while True:
            page = app.search(limit=1_000, after=after)
            for job in app.client.jobs([one.id for one in page.jobs]):
                assert job is not None
                runs[job.metadata["schedule_id"]].append(job.metadata["scheduled_for"])
            if (after := page.after) is None:
                break
        assert app.client.read(lambda reader: reader.health()).problems == ()

    assert Counter(len(times) for times in runs.values()).keys() <= {MISSED, MISSED + 1, MISSED + 2}
    for schedule in schedules:
        times = runs[schedule.name]
        assert len(set(times)) == len(times) == schedule.enqueued_runs
        assert schedule.next_run_at == first + schedule.enqueued_runs * MINUTE
        assert schedule.skipped_runs == schedule.failed_runs == 0
