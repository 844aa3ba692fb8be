"""Commands about all jobs that fit tell how many another transaction holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from forebay.domain.job import JobId
from forebay.stores.factory import open_engine
from forebay.stores.postgres.engine import PostgresEngine
from tests.cli.command_runner import answer, call
from tests.stores.contract.steps import put_many
from tests.urls import url_of


@pytest.fixture
def engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> PostgresEngine:
    monkeypatch.setattr("forebay.stores.postgres.row_locks.LOCK_WAIT_SECONDS", 0.05)
    url = url_of("postgresql", folder)
    (folder / "forebay.toml").write_text(f'url = "{url}"\n')
    engine = open_engine(url)
    assert isinstance(engine, PostgresEngine)
    return engine


@pytest.fixture
def jobs(engine: PostgresEngine) -> Iterator[list[JobId]]:
    """Three jobs, the second of which an open transaction holds."""
    with closing(engine.store()) as store:
        ids = put_many(store, 3)
    with closing(psycopg.connect(engine.address.dsn)) as caller:
        caller.execute(f"select 1 from {engine.address.schema}.ready where id = '{ids[1]}' for update")
        yield ids
        caller.rollback()


@pytest.mark.parametrize(("verb", "past"), [("cancel", "cancelled"), ("delete", "deleted")])
def test_a_program_is_told_how_many_jobs_are_busy(jobs: list[JobId], verb: str, past: str) -> None:
    result = answer("jobs", verb, "--queue", "default", "--yes")

    assert (result[past], result["busy"]) == (2, 1)


def test_a_person_is_told_how_many_jobs_are_busy(jobs: list[JobId]) -> None:
    result = call("jobs", "cancel", "--queue", "default", "--yes")

    assert "2 jobs cancelled, 1 job locked by another transaction (try again later)" in result.output
