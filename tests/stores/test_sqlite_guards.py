"""Each writing statement by itself: with one part of its guard wrong, it touches no row.

Through the store contract most of these guards stand behind another one, because the engine has looked at the
row in the same transaction. They are kept all the same: a change of the order of the looks must not lose
them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from forebay.domain.job import DEFAULT_QUEUE, WorkerId
from forebay.domain.job_history import AUDIT_RETENTION_MS, Event, EventKind
from forebay.domain.lane import lanes_for_program
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate, StepResult
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.domain.worker_command import CommandKind
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.schema_setup_and_check import load_sqlite_statements
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import raw
from tests.stores.support import WORKER, claim, complete, fail, new_job

Values = dict[str, Any]
RUNNING, WAITING = ("running",), ("pending", "scheduled", "retrying", "blocked")
LIVE = (*RUNNING, *WAITING)
END: Values = {"state": "completed", "failures": 0, "crashes": 0, "reason": None, "result": None}
PLACE: Values = {"rank": 1, "age_capped": 0, "rescore_at": None}

# A statement, the table it looks at, the states it may find there, and which values it is guarded by.
GUARDED: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("claim", "jobs", ("pending",), ()),
    ("complete", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("finish", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("mark_dead", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("finish_remove", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("return_to_queue", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("lease_details", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("errors_save", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("renew", "jobs", RUNNING, ("job_id", "attempt", "worker")),
    ("sweep", "jobs", RUNNING, ("attempt", "worker")),
    ("cancel_request", "jobs", RUNNING, ("job_id",)),
    ("mark_dead_running", "jobs", RUNNING, ("job_id",)),
    ("remove_running", "jobs", RUNNING, ("job_id",)),
    ("finish_waiting", "jobs", WAITING, ("job_id",)),
    ("mark_dead_waiting", "jobs", WAITING, ("job_id",)),
    ("remove_waiting", "jobs", WAITING, ("job_id",)),
    ("promote", "jobs", ("scheduled", "retrying"), ()),
    ("park", "jobs", ("pending",), ()),
    ("rescore", "jobs", ("pending",), ()),
    ("rescore_drop", "jobs", ("running", "scheduled", "retrying", "blocked"), ()),
    ("update_job", "jobs", RUNNING, ("job_id", "old_state")),
    ("revive_finished", "finished", ("cancelled",), ("job_id",)),
    ("revive_dead", "dead", ("dead",), ("job_id",)),
    ("remove_finished", "finished", ("completed", "cancelled"), ("job_id",)),
    ("remove_dead", "dead", ("dead",), ("job_id",)),
]
STATES = {"jobs": LIVE, "finished": ("completed", "cancelled"), "dead": ("dead",)}
NAMES = [name for name, *_ in GUARDED]


class Bench:
    """A store with one job in each table, and statements run against it in transactions that are undone."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.store = SqliteEngine(str(path), clock=clock).store()
        self.store.insert([new_job(), new_job(policy=RetryPolicy(max_retries=0)), new_job(), new_job()])
        ended, failed, running = claim(self.store, 3)
        worker = WorkerId(running.worker or "")
        self.store.settle_and_claim(worker, [complete(ended), fail(failed)])
        self.database = sqlite3.connect(path, isolation_level=None)
        self.jobs = {"jobs": running, "finished": ended, "dead": failed}
        self.now = clock.now_ms()

    def values(self, table: str) -> Values:
        job = self.jobs[table]
        token = {"seq": job.seq, "job_id": job.id, "attempt": job.attempt, "worker": job.worker}
        rest = {
            "now": self.now + 1,
            "run_at": 1,
            "ready_at": 1,
            "due_at": 1,
            "priority": 0,
            "metadata": None,
            "has_rank": False,
            "is_moved": False,
            "errors": "[]",
            "lease_ms": 1,
            "lease_expires_at": 1,
            "extension_ms": 86_400_000,
            "sweeper": "s",
            "queue": "default",
            "old_state": "running",
            "unmet": 0,
            "lane": None,
        }
        return {**END, **PLACE, **token, **rest}

    def rows(self, name: str, table: str, state: str, **changes: Any) -> int:
        """How many rows a statement finds or changes when the job is in this state."""
        self.database.execute("begin immediate")
        try:
            seq = self.jobs[table].seq
            self.database.execute(f"update forebay_{table} set state = ? where seq = ?", (state, seq))
            values = {**self.values(table), **changes}
            if name in ("return_to_queue", "update_job", "revive_finished", "revive_dead"):
                values["state"] = "pending"
            # Some statements are for many jobs at once.
            values["seqs"] = json.dumps([values["seq"]])
            values["ended"] = json.dumps({values["seq"]: values["job_id"]})
            cursor = self.database.execute(load_sqlite_statements()[name], values)
            found = len(cursor.fetchall())
            return max(found, cursor.rowcount)
        finally:
            self.database.execute("rollback")

    def close(self) -> None:
        self.database.close()
        self.store.close()


