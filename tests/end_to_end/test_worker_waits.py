"""A claimed job never waits behind a long one: 95 % short jobs and 5 % long ones on two workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from forebay import Forebay
from forebay.domain.job import QueueName
from tests.urls import ENGINES, url_of
from tests.worker.support import eventually

# The promise is 2 s; the machine may be busy with other tests.
DEADLINE = 120.0
SHORT, LONG = 133, 7
DEFAULT = QueueName("default")


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(url_of(request.param, tmp_path)) as app:
        yield app


@pytest.mark.parametrize("seed", range(3))
def test_no_short_job_waits_while_a_slot_is_free_anywhere(app: Forebay, seed: int) -> None:
    # The long jobs last as long as the test wants, and take seven of the eight slots. Whatever was claimed
    # together with them has to reach the eighth, wherever that is.
    over = Event()

    @app.task(name="mixed")
    def mixed(is_long: bool) -> bool:
        return over.wait(600.0 if is_long else 0.001)

    kinds = [True] * LONG + [False] * SHORT
    random.Random(seed).shuffle(kinds)
    with ExitStack() as workers:
        for _ in range(2):
            workers.enter_context(app.run_worker(threads=4))
        workers.callback(over.set)
        # Both know the task as a short one, and claim it in great numbers.
        for job in app.enqueue_many([mixed.job(False) for _ in range(600)]):
            job.wait(DEADLINE)

        jobs = app.enqueue_many([mixed.job(is_long) for is_long in kinds])
        short = [job for job, is_long in zip(jobs, kinds, strict=True) if not is_long]
        for job in short:
            job.wait(DEADLINE)

        # None of the long ones had to end for it; the last of them may be on its way from one worker to the
        # other.
        eventually(lambda: app.client.counts([DEFAULT])[DEFAULT].running == LONG, DEADLINE)
        assert all(job.refresh().failures == 0 for job in short)
