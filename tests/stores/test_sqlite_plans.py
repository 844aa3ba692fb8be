"""Statements find their rows by the index that they rely on, however many jobs there are."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.reader import _conditions
from forebay.stores.sqlite.schema_setup_and_check import load_sqlite_statements
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import raw
from tests.stores.support import new_job

STATEMENTS: Final = load_sqlite_statements()
NOW: Final = 1_800_000_000_000

# A fifth each: pending, scheduled, running, pending with an end, pending and to be rescored.
MIXING: Final = """
update forebay_jobs set state = 'scheduled', run_at = run_at + seq % 1000 where seq % 5 = 1;
update forebay_jobs set state = 'running', attempt = 1, worker = 'w' || seq % 10, started_at = created_at,
  lease_expires_at = created_at + seq % 1000 where seq % 5 = 2;
update forebay_jobs set expires_at = created_at + seq % 1000 where seq % 5 = 3;
update forebay_jobs set rescore_at = created_at + seq % 1000 where seq % 5 = 4;
insert into forebay_finished
select -seq, 'f' || seq, 0, queue, task, 'completed', priority, options, 1, 0, 0, created_at, created_at,
  ready_at, run_at, rank, 0, 'w', created_at, null, null, null, null, null, created_at, null, payload, null
from forebay_jobs;
insert into forebay_dead
select -seq - 1000000, 'd' || seq, 0, queue, task, 'dead', priority, options, 1, 0, 0, created_at, created_at,
  ready_at, run_at, rank, 0, 'w', created_at, null, null, null, null, null, created_at, null, payload, null
from forebay_jobs;
insert into forebay_job_progress (seq, kind, position, attempt, recorded_at, body)
select seq, 'log', seq % 7, 1, 0, '{}' from forebay_jobs;
insert into forebay_worker_commands (id, worker, kind, actor, sent_at, expires_at, delivered_at)
select id, 'w' || seq % 10, 'stop', '', 0, 0, iif(seq % 100, 1, null) from forebay_jobs;
"""


@pytest.fixture(scope="module", params=["as it is", "analysed"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """100,000 jobs in every kind of place, also with the statistics that ANALYZE leaves in a user's file."""
    path: Path = tmp_path_factory.mktemp("plans") / "jobs.db"
    store = SqliteEngine(str(path), clock=ManualClock(now_ms=NOW), durability="relaxed").store()
    for _ in range(10):
        store.insert([new_job()] * 10_000)
    store.close()
    with raw(path) as connection:
        connection.executescript(f"begin; {MIXING} commit;")
        if request.param == "analysed":
            connection.execute("analyze")
        yield connection


def plan(database: sqlite3.Connection, name: str, **values: object) -> list[str]:
    """How SQLite would carry a statement out, line by line."""
    text = re.sub(r"--.*", "", STATEMENTS[name])
    names = set(re.findall(r":([a-z_]+)", text))
    rows = database.execute(f"explain query plan {text}", dict.fromkeys(names) | values).fetchall()
    return [detail for *_, detail in rows]


def scans(lines: list[str]) -> list[str]:
    """The tables of jobs that would be read from end to end."""
    return [
        line
        for line in lines
        if re.match(
            r"SCAN forebay_(jobs|finished|dead|events|failed_attempts|job_progress|worker_commands)\b", line
        )
    ]


def sorts(lines: list[str]) -> list[str]:
    return [line for line in lines if "TEMP B-TREE" in line]


BY_INDEX: Final = {
    "candidates": "forebay_jobs USING INDEX forebay_jobs_ready (queue=? AND lane=? AND age_capped=?)",
    "expired_leases": "forebay_jobs USING INDEX forebay_jobs_lease (lease_expires_at<?)",
    "delayed_take_due": "forebay_jobs USING INDEX forebay_jobs_delayed (queue=? AND run_at<?)",
    "next_due": "forebay_jobs USING INDEX forebay_jobs_delayed (queue=?)",
    "expired": "forebay_jobs USING INDEX forebay_jobs_expires (expires_at>? AND expires_at<?)",
    "rescore_due": "forebay_jobs USING INDEX forebay_jobs_rescore (rescore_at>? AND rescore_at<?)",
    "prunable_finished": "forebay_finished USING INDEX forebay_finished_queue (queue=? AND finished_at<?)",
    "prunable_dead": "forebay_dead USING INDEX forebay_dead_queue (queue=? AND finished_at<?)",
}


