"""Worker processes are killed at random moments; what their jobs do in the store's database happens once."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from tests.end_to_end.worker_processes import DEADLINE, Process
from tests.urls import JOINING, url_of
from tests.worker.support import eventually

JOBS: Final = 100
KILLS: Final = 3

MODULE: Final = """
from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from random import random
from time import sleep

import psycopg

from forebay import Forebay, current_job

URL, DATABASE = PLACES
LONGEST = 0.005 if URL.startswith("sqlite") else 0.1  # all processes share a SQLite file meanwhile
app = Forebay(URL)


def connect():
    if URL.startswith("sqlite"):
        return sqlite3.connect(DATABASE, timeout=30)
    return psycopg.connect(DATABASE)


def serve(number: int) -> None:
    with closing(connect()) as connection:
        connection.execute(f"insert into effects values ({number}, {os.getpid()})")
        sleep(random() * LONGEST)
        current_job().complete_tx(connection, number)
        if number == 1 and current_job().attempt == 1:
            os.write(os.open("within", os.O_CREAT | os.O_WRONLY), str(os.getpid()).encode())
            sleep(60)  # until it is killed
        sleep(random() * LONGEST)
        connection.commit()
    sleep(random() * 0.02)


app.task(name="serve", max_crashes=20)(serve)
app.task(name="serve_isolated", isolated=True, max_crashes=20)(serve)
"""


@pytest.fixture(params=JOINING)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that several processes can open."""
    return url_of(request.param, tmp_path)


def is_isolated(number: int) -> bool:
    return number % 4 == 0


class Effects:
    """The program's own table, beside the jobs."""

    def __init__(self, url: str) -> None:
        self.database = url.removeprefix("sqlite:///").partition("?")[0]
        self._url = url
        self.run("create table effects (number int, pid int)")

    def pids(self, wanted: int, *, isolated: bool) -> list[int]:
        """Who has had effects so far, the last one at the end; waits until there are that many effects."""
        found: list[tuple[int, int]] = []

        def is_there() -> bool:
            found[:] = self.run("select number, pid from effects")
            return len(found) >= wanted and any(is_isolated(number) is isolated for number, _ in found)

        eventually(is_there, DEADLINE)
        return [pid for number, pid in found if is_isolated(number) is isolated]

    def run(self, statement: str) -> list[Any]:
        is_file = self._url.startswith("sqlite")
        with closing(
            sqlite3.connect(self.database, timeout=30) if is_file else psycopg.connect(self.database)
        ) as connection:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
        return rows


def test_effects_in_the_stores_database_happen_exactly_once(tmp_path: Path, url: str) -> None:
    chance = Random(6)
    with Forebay(url) as app:
        app.counts()  # the store is there
        effects = Effects(url)
        (tmp_path / "jobs.py").write_text(MODULE.replace("PLACES", repr((url, effects.database))))
        jobs = [
            app.enqueue("serve_isolated" if is_isolated(number) else "serve", [number])
            for number in range(JOBS)
        ]
        process = Process(tmp_path, "--processes", "2", "--threads", "2", "--isolated", "1")
        try:
            within = tmp_path / "within"
            eventually(lambda: within.exists() and within.read_text(), DEADLINE)
            os.kill(int(within.read_text()), signal.SIGKILL)  # one is hit for certain, the others by chance
            for kill in range(KILLS):
                wanted = kill * JOBS // (KILLS + 1) + chance.randrange(8)
                with suppress(ProcessLookupError):  # it was killed before
                    pids = effects.pids(wanted, isolated=kill == 1)
                    os.kill(chance.choice(pids[-3:]), signal.SIGKILL)
            records = [job.wait(DEADLINE) for job in jobs]
        finally:
            process.popen.terminate()
            process.popen.wait()
            found = Counter(number for (number,) in effects.run("select number from effects"))
            effects.run("drop table effects")

        assert {record.state for record in records} == {JobState.COMPLETED}
        assert found == Counter(range(JOBS))
        assert [job.result(0) for job in jobs] == list(range(JOBS))
        assert app.client.read(lambda reader: reader.health()).problems == ()
        assert max(record.attempt for record in records) > 1, process.log
