"""Every statement of the hot path has an index behind it, whatever the planner knows about the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from forebay.stores.postgres.connection import Connection
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.stores.postgres.server_address import PostgresAddress
from tests.stores.postgres_support import new_schema, raw, server

ROWS: Final = 100_000
HOT: Final = (
    "jobs", "ready", "leases", "delayed", "side_lanes", "finished", "dead", "job_keys", "events",
    "failed_attempts", "job_archive", "job_progress", "queue_count_deltas", "worker_commands",
    "dependencies", "blocked", "dependency_outbox", "sequences", "audit",
)  # fmt: skip
MOST_READ: Final = 5_000
BAD_NODES: Final = ("Seq Scan", "Bitmap Heap Scan", "Hash Join", "Merge Join")

# 100,000 jobs of each kind; the ids tell where they are.
FILL: Final = """
insert into {s}.queues values ('default', 'active', '{{}}', 1, null, 0, 0);
insert into {s}.jobs (
  id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, age_capped, rescore_at,
  payload
)
select p.place || i, p.nth * 1000000 + i, 'default', 't', 0, i, i, i, i, i, false, nullif(i % 50, 0) * i, 'x'
from generate_series(1, {n}) i, (values ('r', 1), ('l', 2), ('d', 3), ('g', 4)) p (place, nth);
insert into {s}.ready (queue, age_capped, rank, seq, id)
select queue, age_capped, rank, seq, id from {s}.jobs where id like 'r%';
insert into {s}.leases select id, seq, queue, 1, 'w' || seq % 50, rank, 0, 0, rank, null, null, null
from {s}.jobs where id like 'l%';
insert into {s}.delayed select id, queue, run_at, seq, 'scheduled' from {s}.jobs where id like 'd%';
insert into {s}.side_lanes select id, queue, 'task:t', age_capped, rank, seq from {s}.jobs where id like 'g%';
insert into {s}.finished
select 'f' || i, i, 'default', 't', 'completed', 0, null, 1, 0, 0, i, i, i, i, i, false, 'w', i, null, null,
  null, null, null, i, null, 'x', null
from generate_series(1, {n}) i;
insert into {s}.dead
select 'x' || i, 5000000 + i, 'default', 't', 'dead', 0, null, 1, 0, 0, i, i, i, i, i, false, 'w', i, null,
  null, null, null, null, i, null, 'x', null