@pytest.mark.shows("R-STORE-09", "R-STORE-16")
@pytest.mark.parametrize("name", BY_INDEX)
@pytest.mark.shows("R-STORE-17")
def test_a_list_comes_in_order_from_its_index(database: sqlite3.Connection, name: str) -> None:
    lines = plan(database, name)

    assert lines == [f"SEARCH {BY_INDEX[name]}"]


@pytest.mark.parametrize(
    "name",
    [
        "sweep",
        "lease_details",
        "finish",
        "mark_dead",
        "finish_remove",
        "return_to_queue",
        "renew",
        "promote",
        "rescore",
    ],
)
def test_one_job_is_found_by_its_seq(database: sqlite3.Connection, name: str) -> None:
    lines = plan(database, name)

    assert "SEARCH forebay_jobs USING INTEGER PRIMARY KEY (rowid=?)" in lines
    assert scans(lines) == []


@pytest.mark.parametrize("name", ["claim", "complete", "complete_remove"])
def test_jobs_that_go_together_are_found_by_their_seqs(database: sqlite3.Connection, name: str) -> None:
    lines = plan(database, name)

    by_seq = re.compile(r"SEARCH (forebay_jobs|job) USING INTEGER PRIMARY KEY \(rowid=\?\)")
    assert len(list(filter(by_seq.match, lines))) == 1
    assert scans(lines) == []


@pytest.mark.shows("R-STORE-09", "R-STORE-16")
def test_a_peek_reads_the_heads_of_both_classes_and_sorts_no_backlog(database: sqlite3.Connection) -> None:
    lines = plan(database, "peek")

    heads = [line for line in lines if line.startswith("SEARCH forebay_jobs USING INDEX forebay_jobs_ready")]
    assert len(heads) == 2
    assert all("queue=?" in line and "age_capped=?" in line for line in heads)
    assert scans(lines) == []
    # What is sorted are the heads, at most twice the room: the sort comes after both of them.
    assert len(sorts(lines)) == 1
    assert lines.index(sorts(lines)[0]) > max(lines.index(line) for line in heads)


@pytest.mark.parametrize("name", ["locate", "job"])
def test_a_job_is_found_in_every_table_without_a_scan(database: sqlite3.Connection, name: str) -> None:
    lines = plan(database, name)

    assert scans(lines) == []
    by_seq = [line for line in lines if "INTEGER PRIMARY KEY (rowid=?)" in line]
    assert [line.split()[1] for line in by_seq] == ["forebay_jobs", "forebay_finished", "forebay_dead"]


@pytest.mark.shows("R-STORE-09")
@pytest.mark.parametrize("states", [(), (JobState.PENDING,), (JobState.DEAD,), (JobState.COMPLETED,)])
def test_a_search_merges_the_tables_by_seq_and_sorts_nothing(
    database: sqlite3.Connection, states: tuple[JobState, ...]
) -> None:
    lines = plan(database, "search", **_conditions(JobQuery(states=states)), locations='["live","dead"]')

    assert "MERGE (UNION ALL)" in lines
    assert [line.split()[1] for line in lines if "INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in line] == [
        "forebay_jobs",
        "forebay_finished",
        "forebay_dead",
    ]
    assert (scans(lines), sorts(lines)) == ([], [])


def test_the_end_of_a_look_is_found_without_a_sort(database: sqlite3.Connection) -> None:
    lines = plan(database, "search_window", locations='["live"]', rows=10)

    assert (scans(lines), sorts(lines)) == ([], [])


