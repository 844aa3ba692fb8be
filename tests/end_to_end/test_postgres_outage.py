"""A PostgreSQL server that restarts, fails over, loses connections and answers, and says no, under workers:
nothing is lost or done twice, and no worker stays idle."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from threading import Lock
from time import sleep
from typing import Any, Final

import psycopg
import pytest

from forebay import Forebay
from forebay.app.task import Task
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnavailable
from tests.servers import Postgres
from tests.stores.postgres_support import end_connections, new_url, raw
from tests.stores.postgres_support import server as shared_server
from tests.stores.relay import Relay
from tests.stores.support import everything
from tests.worker.support import eventually

JOBS: Final = 400
DEADLINE: Final = 120.0
# What was accepted before a restart must be there after it.
DURABLE: Final = {
    "shared_buffers": "16MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}

Runs = Counter[int]


@pytest.fixture
def server() -> Iterator[Postgres]:
    started = Postgres(**DURABLE)
    yield started
    started.close()


@pytest.fixture
def standby(server: Postgres) -> Iterator[Postgres]:
    """A server that has everything before a commit on the other one is answered."""
    started = Postgres(server, **DURABLE)
    with raw(server.url()) as connection:
        connection.execute("alter system set synchronous_standby_names = '*'")
        connection.execute("select pg_reload_conf()")
        in_step = "select 1 from pg_stat_replication where sync_state = 'sync'"
        eventually(lambda: connection.execute(in_step).fetchone(), DEADLINE)
    yield started
    started.close()


def counting(app: Forebay, runs: Runs) -> Task[[int], int]:
    """A task that counts its runs. Its lease is longer than any outage here, so each job runs once."""
    lock = Lock()

    @app.task(name="count", lease=600)
    def count(number: int) -> int:
        with lock:
            runs[number] += 1
        sleep(0.01)
        return number

    return count


@pytest.mark.shows("R-EDGE-66")
def test_jobs_go_on_through_restarts_and_lost_connections_and_each_is_finished_once(server: Postgres) -> None:
    runs = Runs()
    with Forebay(server.url()) as app:
        count = counting(app, runs)
        app.enqueue_many([count.job(number) for number in range(JOBS)])
        with app.run_worker(threads=4), app.run_worker(threads=4):
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
            check_all(app, runs, JOBS)


def check_all(app: Forebay, runs: Runs, jobs: int) -> None:
    """Wait for the last job. No worker could take a job over while its holder went on: what ran, ran once."""
    eventually(lambda: done(app) == jobs, DEADLINE)
    health = app.client.read(lambda reader: reader.health())
    finished = app.client.read(lambda reader: everything(reader, JobQuery(states=(JobState.COMPLETED,))))
    assert health.problems == ()
    assert len(finished) == jobs
    assert sorted(runs) == list(range(jobs))
    assert set(runs.values()) == {1}


def test_workers_leave_a_server_that_has_become_read_only_for_the_one_that_took_over(
    server: Postgres, standby: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
    runs = Runs()
    with Forebay(f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write") as app:
        count = counting(app, runs)
        enqueue(app, count, range(JOBS // 4))
        with app.run_worker(threads=4), app.run_worker(threads=4):
            eventually(lambda: len(runs) > JOBS // 8, DEADLINE)
            with raw(server.url()) as connection:
                connection.execute("alter system set default_transaction_read_only = on")
                connection.execute("select pg_reload_conf()")
                eventually(lambda: "is read-only now" in caplog.text, DEADLINE)
                # A session that still commits there waits for a standby that would be gone.
                writing = "select from pg_stat_activity where backend_xid is not null"
                eventually(lambda: connection.execute(writing).fetchone() is None, DEADLINE)
            with raw(standby.url()) as connection:
                connection.execute("select pg_promote()")
            eventually(lambda: enqueue(app, count, range(JOBS // 4, JOBS // 2)), DEADLINE)
            eventually(lambda: len(runs) == JOBS // 2, DEADLINE)
            # A reader has noticed nothing so far.
            server.stop(signal.SIGINT)
            check_all(app, runs, JOBS // 2)


def test_answers_that_get_lost_after_the_commit_cost_nothing_but_time() -> None:
    relay = Relay(shared_server().port)
    url = new_url().replace(f":{shared_server().port}/", f":{relay.port}/")
    runs = Runs()
    with Forebay(url) as app:
        count = counting(app, runs)
        app.enqueue_many([count.job(number) for number in range(JOBS // 2)])
        with app.run_worker(threads=4):
            eventually(lambda: len(runs) > 0, DEADLINE)
            loss = relay.lose_answer(every=3, times=5)
            eventually(lambda: loss.lost == 5, DEADLINE)
            check_all(app, runs, JOBS // 2)
    relay.close()


# What a server may say for a while: disk full, no memory, shutting down, read-only, stopped for too long, in
# each other's way, a lock, a statement that takes too long.
ERROR_CODES: Final = ("53100", "53200", "57P01", "25006", "25P03", "40001", "55P03", "57014")


def test_a_worker_tries_again_whatever_the_server_says_and_goes_on_when_it_says_no_more() -> None:
    url = new_url()
    schema = url.rpartition("schema=")[2]
    runs = Runs()
    with Forebay(url) as app, raw() as connection:
        count = counting(app, runs)
        with app.run_worker(threads=1):
            for number, code in enumerate(ERROR_CODES):
                connection.execute(FAULT.format(schema=schema, code=code))
                count.enqueue(number)
                wait_for_rows(connection, f"select from {schema}.asked where last_value > 2")
                connection.execute(f"drop function {schema}.fault cascade; drop sequence {schema}.asked")
                wait_for_rows(connection, f"select from {schema}.finished offset {number}")
            check_all(app, runs, len(ERROR_CODES))


def wait_for_rows(connection: psycopg.Connection[Any], query: str) -> None:
    eventually(lambda: connection.execute(query).fetchone() is not None, DEADLINE)


# A sequence counts what is undone as well.
FAULT: Final = """
create sequence {schema}.asked;
create function {schema}.fault() returns trigger language plpgsql as
  $$ begin perform nextval('{schema}.asked'); raise exception 'no' using errcode = '{code}'; end $$;
create trigger fault before insert on {schema}.finished execute function {schema}.fault()
"""


def test_a_worker_without_a_connection_waits_for_one(caplog: pytest.LogCaptureFixture) -> None:
    server = Postgres(shared_buffers="16MB", max_connections="12", superuser_reserved_connections="0")
    runs = Runs()
    with Forebay(server.url()) as app:
        count = counting(app, runs)
        count.enqueue(0)
        with app.run_worker(threads=1), raw(server.url()) as connection, ExitStack() as taken:
            eventually(lambda: done(app) == 1, DEADLINE)
            while (
                "the store is not available" not in (text := caplog.text) or "no connection left" not in text
            ):
                with suppress(psycopg.OperationalError):
                    taken.enter_context(raw(server.url()))
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name = 'forebay'"
                )
            taken.close()
            eventually(lambda: enqueue(app, count, [1]), DEADLINE)
            check_all(app, runs, 2)
    server.close()


def enqueue(app: Forebay, count: Task[[int], int], numbers: Iterable[int]) -> bool:
    """Whether these are accepted now, or were before."""
    with suppress(StoreUnavailable):
        return bool(
            app.enqueue_many([count.using(idempotency_key=f"n{number}").job(number) for number in numbers])
        )
    return False


def done(app: Forebay) -> int:
    """Completed jobs; 0 where the connection was just lost."""
    with suppress(StoreUnavailable):
        return sum(counts.completed for counts in app.counts().values())
    return 0
