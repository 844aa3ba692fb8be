"""Servers that freeze, are full, or may only be read: producers are told so, workers go on by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

import psycopg
import pytest
import redis

from forebay import Forebay
from forebay.app.task import Task
from tests.evidence.networks import ANSWER_SECONDS, BOUND_SECONDS, PATIENT_SECONDS
from tests.evidence.papers import DEADLINE, Papers, acceptance, refusal
from tests.redis_server import RedisServer
from tests.servers import Postgres
from tests.worker.support import eventually

Server = Postgres | RedisServer
STARTED: Final[dict[str, Callable[[], Server]]] = {
    "postgresql": lambda: Postgres(shared_buffers="16MB"),
    "redis": RedisServer,
}


@pytest.fixture(params=STARTED)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that a test may spoil."""
    started = STARTED[request.param]()
    yield started
    started.close()


def url_of(server: Server, response_timeout: int) -> str:
    more = "" if isinstance(server, Postgres) else "&persistence=none"
    return f"{server.url()}?response_timeout={response_timeout}{more}"


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """All processes of a server are stopped, and go on at the end."""
    first = server._process
    assert first is not None
    pids = [first.pid]
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pids += [int(pid) for pid, ppid in map(str.split, listed.stdout.splitlines()) if int(ppid) == first.pid]
    # The first one first: it starts no others then.
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def at_work(server: Server, papers: Papers) -> Iterator[tuple[Forebay, Task[[str], str]]]:
    """A worker with a job in hand and a producer, which do not wait long for an answer, beside a program that
    does."""
    with Forebay(url_of(server, PATIENT_SECONDS)) as app, Forebay(url_of(server, ANSWER_SECONDS)) as hasty:
        job = papers.task(app).enqueue("hold the first")
        papers.accepted(job)
        work = papers.task(hasty)
        with hasty.run_worker(threads=2):
            eventually(lambda: papers.holders(job), DEADLINE)
            yield app, work


@pytest.mark.shows("R-EDGE-65", "R-EDGE-66")
def test_a_frozen_server_is_given_up_and_found_again(server: Server, tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    with at_work(server, papers) as (app, work):
        papers.accepted(acceptance(work, "over a connection that stays open"))
        with frozen(server):
            began = monotonic()
            refusal(work, "answer")
            seconds = monotonic() - began
            papers.let_go("hold the first")  # it ends while no worker can be told
        papers.accepted(acceptance(work))
        papers.check(app)

    assert seconds < 10 * BOUND_SECONDS
    assert papers.starts() == 3


@contextmanager
def read_only(server: Server) -> Iterator[None]:
    if isinstance(server, RedisServer):
        with redis.Redis(port=server.port) as admin:
            admin.replicaof("127.0.0.1", "1")  # no server is there, so that it keeps what it has
            yield
            admin.replicaof("NO", "ONE")
        return
    change = "alter system set default_transaction_read_only = {}; select pg_reload_conf()"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        for words in change.format("on").split(";"):
            admin.execute(words.encode())
        yield
        admin.execute("set default_transaction_read_only = off")
        for words in change.format("off").split(";"):
            admin.execute(words.encode())


@pytest.mark.shows("R-EDGE-66")
def test_a_server_that_may_only_be_read_is_said_to_be_and_used_again_later(
    server: Server, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    with at_work(server, papers) as (app, work):
        with read_only(server):
            words = refusal(work, "is read-only now")
            papers.let_go("hold the first")
        papers.accepted(acceptance(work))
        papers.check(app)

    assert "failover" in words
    assert papers.starts() == 2


@pytest.mark.shows("R-TEST-54")
def test_a_server_without_memory_refuses_jobs_and_lets_what_runs_come_to_its_end(tmp_path: Path) -> None:
    papers, server = Papers(tmp_path), RedisServer()
    try:
        with at_work(server, papers) as (app, work), redis.Redis(port=server.port) as admin:
            admin.config_set("maxmemory", "1mb")
            words = refusal(work, "has no memory left")
            papers.let_go("hold the first")
            papers.wait(app)
            admin.config_set("maxmemory", "0")
            papers.accepted(acceptance(work))
            papers.check(app)
    finally:
        server.close()

    assert "has no memory left: raise maxmemory or prune" in words
    assert papers.starts() == 2
