"""A disk without room under producers and workers: they are told so, and go on when there is some again."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest

from forebay import Forebay
from tests.evidence.papers import DEADLINE, LEASE_SECONDS, Papers, a_worker, acceptance, refusal
from tests.servers import Postgres
from tests.worker.support import eventually

NOT_FULL: Final = resource.RLIM_INFINITY


@pytest.mark.shows("R-EDGE-66")
def test_a_worker_whose_disk_is_full_keeps_what_has_ended_until_there_is_room(tmp_path: Path) -> None:
    url, papers = f"sqlite:///{tmp_path}/jobs.db", Papers(tmp_path)
    with Forebay(url) as app, a_worker(url, tmp_path, "full") as worker:
        work = papers.task(app, LEASE_SECONDS)
        job = work.enqueue("hold it")
        papers.accepted(job)
        eventually(lambda: papers.holders(job), DEADLINE)
        # To this one process every file is full that is larger than a page.
        resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (4_096, NOT_FULL))
        papers.let_go("hold it")
        log = tmp_path / "log-full"
        eventually(lambda: "the store is not available" in log.read_text(), DEADLINE)
        papers.accepted(work.enqueue("meanwhile"))
        resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (NOT_FULL, NOT_FULL))
        papers.check(app)

    assert "disk" in log.read_text()


@pytest.fixture
def server() -> Iterator[Postgres]:
    started = Postgres(shared_buffers="16MB")
    yield started
    started.close()


# Tables without a row yet, into which keys and ended jobs go.
EMPTY: Final = """
select current_setting('data_directory') || '/' || pg_relation_filepath(oid) from pg_class
where relnamespace = 'forebay'::regnamespace and relkind = 'r' and relname ~ '^(job_keys|finished_.*)$'
  and pg_relation_size(oid) = 0
"""
SESSIONS: Final = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name like 'forebay%'
"""


@contextmanager
def without_room(server: Postgres) -> Iterator[None]:
    """In the place of some files is a device that is always full: what the server says of it is what it says
    of a full disk. Sessions end on both sides of it, since they keep files open."""
    with psycopg.connect(server.url(), autocommit=True) as admin:
        files = [Path(name) for (name,) in admin.execute(EMPTY)]
        assert len(files) > 1
        for file in files:
            file.rename(file.with_suffix(".kept"))
            os.symlink("/dev/full", file)
        admin.execute(SESSIONS)
        yield
        for file in files:
            file.with_suffix(".kept").replace(file)
        admin.execute(SESSIONS)


@pytest.mark.shows("R-EDGE-65", "R-EDGE-66")
def test_a_server_whose_disk_is_full_refuses_jobs_clearly_and_ends_those_that_run_later(
    server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    papers = Papers(tmp_path)
    with Forebay(server.url()) as app, app.run_worker(threads=1):
        work = papers.task(app)
        job = work.enqueue("hold it")
        papers.accepted(job)
        eventually(lambda: papers.holders(job), DEADLINE)
        with without_room(server):
            words = refusal(work, "has no room left")
            papers.let_go("hold it")
            eventually(lambda: "the store is not available" in caplog.text, DEADLINE)
        papers.accepted(acceptance(work))
        papers.check(app)

    assert "has no room left: free some space on its disk" in words
    assert papers.starts() == 2


@pytest.fixture
def durable() -> Iterator[Postgres]:
    started = Postgres(shared_buffers="16MB", synchronous_commit="on")
    yield started
    started.close()


# The file of the log that comes next.
NEXT_LOG: Final = """
select current_setting('data_directory') || '/pg_wal/'
  || pg_walfile_name(pg_current_wal_lsn() + pg_size_bytes(current_setting('wal_segment_size')))
"""


@pytest.mark.shows("R-EDGE-65", "R-EDGE-66")
def test_a_server_whose_log_finds_no_room_goes_down_and_nothing_accepted_is_lost(
    durable: Postgres, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with Forebay(durable.url()) as app, app.run_worker(threads=1):
        work = papers.task(app)
        job = work.enqueue("hold it")
        papers.accepted(job)
        eventually(lambda: papers.holders(job), DEADLINE)
        log = full_log(durable)
        words = refusal(work, "cannot be reached")
        papers.let_go("hold it")
        durable.stop(signal.SIGQUIT)
        log.unlink()
        durable.start()
        papers.accepted(acceptance(work))
        papers.check(app)

    assert "cannot be reached" in words
    assert papers.starts() == 2
    assert "PANIC:  could not write to log file" in (log.parents[2] / "log").read_text()


def full_log(server: Postgres) -> Path:
    """Let the log go on in a file for which there is no room; PostgreSQL goes down with that."""
    with psycopg.connect(server.url(), autocommit=True) as admin:
        [(name,)] = admin.execute(NEXT_LOG).fetchall()
        file = Path(name)
        file.unlink(missing_ok=True)
        os.symlink("/dev/full", file)
        with suppress(psycopg.OperationalError):  # the next writer, and this may be it
            admin.execute("select pg_switch_wal()")
    return file
