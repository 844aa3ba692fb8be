"""A PostgreSQL server that restarts and loses connections under workers: nothing is lost or done twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from time import sleep

import pytest

from forebay import Forebay
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.errors import StoreUnavailable
from tests.servers import Postgres
from tests.stores.postgres_support import end_connections
from tests.stores.support import everything
from tests.worker.support import eventually

JOBS = 400
DEADLINE = 90.0


@pytest.fixture
def server() -> Iterator[Postgres]:
    # What was accepted before a restart must be there after it.
    started = Postgres(shared_buffers="16MB", fsync="on", synchronous_commit="on", full_page_writes="on")
    yield started
    started.close()


@pytest.mark.timeout(240)
def test_jobs_go_on_through_restarts_and_lost_connections_and_each_is_finished_once(server: Postgres) -> None:
    runs: Counter[int] = Counter()
    lock = Lock()
    with Forebay(server.url()) as app:

        @app.task(name="count", max_crashes=20)
        def count(number: int) -> int:
            with lock:
                runs[number] += 1
            sleep(0.01)
            return number

        app.enqueue_many([count.job(number) for number in range(JOBS)])
        with app.working(threads=4), app.working(threads=4):
            eventually(lambda: len(runs) > JOBS // 8, DEADLINE)
            end_connections(server.url())
            eventually(lambda: len(runs) > JOBS // 4, DEADLINE)
            server.stop(signal.SIGINT)
            server.start()
            eventually(lambda: len(runs) > JOBS // 2, DEADLINE)
            server.stop(signal.SIGQUIT)
            server.start()
            eventually(lambda: len(runs) > JOBS * 3 // 4, DEADLINE)
            end_connections(server.url())
            eventually(lambda: done(app) == JOBS, DEADLINE)

        assert sorted(runs) == list(range(JOBS))
        health = app.client.read(lambda reader: reader.health())
        finished = app.client.read(lambda reader: everything(reader, JobQuery(states=(JobState.COMPLETED,))))
    assert health.problems == ()
    assert len(finished) == JOBS
    # Nobody could take a job over while its worker went on: what ran, ran once.
    assert set(runs.values()) == {1}


def done(app: Forebay) -> int:
    """Completed jobs; 0 where the connection was just lost."""
    with suppress(StoreUnavailable):
        return sum(counts.completed for counts in app.counts().values())
    return 0