from generate_series(1, {n}) i;
insert into {s}.job_keys select 'default', 'unique', 'k' || i, 'r' || i, null from generate_series(1, {n}) i;
insert into {s}.events (kind, occurred_at, job_id, detail)
select 'note', i, 'r' || i, '' from generate_series(1, {n}) i;
insert into {s}.audit (kind, occurred_at, job_id, detail, position, previous, hash)
select 'key', i, 'r' || i, '', case when i <= {n} - 10 then i end, '', ''
from generate_series(1, {n}) i;
insert into {s}.failed_attempts
select 'r' || i, 1, 'failed', 'w', 'w', 0, 0, '' from generate_series(1, {n}) i;
insert into {s}.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, attempt, failures, excerpt
)
select 'a' || i, 'default', 't' || i % 1000, 'completed', i, i, 'd' || i % 1000, 1, 0, ''
from generate_series(1, {n}) i;
insert into {s}.job_progress select 'r' || i, 'log', 1, null, 1, i, 'x' from generate_series(1, {n}) i;
insert into {s}.queue_count_deltas (queue, state, jobs)
select 'default', 'pending', 0 from generate_series(1, {n}) i;
insert into {s}.dependencies select 'b' || i, 0, 'l' || i, 'cancel', 'open' from generate_series(1, {n}) i;
insert into {s}.blocked select 'b' || i, 'default', i, i, 1, i from generate_series(1, {n}) i;
insert into {s}.sequences select 's' || i % 100, i, 'l' || i from generate_series(1, {n}) i;
insert into {s}.fairness_keys select 'default', 's' || i, nullif(i % 500, 0) from generate_series(1, {n}) i;
insert into {s}.dependency_outbox (job_id, event) select 'l' || i, 'dead' from generate_series(1, {n}) i;
insert into {s}.worker_commands (id, worker, kind, actor, sent_at, expires_at)
select 'c' || i, 'w' || i, 'stop', '', i, i from generate_series(1, {n}) i;
"""

IDS: Final = [f"l{number}" for number in range(1, 101)]
HUNDRED: Final = range(100)
NEW: Final = [f"new{number}" for number in HUNDRED]
SOME: Final[dict[str, Any]] = {
    "queue": "default", "lane": "task:t", "room": 100, "limit": 100, "cap_ms": 1, "now": 50_000, "ids": IDS,
    "max_payload": 1, "tokens": [f"{each}:1" for each in IDS], "worker": "w1", "attempts": [1] * 100,
    "failures": [0] * 100, "crashes": [0] * 100, "reasons": [None] * 100, "results": [b"1"] * 100,
    "lease_ms": None, "probes": True, "given_ids": NEW, "only_dead": False, "dead": [], "job_id": "l1",
    "attempt": 1, "queues": ["default"] * 100, "kinds": ["unique"] * 100,
    "keys": [f"k{number}" for number in HUNDRED], "job_ids": IDS, "before": 100, "after": 0, "since": 0,
    "max_arrivals": 100, "max_events": 100, "max_lines": 100, "max_steps": 100, "rank": 50_000,
    "seq": 1_050_000, "age_capped": False, "id": "l1", "state": "cancelled", "errors": None, "reason": None,
    "result": None, "locations": ["live", "finished", "dead"], "rows": 999, "until": None,
    "after_rank": 1_000, "after_seq": 0, "xmax": "18446744073709551615", "running_xids": ["1", "2"],
    "options": None, "priority": 0, "ready_at": 1, "run_at": 1, "rescore_at": None, "has_rank": True,
    "task": "t1", "day": None, "ctids": [f"({page},1)" for page in HUNDRED], "lane_ctids": [],
    "lease_times": [None] * 100, "lease_limits": [1] * 100, "lease_ends": [1] * 100,
    "held_until": [1] * 100, "seqs": [2_000_000 + number for number in HUNDRED], "lanes": ["task:t"] * 100,
    "ranks": [1] * 100, "rescores": [None] * 100, "old_ranks": list(HUNDRED),
    "old_age_capped": [False] * 100, "sweeper": "w2", "name": "a", "kind": "note", "recorded_at": 1,
    "occurred_at": 1, "actor": None, "detail": "", "ran_by": "w", "outcome": "failed", "error": "",
    "started_at": 1, "body": b"x", "position": 0, "workers": ["w1", "w2"], "response": "", "sent_at": 1,
    "expires_at": 1, "created_at": 1, "finished_at": 1, "duration_ms": 1, "excerpt": "",
    "deadline_at": None, "due_at": 1, "payload": b"x", "unique_key": None, "states": ["pending"] * 100,
    "jobs": [1] * 100, "names": ["a", "b"], "scan_positions": [1, 1], "full_scan_at": [1, 1],
    "is_pending": True, "payloads": [b"x"] * 100, "unique_keys": [None] * 100, "settings": "{}",
    "channel": "c", "scope": "key:a", "scopes": [f"key:a:{number}" for number in HUNDRED],
    "recheck_times": [1] * 100, "rooms": [1] * 100, "dependants": [0] * 100, "unmet": [1] * 100,
    "child_ids": IDS, "positions": list(HUNDRED), "parent_ids": IDS, "on_failure": "cancel",
    "events": ["dead"] * 100, "event": "dead", "cursor_child_id": "", "cursor_position": 0,
    "cursor_child_ids": [""] * 100, "cursor_positions": [0] * 100, "busy": IDS, "max_dependants": 10,
    "sample": 10, "scan": "a", "steps": [1] * 100, "fairness_keys": [f"s{number}" for number in HUNDRED],
    "changes": None, "texts": ["tags a"], "cancelled": False, "moment": 50_000, "updated_at": 1,
    "cancel_reason": None, "key": "k1", "resolves_inline": True, "parent_id": "l1", "created_after": 0,
}  # fmt: skip
# Where a name means something else than in other statements.
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "finish": {"failures": 0, "crashes": 0},
    "next_due": {"queues": ["default"], "since": [0]},
    "throughput": {"since": 99_000},
    "update_job": {"state": "scheduled", "lane": None},
    "sweep": {"lease_ms": 1},
    "command_add": {"id": "new", "kind": "stop", "actor": ""},
    "return_to_queue": {"failures": 0, "crashes": 0, "state": "pending", "lane": None},
    "mark_dead": {"failures": 0, "crashes": 0, "state": "dead"},
    "archive_add": {"failures": 0, "day": "d1", "state": "completed"},
    "release_identical": {"failures": 0},
    "revive": {"failures": 0, "crashes": 0, "id": "new", "state": "scheduled", "seq": 9_000_000, "unmet": 0},
    "import_reserve_ids": {"ids": NEW, "seqs": [9_000_000 + number for number in HUNDRED]},
    "import_live": {"failures": 0, "crashes": 0, "id": "new", "state": "retrying", "seq": 9_000_000,
                   "unmet": 0},
    "import_finished": {"failures": 0, "crashes": 0, "id": "new", "seq": 9_000_000},
    "import_dead": {"failures": 0, "crashes": 0, "id": "new", "seq": 9_000_000, "state": "dead"},
    "promote_fair": {"age_capped": [False] * 100, "ids": [f"d{number}" for number in HUNDRED]},
    "insert": {"ids": NEW, "seqs": [9_000_000 + number for number in HUNDRED], "options": [None] * 100,
               "state": "pending", "lane": None},
    "edges_add": {"child_ids": NEW, "state": "open"},
    "edges_from_parents": {"states": ["open"]},
    "edges_set": {"state": "met"},
    "outbox_add_if_affected": {"states": ["open"]},
    "sequences_add": {"names": ["s1"] * 100, "ids": NEW},
    "sequences_add_unordered": {"names": ["s1"] * 100, "ids": NEW},
    "sequences_rename": {"new_ids": NEW},
    "sequences_among": {"names": ["s1", "s2"]},
    "sequences_first": {"names": ["s1", "s2"]},
    "dependants": {"after": "l1", "after_child_id": "", "after_position": 0},
    "outbox_set_cursor": {"id": 1},
    "outbox_lock_ids": {"ids": list(HUNDRED)},
    "outbox_remove_all": {"ids": list(HUNDRED), "states": ["open"]},
    "resolve_completed": {"ids": list(HUNDRED)},
    "audit": {"after": 150_000, "actions": '["api_key_changed"]'},
    "audit_link": {"position": 100_000, "previous": "", "hash": "", "id": 200_000},
    "insert_one": {"id": "new"},
    "insert_identical": {"ids": NEW, "options": [None] * 100},
    "insert_graph": {"ids": NEW, "options": [None] * 100, "tasks": ["t"] * 100, "child_ids": NEW,
                     "positions": list(HUNDRED), "pending": 50, "blocked": 50},
    "next_seqs": {"jobs": 100},
    "claim": {"ids": NEW},
    "settle_and_claim": {"since": 200_000, "lanes": ["task:u"], "lease_ms": 1, "extension_ms": 1,
                         "ids": sorted(IDS)},
    "claim_limited": {"since": 200_000, "lanes": ["task:u"], "lease_ms": 1, "extension_ms": 1},
    "settle_before_claim": {"ids": sorted(IDS)},
    "fairness_keys_join": {"names": ["default"], "step": 1},
    "park": {"ids": NEW, "expires_at": [None] * 100, "touched_ids": IDS, "age_capped": [False] * 100},
    "keys_take": {"keys": NEW},
    "keys_take_tx": {"keys": NEW},
    "commands_take": {"kinds": ["stop"]},
    "lanes_unpark": {"lanes": ["task:t", *(f"limit:{number}" for number in range(99))]},
    "promote": {"age_capped": [False] * 100, "ids": [f"d{number}" for number in HUNDRED]},
    "rescore": {"age_capped": [False] * 100, "ids": [f"r{number}" for number in HUNDRED],
                "seqs": [1_000_000 + number for number in HUNDRED]},
    "rescore_lane": {"age_capped": [False] * 100, "ids": [f"g{number}" for number in HUNDRED]},
}  # fmt: skip

# Those that go through many rows because that is what they are for, and when they do.
THROUGH_ALL: Final = {
    "check_counts": "when an operator asks whether all is well",
    "check_jobs": "when an operator asks whether all is well",
    "check_keys": "when an operator asks whether all is well",
    "check_edges": "when an operator asks whether all is well",
    "counts": "what was not folded yet; a maintenance task keeps that short",
    "queue_snapshots": "the same, and a line for each queue",
    "partition_cancelled": "when a day is dropped whole",
    "partition_counts": "when a day is dropped whole",
    "partition_history_remove": "when a day is dropped whole",
    "lane_counts": "when an operator asks what waits in lanes",
    "leases_of": "after an answer was lost",
    "fairness_try_lock": "as many as fairness keys have jobs that wait, when a maintenance task comes by",
    "fairness_keys_prune": "as many as fairness keys have jobs that wait, when a maintenance task comes by",
    "search": "up to the end that search_window has found",
}
KNOWLEDGE: Final = (
    "missing",
    "when empty",
    # Filling and analyzing takes a minute.
    pytest.param("fresh", marks=pytest.mark.extended),
    pytest.param("emptied", marks=pytest.mark.extended),
)


def filled(knowledge: str) -> str:
    """A store with many jobs; the statistics are fresh, missing, of the time when it was empty, or of when it
    was emptied: then what they say of columns is of the time before that."""
    schema = new_schema()
    PostgresEngine(PostgresAddress(dsn=server().url(), schema=schema)).store().close()
    with raw() as connection:
        names = "select tablename from pg_tables where schemaname = %s and tablename <> 'finished'"
        tables = [f"{schema}.{name}" for (name,) in connection.execute(names, [schema]).fetchall()]
        for table in tables:
            connection.execute(f"alter table {table} set (autovacuum_enabled = off)")
        if knowledge == "emptied":
            connection.execute(FILL.format(s=schema, n=ROWS))
            connection.execute(f"analyze {', '.join(tables)}")
            connection.execute(
                "; ".join(f"delete from {table}" for table in tables if not table.endswith(".schema"))
            )
        if knowledge in ("when empty", "emptied"):
            connection.execute(f"analyze {', '.join(tables)}")
        connection.execute(FILL.format(s=schema, n=ROWS))
        if knowledge == "fresh":
            connection.execute(f"analyze {', '.join(tables)}")
    return schema


@pytest.mark.shows("R-STORE-09", "R-STORE-17")
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_no_statement_reads_more_than_it_must_whatever_the_planner_knows(knowledge: str) -> None:
    schema = filled(knowledge)
    connection = Connection(PostgresAddress(dsn=server().url(), schema=schema))

    found = {
        (name, mode): trouble
        for name in scanned_tables(schema)
        for mode in ("force_generic_plan", "force_custom_plan")
        if (trouble := trouble_with(connection, statements_for(schema)[name].decode(), name, mode))
    }

    assert found == {}
    connection.close()
    with raw() as admin:
        admin.execute(f"drop schema {schema} cascade")


def scanned_tables(schema: str) -> list[str]:
    """The statements that read or change a hot table, but for those that go through all of it."""
    hot = re.compile(rf'"{schema}"\.({"|".join((*HOT, "live_jobs", "all_jobs"))})\b')
    statements = statements_for(schema)
    return [
        name for name, text in statements.items() if hot.search(text.decode()) and name not in THROUGH_ALL
    ]


def trouble_with(connection: Connection, statement: str, name: str, mode: str) -> str:
    """What is wrong with the plan of a prepared statement, as it is really carried out."""
    raw_connection = connection.open()
    with raw_connection.transaction(force_rollback=True):
        raw_connection.execute("select set_config('plan_cache_mode', %s, true)", [mode])
        raw_connection.execute("select set_config('forebay_tx.now', '50000', true)")
        raw_connection.execute("select set_config('forebay_tx.ended_ids', %s::text[]::text, true)", [IDS])
        plan = explained(raw_connection, statement, {**SOME, **OTHERS.get(name, {})})
        raw_connection.execute("deallocate looked_at")
    bad = [node["Node Type"] for node in nodes(plan) if is_bad(node)]
    if bad:
        return ", ".join(bad)
    read = rows_read(plan)
    return f"reads {read} rows" if read > MOST_READ else ""


def explained(connection: psycopg.Connection[Any], statement: str, given: dict[str, Any]) -> dict[str, Any]:
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", statement)))
    text = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", statement)
    types = ", ".join(type_of(given[name]) for name in names)
    values = ", ".join(psycopg.sql.Literal(given[name]).as_string(connection) for name in names)
    connection.execute(f"prepare looked_at{f' ({types})' if names else ''} as {text}".encode(), prepare=False)
    explain = f"explain (analyze, format json, timing off) execute looked_at{f' ({values})' if names else ''}"
    [([found],)] = connection.execute(explain.encode(), prepare=False).fetchall()
    plan: dict[str, Any] = found["Plan"]
    return plan


def type_of(value: object) -> str:
    """As the driver says it to the server."""
    if isinstance(value, bool):
        return "boolean"
    return "bigint" if isinstance(value, int) else "unknown"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def is_bad(node: dict[str, Any]) -> bool:
    table = str(node.get("Relation Name", ""))
    return node["Node Type"] in BAD_NODES and (not table or table.startswith(HOT))


def rows_read(plan: dict[str, Any]) -> int:
    """Rows that left the tables, and those that were thrown away there."""
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
        if str(node.get("Relation Name", "")).startswith(HOT)
    )
