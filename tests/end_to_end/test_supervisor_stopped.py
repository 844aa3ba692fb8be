"""A supervisor that is stopped alone: its worker processes renew their leases themselves."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from forebay import JobHandle
from forebay.clock import SystemClock
from forebay.domain.job_states import JobState
from forebay.domain.worker import HeartbeatStatus
from tests.end_to_end.crews import DEADLINE, Crew, Supervised, a_crew
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

pytestmark = pytest.mark.engine("sqlite")  # supervisors and workers are the same on every engine

LEASE: Final = 4.0
HEARTBEAT: Final = 5
LOCK_SECONDS: Final = 5
now_ms = SystemClock().now_ms


@pytest.fixture(params=SHARED)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def crew(tmp_path: Path, engine: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url_of(engine, tmp_path)) as crew:
        yield crew


def stop_alone(crew: Crew, engine: str, program: Supervised) -> int:
    """Stop the supervisor outside its transactions; the time of the stop, in milliseconds since 1970.

    A process that is stopped inside one keeps its locks. Then no process can renew these leases, and none can
    take them over either: that is safe, but it is not the case that these tests are about.
    """
    while True:
        program.send_signal(signal.SIGSTOP)
        eventually(lambda: _is_stopped(program.popen.pid))
        if _can_lock(crew, engine):
            return now_ms()
        program.send_signal(signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _can_lock(crew: Crew, engine: str) -> bool:
    url = (crew.folder / "url").read_text()
    try:
        if engine == "sqlite":
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=LOCK_SECONDS)) as file:
                file.execute("begin immediate")
        elif engine == "postgresql":
            server, _, schema = url.partition("?schema=")
            with psycopg.connect(server, options=f"-c search_path={schema}") as connection:
                connection.execute(f"set lock_timeout = '{LOCK_SECONDS}s'")
                connection.execute("select id from jobs for update")
                connection.execute("select id from workers for update")
    except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
        return False
    return True


def have_leases_after(jobs: list[JobHandle[Any]], at: int) -> bool:
    return all((job.refresh().lease_expires_at or 0) > at for job in jobs)


@pytest.mark.shows("R-LEASE-35")
def test_processes_of_a_stopped_supervisor_keep_their_jobs_and_stop_in_order_later(
    crew: Crew, engine: str
) -> None:
    program = crew.worker(
        "--heartbeat", str(HEARTBEAT), "--threads", "2", "--drain-timeout", "60", processes=2
    )
    jobs = [crew.enqueue("hold", number, lease=LEASE) for number in range(4)]
    for number in range(4):
        crew.has_begun(number)
    other = crew.worker()
    known = {info.id for info in crew.workers()}

    stopped_at = stop_alone(crew, engine, program)

    # The leases that the supervisor had renewed before have ended by then, and others had time to sweep.
    later = stopped_at + round(4_000 * LEASE)
    eventually(lambda: have_leases_after(jobs, later) or len(crew.began()) > len(jobs), DEADLINE)
    assert len(crew.began()) == len(jobs), "a job runs twice"
    eventually(
        lambda: all(info.heartbeat_at > stopped_at + 1_000 * HEARTBEAT for info in crew.workers()), DEADLINE
    )
    assert {info.id for info in crew.workers()} == known
    assert HeartbeatStatus.DEAD not in {info.heartbeat_status(now_ms()) for info in crew.workers()}
    assert program.log.count("this process renews its leases itself") == 2

    program.send_signal(signal.SIGCONT)
    program.wait_for_output("the supervisor renews the leases again", 2)
    crew.touch("go on")
    records = [crew.final(job) for job in jobs]
    assert {(one.state, one.attempt, one.crashes) for one in records} == {(JobState.COMPLETED, 1, 0)}
    other.send_signal(signal.SIGTERM)
    assert other.ends() == 0
    program.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert crew.workers() == []
    crew.all_have_ended()


def test_a_job_is_cancelled_while_its_supervisor_is_stopped(crew: Crew, engine: str) -> None:
    program = crew.worker(processes=1)
    job = crew.enqueue("hold", 1, lease=LEASE)
    crew.has_begun(1)
    stop_alone(crew, engine, program)

    job.cancel("not needed")

    assert crew.final(job).state is JobState.CANCELLED
    program.send_signal(signal.SIGCONT)
    assert crew.final(crew.enqueue("note", 2)).state is JobState.COMPLETED


def test_processes_of_a_stopped_supervisor_end_when_it_is_killed(crew: Crew, engine: str) -> None:
    program = crew.worker(processes=2)
    job = crew.enqueue("hold", 1, lease=LEASE)
    crew.has_begun(1)
    stopped_at = stop_alone(crew, engine, program)
    eventually(lambda: have_leases_after([job], stopped_at + round(2_000 * LEASE)), DEADLINE)

    os.kill(program.popen.pid, signal.SIGKILL)

    crew.all_have_ended()
    other = crew.worker()
    assert crew.has_begun(1, 2).pid == other.popen.pid
