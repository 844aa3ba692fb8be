"""The page about PostgreSQL does what it says, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from forebay.domain.job import QueueName
from forebay.errors import StoreUnusable
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from tests.docs.pages import blocks, run, whole
from tests.servers import Postgres
from tests.stores.support import WORKER, claim, complete, new_job
from tests.urls import url_of

PAGE = "guide/postgresql.md"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server whose roles and databases no other test uses."""
    started = Postgres(shared_buffers="16MB")
    yield started
    started.close()


def test_the_program_of_the_page_runs_against_a_server(own_server: Postgres, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(whole(PAGE, "python"))

    answer = run(tmp_path, "jobs.py", DATABASE_URL=own_server.url())

    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_the_program_of_the_page_about_transactions_runs(own_server: Postgres, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(whole("guide/transactions.md", "python"))

    answer = run(tmp_path, "shop.py", DATABASE_URL=own_server.url(), QUEUE_URL=url_of("redis", tmp_path))

    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_the_statement_of_the_page_about_troubles_finds_open_transactions(own_server: Postgres) -> None:
    [statement] = blocks("troubleshooting.md", "sql")
    with psycopg.connect(own_server.url()) as caller, psycopg.connect(own_server.url()) as admin:
        caller.execute("select 1")
        found = [pid for pid, *_ in admin.execute(statement.encode()).fetchall()]

        assert found == [caller.info.backend_pid]


def test_the_rights_of_the_page_are_enough_and_no_more(own_server: Postgres, tmp_path: Path) -> None:
    [script] = blocks(PAGE, "sql")
    before, after = script.split("-- as jobs_owner:", 1)
    owner = own_server.url().replace("postgres@", "jobs_owner@") + "?schema=jobs"
    with psycopg.connect(own_server.url(), autocommit=True) as admin:
        admin.execute(before.encode())
        migrated = run(tmp_path, "-m", "forebay", "migrate", FOREBAY_URL=owner)
        admin.execute(after.split("\n", 1)[1].encode())
    assert (migrated.returncode, migrated.stderr) == (0, "")
    program = own_server.url().replace("postgres@", "jobs_app@")

    engine = PostgresEngine(PostgresAddress(dsn=program, schema="jobs"))
    store, reader = engine.store(), engine.reader()
    store.insert([new_job(unique_key="k")] * 2)
    [job] = claim(store, 2)
    store.settle_and_claim(WORKER, [complete(job)])
    store.promote()
    store.prune()

    assert reader.counts()[QueueName("default")].completed == 1
    assert reader.health().problems == ()
    with pytest.raises(StoreUnusable, match="grant it"):
        PostgresEngine(PostgresAddress(dsn=program, schema="elsewhere")).store()
    store.close()
    reader.close()


def test_a_job_takes_as_much_room_as_the_page_says(own_server: Postgres) -> None:
    jobs, payload = 2_000, b'{"v":1}'
    store = PostgresEngine(PostgresAddress(dsn=own_server.url(), schema="room")).store()
    empty, none_finished = room(own_server, "%"), room(own_server, "finished%")
    store.insert([new_job(payload=payload)] * jobs)
    waiting = (room(own_server, "%") - empty) / jobs - len(payload)
    for _ in range(4):
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store, jobs // 4)])
    finished = (room(own_server, "finished%") - none_finished) / jobs - len(payload)
    store.close()

    assert 300 < waiting < 500
    assert 300 < finished < 500


def room(server: Postgres, tables: str) -> int:
    with psycopg.connect(server.url()) as admin:
        rows = admin.execute(
            "select pg_total_relation_size(oid) from pg_class"
            " where relnamespace = 'room'::regnamespace and relkind = 'r' and relname like %s",
            [tables],
        ).fetchall()
    return sum(size for (size,) in rows)