@pytest.fixture
def bench(tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(tmp_path / "jobs.db", clock)
    yield bench
    bench.close()


@pytest.mark.parametrize(("name", "table", "states", "guards"), GUARDED, ids=NAMES)
def test_a_statement_finds_its_job_in_the_states_it_is_made_for(
    bench: Bench, name: str, table: str, states: tuple[str, ...], guards: tuple[str, ...]
) -> None:
    found = {state: bench.rows(name, table, state, old_state=state) for state in STATES[table]}

    allowed = LIVE if name == "update_job" else states
    assert found == {state: int(state in allowed) for state in STATES[table]}


@pytest.mark.parametrize(("name", "table", "states", "guards"), GUARDED, ids=NAMES)
def test_a_statement_finds_nothing_with_one_part_of_its_guard_wrong(
    bench: Bench, name: str, table: str, states: tuple[str, ...], guards: tuple[str, ...]
) -> None:
    wrong: Values = {"seq": 1, "job_id": "other", "attempt": 99, "worker": "other", "old_state": "blocked"}

    found = {guard: bench.rows(name, table, states[0], **{guard: wrong[guard]}) for guard in ("seq", *guards)}

    assert found == dict.fromkeys(found, 0)


def test_what_is_not_due_is_not_promoted(bench: Bench) -> None:
    assert bench.rows("promote", "jobs", "scheduled", now=0) == 0


def test_a_cancel_request_is_not_replaced(bench: Bench) -> None:
    bench.store.cancel([bench.jobs["jobs"].id], "first")

    assert bench.rows("cancel_request", "jobs", "running", reason="second") == 0


@pytest.mark.parametrize("change", [{"queue": "other"}, {"key": "other"}, {"job_id": "other"}])
def test_a_key_is_freed_only_by_all_its_names(bench: Bench, change: Values) -> None:
    [receipt] = bench.store.insert([new_job(unique_key="k")])
    values = {"queue": "default", "key": "k", "job_id": receipt.id}
    free = load_sqlite_statements()["key_free"]

    assert bench.database.execute(free, {**values, **change}).rowcount == 0
    assert bench.database.execute(free, values).rowcount == 1


@pytest.mark.parametrize(("now", "taken"), [(9, 0), (10, 1)])
def test_a_key_is_taken_only_from_a_holder_whose_time_is_over(bench: Bench, now: int, taken: int) -> None:
    take = load_sqlite_statements()["key_take"]
    values = {
        "queue": "default",
        "kind": "idempotency",
        "key": "k",
        "job_id": "a",
        "held_until": 10,
        "now": 0,
    }
    bench.database.execute(take, values)

    assert bench.database.execute(take, {**values, "job_id": "b", "now": now}).rowcount == taken


@pytest.mark.parametrize("capped", [0, 1])
def test_a_job_in_a_lane_is_not_claimed_and_not_shown(bench: Bench, capped: int) -> None:
    in_lane = claim(bench.store, 1)
    bench.store.settle_and_claim(WorkerId(in_lane[0].worker or ""), [])
    bench.database.execute(
        "update forebay_jobs set state = 'pending', lane = 'payload:9', lease_expires_at = null,"
        " age_capped = ?",
        (capped,),
    )

    request = QueueClaim(DEFAULT_QUEUE, 10, lanes=lanes_for_program(["t"], 1))
    assert bench.store.settle_and_claim(WORKER, claims=[request], room=10).jobs == ()


def test_a_live_job_is_not_removed_without_a_copy(bench: Bench) -> None:
    assert bench.rows("complete_remove", "jobs", "running") == 0


@pytest.mark.parametrize("room", [100, 1])
@pytest.mark.parametrize("lane", [None, "task:x"])
@pytest.mark.parametrize("capped", [0, 1])
def test_heads_are_pending_jobs_of_one_class_by_rank(
    bench: Bench, lane: str | None, room: int, capped: int
) -> None:
    """Among jobs of all kinds; what is in a lane, or past its expiry, is not in the queue's order."""
    kinds = list(
        product(("default", "other"), (*LIVE,), (None, "task:x"), (0, 1), (None, bench.now, bench.now + 1))
    )
    bench.database.execute("delete from forebay_jobs")
    bench.store.insert([new_job() for _ in kinds])
    seqs = [seq for (seq,) in bench.database.execute("select seq from forebay_jobs order by seq desc")]
    ranked = list(enumerate(zip(seqs, kinds, strict=False)))
    for rank, (seq, kind) in ranked:
        bench.database.execute(
            "update forebay_jobs set queue = ?, state = ?, lane = ?, age_capped = ?, expires_at = ?, rank = ?"
            " where seq = ?",
            (*kind, rank, seq),
        )
    values = {
        "queue": "default",
        "lane": lane,
        "age_capped": capped,
        "zero": 7,
        "now": bench.now,
        "room": room,
        "max_payload": 0,
    }

    candidates = bench.database.execute(load_sqlite_statements()["candidates"], values).fetchall()

    wanted = [("default", "pending", lane, capped, until) for until in (None, bench.now + 1)]
    expected = [(rank - 7, seq) for rank, (seq, kind) in ranked if kind in wanted]
    assert [head[:2] for head in candidates] == expected[:room]
    bench.database.execute("delete from forebay_jobs")


def test_putting_back_opens_the_lane(bench: Bench) -> None:
    bench.database.execute("update forebay_jobs set lane = 'task:x' where state = 'running'")
    job = bench.jobs["jobs"]

    bench.store.settle_and_claim(WorkerId(job.worker or ""), [fail(job)])

    assert bench.database.execute("select lane from forebay_jobs where seq = ?", (job.seq,)).fetchone() == (
        None,
    )


def test_what_a_newer_program_asks_for_and_says_stops_no_worker(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "jobs.db"
    engine = SqliteEngine(str(path), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.heartbeat(WorkerInfo(id=WORKER, slots=4))
    [unknown, known] = [*store.send_command(CommandKind.STOP), *store.send_command(CommandKind.PAUSE)]
    with raw(path) as connection:
        connection.execute("update forebay_worker_commands set kind = 'dance' where id = ?", (unknown.id,))
        connection.execute(
            "update forebay_workers set state = 'dancing', details = json_set(details, '$.mood', 'good')"
        )

    [worker] = reader.workers()
    taken = store.take_commands([WORKER])

    assert (worker.state, worker.slots) == (WorkerState.IDLE, 4)
    assert [command.id for command in taken] == [known.id]
    assert reader.commands([unknown.id]) == [None]
    assert store.take_commands([WORKER]) == []
    store.close()
    reader.close()


@pytest.mark.parametrize("forgets", ["prune", "delete"])
def test_the_notes_of_a_job_that_is_forgotten_take_no_room(
    tmp_path: Path, clock: ManualClock, forgets: str
) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteEngine(str(path), clock=clock).store()
    store.save_queue(DEFAULT_QUEUE, {"keep_finished_ms": 1_000})
    store.insert([new_job()] * 2)
    job, other = claim(store, 2)
    updates = [
        ProgressUpdate(lease=Lease(one.id, 1), steps=(StepResult(name="s", result=b"1"),))
        for one in (job, other)
    ]
    store.settle_and_claim(WORKER, [complete(job)], updates=updates)
    clock.advance(ms=1_000)

    if forgets == "prune":
        store.prune()
    else:
        store.delete([job.id])
    store.close()

    with raw(path) as connection:
        assert connection.execute("select seq from forebay_job_progress").fetchall() == [(other.seq,)]


def test_one_call_prunes_so_many_lines_of_the_audit_log(tmp_path: Path, clock: ManualClock) -> None:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), clock=clock)
    store, reader = engine.store(), engine.reader()
    store.record_events([Event(kind=EventKind.API_KEY_CHANGED, detail=detail) for detail in "abcde"])
    store.chain_audit()
    clock.advance(ms=AUDIT_RETENTION_MS)

    left = []
    for _ in range(3):
        store.prune(2)
        left.append("".join(line.event.detail for line in reader.audit_chain()))

    assert left == ["cde", "e", "e"]
    store.close()
    reader.close()


def test_tables_of_the_user_do_not_change_the_numbers_of_the_audit_log(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with raw(path) as connection:
        connection.execute("create table theirs (id integer primary key autoincrement)")
        connection.execute("insert into theirs values (1000)")
    engine = SqliteEngine(str(path))
    store, reader = engine.store(), engine.reader()

    store.record_events(
        [Event(kind=kind) for kind in (EventKind.COMMENT, EventKind.API_KEY_CHANGED, EventKind.COMMENT)]
    )

    assert [number for number, _ in reader.audit()] == [3, 2, 1]
    store.close()
    reader.close()
