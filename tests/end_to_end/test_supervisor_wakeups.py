"""Hints on PostgreSQL under a supervisor: it listens for all its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.domain.job_states import JobState
from tests.end_to_end.crews import DEADLINE, a_crew
from tests.stores.postgres_support import new_url, raw
from tests.worker.support import eventually


@pytest.mark.shows("R-STORE-30")
def test_one_connection_listens_for_all_processes_of_a_supervisor(tmp_path: Path) -> None:
    url = new_url()
    with a_crew(tmp_path, url) as crew:
        program = crew.worker(processes=2)
        program.wait_for_output(" runs", 2)

        eventually(lambda: listeners(url) == 1, DEADLINE)
        jobs = [crew.enqueue("note", number) for number in range(3)]

        assert {crew.final(job).state for job in jobs} == {JobState.COMPLETED}
        assert listeners(url) == 1


def listeners(url: str) -> int:
    with raw() as connection:
        [(count,)] = connection.execute(
            "select count(*) from pg_stat_activity where query = %s",
            [f'listen "forebay:{url.rpartition("schema=")[2]}"'],
        ).fetchall()
    return int(count)
