"""A worker that must stop while its store does not take its results reports those that are lost."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from forebay.domain.job_states import JobState
from tests.end_to_end.crews import DEADLINE, Crew, a_crew
from tests.redis_server import RedisServer
from tests.servers import Postgres
from tests.worker.support import eventually

pytestmark = pytest.mark.engine("postgres")  # supervisors and workers are the same on every engine

JOBS: Final = 3
NO_STORE: Final = 3
UNWRITTEN: Final = re.compile(r"ERROR.* (\d+) results? could not be written")


@pytest.fixture(params=[Postgres, RedisServer])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | RedisServer]:
    settings = {"appendonly": "yes"} if request.param is RedisServer else {}
    with closing(request.param(**settings)) as server:
        yield server


@pytest.fixture
def crew(tmp_path: Path, server: Postgres | RedisServer) -> Iterator[Crew]:
    with a_crew(tmp_path, server.url()) as crew:
        yield crew


@pytest.mark.parametrize("processes", [None, 2])
def test_a_worker_that_cannot_write_its_results_says_so_and_leaves_with_status_3(
    crew: Crew, server: Postgres | RedisServer, processes: int | None
) -> None:
    program = crew.worker("--drain-timeout", "1", processes=processes)
    jobs = [crew.enqueue("hold", number, lease=5) for number in range(JOBS)]
    for number in range(JOBS):
        crew.has_begun(number)
    server.stop(signal.SIGTERM if isinstance(server, RedisServer) else signal.SIGINT)
    crew.touch("go on")
    eventually(lambda: len(crew.ended()) == JOBS, DEADLINE)

    program.send_signal(signal.SIGTERM)

    assert program.ends() == NO_STORE
    assert sum(map(int, UNWRITTEN.findall(program.log))) == JOBS, program.log
    assert "run again" in program.log
    assert "did not stop" not in program.log
    server.start()
    crew.worker()
    records = [crew.final(job) for job in jobs]
    assert {(one.state, one.attempt, one.crashes) for one in records} == {(JobState.COMPLETED, 2, 1)}


@pytest.mark.parametrize("processes", [None, 2])
def test_a_worker_without_results_leaves_with_status_3_too_when_it_cannot_tell_what_it_holds(
    crew: Crew, server: Postgres | RedisServer, processes: int | None
) -> None:
    program = crew.worker("--drain-timeout", "1", processes=processes)
    server.stop(signal.SIGTERM if isinstance(server, RedisServer) else signal.SIGINT)
    program.wait_for_output("the store is not available")

    program.send_signal(signal.SIGTERM)

    assert program.ends() == NO_STORE
    assert "could not be written" not in program.log
    assert "did not stop" not in program.log


@pytest.fixture
def postgres_crew(tmp_path: Path) -> Iterator[Crew]:
    with closing(Postgres()) as server, a_crew(tmp_path, server.url()) as crew:
        crew.app.counts()  # the tables are there
        yield crew


@pytest.mark.parametrize("processes", [None, 2])
def test_a_worker_whose_results_need_what_another_transaction_holds_says_so_and_leaves_with_status_3(
    postgres_crew: Crew, processes: int | None
) -> None:
    crew = postgres_crew
    note = crew.app.task(name="note")(lambda number: number)
    with closing(psycopg.connect((crew.folder / "url").read_text())) as caller:
        note.using(unique_key="held").enqueue_tx(caller, 100)
        program = crew.worker("--drain-timeout", "1", processes=processes)
        jobs = [crew.enqueue("lead", number, lease=5) for number in range(JOBS)]
        eventually(lambda: len(crew.ended()) == JOBS, DEADLINE)

        program.send_signal(signal.SIGTERM)

        assert program.ends() == NO_STORE
        caller.rollback()
    assert sum(map(int, UNWRITTEN.findall(program.log))) == JOBS, program.log
    assert "because another transaction holds what" in program.log
    assert "did not stop" not in program.log
    crew.worker()
    assert {crew.final(job).state for job in jobs} == {JobState.COMPLETED}