@pytest.mark.shows("R-STORE-16")
@pytest.mark.parametrize(
    ("values", "index"),
    [
        ({}, "forebay_job_archive_day (day>? AND day<?)"),
        ({"day": "2027-01-15"}, "forebay_job_archive_day (day>? AND day<?)"),
        ({"task": "t"}, "forebay_job_archive_task (task=?)"),
        ({"day": "2027-01-15", "task": "t"}, "forebay_job_archive_task (task=?)"),
    ],
)
def test_the_archive_is_read_by_day_or_by_task(
    database: sqlite3.Connection, values: dict[str, str], index: str
) -> None:
    lines = plan(database, "archive", **values)

    assert f"SEARCH forebay_job_archive USING INDEX {index}" in lines
    assert sorts(lines) == []


def test_the_audit_log_is_paged_by_its_number(database: sqlite3.Connection) -> None:
    lines = plan(database, "audit")

    for table in ("forebay_audit", "forebay_events"):
        assert f"SEARCH {table} USING INTEGER PRIMARY KEY (rowid<?)" in lines
    assert sorts(lines) == []


@pytest.mark.parametrize("name", ["uncounted", "counts", "scan_next", "last_seq"])
def test_new_jobs_are_counted_from_the_end_of_the_table(database: sqlite3.Connection, name: str) -> None:
    assert scans(plan(database, name)) == []


@pytest.mark.parametrize("name", ["leases_of_dead_workers", "leases_of"])
def test_leases_of_a_worker_are_looked_for_among_running_jobs_only(
    database: sqlite3.Connection, name: str
) -> None:
    [line] = [line for line in plan(database, name, dead='["w1"]') if " forebay_jobs" in line]

    assert line == "SCAN forebay_jobs USING INDEX forebay_jobs_lease"


def test_requests_to_cancel_have_an_index_of_their_own(database: sqlite3.Connection) -> None:
    assert "SEARCH forebay_jobs USING INDEX forebay_jobs_cancel (worker=?)" in plan(
        database, "pending_cancels"
    )


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("failed_attempts", "PRIMARY KEY (job_id=?)"),
        ("failed_attempts_remove", "PRIMARY KEY (job_id=?)"),
        ("events", "INDEX forebay_events_job (job_id=?)"),
        ("events_remove", "INDEX forebay_events_job (job_id=?)"),
        ("events_prune", "INDEX forebay_events_occurred_at (occurred_at<?)"),
        ("audit_unchained", "INDEX sqlite_autoindex_forebay_audit_1 (position=?)"),
        ("audit_rest", "COVERING INDEX sqlite_autoindex_forebay_audit_1 (position=?)"),
        ("audit_chain", "INDEX sqlite_autoindex_forebay_audit_1 (position>?)"),
        ("audit_head", "INDEX sqlite_autoindex_forebay_audit_1 (position>?)"),
        ("keys_prune", "INDEX forebay_job_keys_held_until (held_until>? AND held_until<?)"),
        ("key_holder", "PRIMARY KEY (queue=? AND kind=? AND key=?)"),
        ("progress", "PRIMARY KEY (seq=?)"),
        ("progress_remove", "PRIMARY KEY (seq=?)"),
        ("progress_log_add", "PRIMARY KEY (seq=? AND kind=?)"),
        ("progress_log_trim", "PRIMARY KEY (seq=? AND kind=? AND position<?)"),
        ("progress_step_add", "PRIMARY KEY (seq=? AND kind=?)"),
        ("progress_step_bytes", "PRIMARY KEY (seq=? AND kind=?)"),
        ("command", "INDEX forebay_worker_commands_id (id=?)"),
        ("command_answer", "INDEX forebay_worker_commands_id (id=?)"),
        ("commands_pending", "INDEX forebay_worker_commands_pending (worker=?)"),
        ("commands_take", "INDEX forebay_worker_commands_pending (worker=?)"),
        ("throughput", "INDEX forebay_finished_queue (queue=? AND finished_at>?)"),
    ],
)
def test_history_and_keys_are_found_by_index(database: sqlite3.Connection, name: str, index: str) -> None:
    lines = plan(database, name)

    assert any(line.startswith("SEARCH") and line.endswith(index) for line in lines), lines
    assert scans(lines) == []


def test_notes_come_in_their_order_without_a_sort(database: sqlite3.Connection) -> None:
    assert plan(database, "progress") == ["SEARCH forebay_job_progress USING PRIMARY KEY (seq=?)"]
